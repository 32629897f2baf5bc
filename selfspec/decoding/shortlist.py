"""A head that scores only some tokens, for drafting.

The head is found by structure: the one projection outside the layers that is as wide as
the vocabulary, or else the tied embedding. Only it is replaced, in a shallow copy of
the draft's model, so a soft-cap or a logit scale after it stays the family's own.

    shortlist = Shortlist(tokens, model, vocab_size)
    model = shortlist.applied_to(model)          # logits (..., N), columns shortlist.ids
"""

import copy

import mlx.core as mx
import mlx.nn as nn

from selfspec.models.blocks import name_of
from selfspec.models.errors import UnsupportedModelError

PARTS = ("weight", "scales", "biases", "bias")  # all have a row an output


class Shortlist:
    """N token ids, the head's rows for them, and the way back to the whole vocabulary."""

    def __init__(self, tokens: tuple[int, ...], model: nn.Module, vocab_size: int):
        self.path, head = find_head(model)
        self.vocab_size = vocab_size  # the target's; a draft model's may be smaller
        known = min(vocab_size, head.weight.shape[0])
        if max(tokens) >= known:
            raise ValueError(
                f"the shortlist names token {max(tokens)}, but {name_of(model)} has "
                f"{known} tokens"
            )
        self.ids = mx.array(sorted(tokens), mx.uint32)
        self.rows = copy.copy(head)
        for part in PARTS:
            if head.get(part) is not None:
                self.rows[part] = head[part][self.ids]
        mx.eval(self.rows.parameters())

    @property
    def nbytes(self) -> int:
        """Memory of the copied rows."""
        return sum(self.rows[p].nbytes for p in PARTS if self.rows.get(p) is not None)

    def applied_to(self, model: nn.Module) -> nn.Module:
        """A shallow copy of `model` whose head scores the shortlist only."""
        root = copy.copy(model)
        holder = root
        for name in self.path[:-1]:
            holder[name] = copy.copy(holder[name])
            holder = holder[name]
        holder[self.path[-1]] = self._replacement(holder[self.path[-1]])
        return root

    def _replacement(self, head):
        if not hasattr(head, "as_linear"):
            return self.rows
        clone = copy.copy(head)  # embeds as before
        object.__setattr__(clone, "as_linear", self.rows.as_linear)
        return clone

    def expand(self, values: mx.array, fill: float) -> mx.array:
        """(..., N) over the shortlist to (..., V), `fill` elsewhere."""
        shape = (*values.shape[:-1], self.vocab_size)
        whole = mx.full(shape, fill, values.dtype)
        ids = mx.broadcast_to(self.ids, values.shape)
        return mx.put_along_axis(whole, ids, values, axis=-1)


def find_head(model: nn.Module) -> tuple[tuple[str, ...], nn.Module]:
    """Where the head is, as a path of names, and the module itself.

    Raises:
        UnsupportedModelError: none, or several.
    """
    vocab_size = model(mx.array([[0]])).shape[-1]  # never run
    found = [
        (path, module)
        for path, module in _modules(model)
        if "weight" in module
        and module.weight.ndim == 2
        and module.weight.shape[0] == vocab_size
    ]
    linear = [x for x in found if not hasattr(x[1], "as_linear")]
    tied = [x for x in found if hasattr(x[1], "as_linear")]
    chosen = linear or tied
    if len(chosen) != 1:
        raise UnsupportedModelError(
            f"{name_of(model)}: no one head of {vocab_size} tokens was found "
            f"({len(chosen)} candidates), so it cannot be cut down. Way out: the same "
            "draft without a shortlist"
        )
    return chosen[0]


def _modules(module, path=()):
    """Modules outside the layers, which live in lists."""
    for name, child in dict.items(module):
        if isinstance(child, nn.Module):
            yield (*path, name), child
            yield from _modules(child, (*path, name))
