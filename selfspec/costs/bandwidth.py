"""How much of the device's memory traffic a decoding step uses, and what drafts read.

A step over one row reads every weight once and computes little with each, so on most
machines reading is what it waits for. The distance to what the device can copy says how
near a step is to that bound, and what else it waits for. Weights alone also give a
stand-in for the cost of a draft, for machines that nobody has profiled:

    c = bytes that a draft step reads / bytes that a plain step reads

Knows bytes, seconds and blocks; no names of models.

    ceiling = copy_ceiling()                          # bytes a second, read and written
    reached = weights_per_step(model) / profile.step_seconds
    weight_shares(model, ExitDraft(8))                # WeightShares(cost_ratio, kept)
"""

import time
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from selfspec.costs.profile import left_out
from selfspec.decoding.drafts import LookupDraft
from selfspec.models.blocks import find_stack

COPY_BYTES = 2**28  # larger than any cache of the machines at hand
REPEATS = 7


@dataclass(frozen=True)
class WeightShares:
    """A draft by the weights that it reads, as shares of what a plain step reads.

    Attributes:
        cost_ratio: c, if time were weights read.
        kept: share of the first layers, whose rows the verification takes over: of m
            rows it saves that share of m - 1.
    """

    cost_ratio: float
    kept: float


def copy_ceiling(
    num_bytes: int = COPY_BYTES, *, streams: int = 1, repeats: int = REPEATS
) -> float:
    """Bytes a second, read and written together, of the fastest of several copies.

    The copy also flips the sign, because a plain one would be the same array handed out
    again.

    Args:
        num_bytes: of the array; large, so that no cache holds it.
        streams: parts copied at the same time. A CPU gives each a thread of its own,
            so as many as a step has threads; a GPU needs one.
        repeats: timed copies, after one that allocates.
    """
    size = max(1, num_bytes // 4 // streams)
    lanes = [mx.new_stream(mx.default_device()) for _ in range(streams)]
    sources = [mx.ones(size, mx.float32) for _ in lanes]
    mx.eval(sources)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        copies = [
            mx.negative(source, stream=lane)
            for source, lane in zip(sources, lanes, strict=True)
        ]
        mx.eval(copies)
        seconds.append(time.perf_counter() - start)
        del copies  # its memory is used again
    mx.clear_cache()
    return 2 * 4 * size * streams / min(seconds[1:])


def weights_per_step(model: nn.Module, draft=None) -> int | None:
    """Bytes of weights that a step over one row reads.

    An embedding table is looked up, not read, unless it is the head as well; then it is
    read once. None for a mixture of experts, which reads a part that nobody knows
    beforehand.

    Args:
        draft: a part of the target whose step it is; default, the whole target.

    Raises:
        UnsupportedModelError: a model whose blocks cannot be told apart.
        TypeError, ValueError: a draft that is no part of this model.
    """
    stack = find_stack(model)
    if any(array.ndim > 2 for layer in stack.layers for array in _arrays(layer)):
        return None
    vocab_size = model(mx.array([[0]])).shape[-1]  # never run
    attention, mlp, head_share, _ = (
        (frozenset(), frozenset(), 1.0, 0)
        if draft is None
        else left_out(draft, stack.num_layers, vocab_size)
    )
    read = _outside(model, stack, vocab_size, head_share)
    for index, layer in enumerate(stack.layers):
        if index in attention & mlp:
            continue
        read += _bytes(layer)
        read -= _bytes(stack.attention_of(index)) if index in attention else 0
        read -= _bytes(stack.mlp_of(index)) if index in mlp else 0
    return round(read)


def weight_shares(model: nn.Module, draft) -> WeightShares | None:
    """c and the share of kept layers of a draft, by weights; None as above."""
    whole = weights_per_step(model)
    if whole is None:
        return None
    if isinstance(draft, LookupDraft):
        return WeightShares(0.0, 0.0)
    stack = find_stack(model)
    vocab_size = model(mx.array([[0]])).shape[-1]  # never run
    *_, kept = left_out(draft, stack.num_layers, vocab_size)
    first = sum(_bytes(layer) for layer in stack.layers[:kept])
    return WeightShares(weights_per_step(model, draft) / whole, first / whole)


def _outside(model, stack, vocab_size: int, head_share: float) -> float:
    """Bytes read outside the layers: the head's share, no tables, whatever else."""
    modules = list(_modules(model))
    tables = [module for module in modules if hasattr(module, "as_linear")]
    of_words = [module for module in modules if _rows(module) == vocab_size]
    heads = [m for m in of_words if not hasattr(m, "as_linear")] or of_words
    everything = sum(array.nbytes for array in _arrays(model))
    layers = sum(map(_bytes, stack.layers))
    is_head = {id(module) for module in heads}  # modules compare by their arrays
    never = sum(_bytes(table) for table in tables if id(table) not in is_head)
    return everything - layers - never - (1 - head_share) * sum(map(_bytes, heads))


def _rows(module) -> int:
    """Outputs of a linear layer, or entries of a table; 0 for anything else."""
    weight = module.get("weight")
    return weight.shape[0] if weight is not None and weight.ndim == 2 else 0


def _modules(module):
    """Modules outside the layers, which live in lists."""
    for child in dict.values(module):
        if isinstance(child, nn.Module):
            yield child
            yield from _modules(child)


def _arrays(module) -> list[mx.array]:
    return [array for _, array in tree_flatten(module.parameters())]


def _bytes(module) -> int:
    return sum(array.nbytes for array in _arrays(module))
