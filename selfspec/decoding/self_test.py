"""Is this architecture drafted right? Asked at first use, answered by running it.

A wrong draft is still verified, so it would never show in the text, only in a poor
acceptance rate. Before a model drafts with parts of itself, four things must hold
within rounding: leaving nothing out is the target; leaving whole layers out is jumping
over them; a draft with a cache says what it says without one; and verifying from the
middle of the stack, from kept rows, is verifying from the start.

    check(model)                     # raises UnsupportedModelError, or remembers the pass
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding.caches import Caches
from selfspec.decoding.drafts import SkipDraft
from selfspec.decoding.prefix import Prefix
from selfspec.decoding.shorter_list import tolerance
from selfspec.decoding.skip import skipping_layers
from selfspec.models.blocks import Stack, find_stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.surgery import pass_through, zero_attention, zero_mlp

PATTERN = (7, 1, 1, 4)  # prefill, steps of one row, a pass of several
KEPT = 3  # rows kept while drafting, in the test of the prefix

_passed: set[tuple] = set()


def check(model: nn.Module) -> None:
    """Run the self-test, once for an architecture (see `_architecture`).

    Raises:
        UnsupportedModelError: naming the architecture and what went wrong.
    """
    key = _architecture(model)
    if key in _passed:
        return
    stack = find_stack(model)
    name = name_of(model)
    Caches(make_prompt_cache(model)).check(name, stack.num_layers)
    try:
        wrong = _findings(model, stack)
    except Exception as error:  # a crash inside the model is an answer too
        wrong = f"it fails with {type(error).__name__}: {error}".splitlines()[0]
    if wrong:
        raise UnsupportedModelError(
            f"{name}: leaving blocks out drafts wrong ({wrong}). "
            "Way out: decode without a draft, or with a ModelDraft or LookupDraft"
        )
    _passed.add(key)


def _architecture(model) -> tuple:
    """Its arguments, the class of every module and the name of every weight.

    A model that was patched or quantised is another one; other weights are not.
    """
    modules = frozenset((name, type(m)) for name, m in model.named_modules())
    weights = frozenset(name for name, _ in tree_flatten(model.parameters()))
    # without arguments nothing says what the modules do, so no two are the same
    args = repr(model.args) if hasattr(model, "args") else object()
    return args, modules, weights


def probe_sets(num_layers: int) -> SkipDraft:
    """A skip set with layer 0, whole layers, lone attentions and lone MLPs."""
    attention = {i for i in range(num_layers) if i % 2 == 0}
    mlp = {i for i in range(num_layers) if i % 3 == 0}
    return SkipDraft(attention, mlp)


def _findings(model, stack: Stack) -> str:
    """What is wrong, in a few words; empty if nothing is."""
    total = sum(PATTERN)
    vocab_size = model(mx.array([[0]])).shape[-1]  # never run
    tokens = mx.array([[(7 * i + 3) % min(29, vocab_size) for i in range(total)]])
    full = model(tokens)
    allowed = tolerance(full, _cached(model, tokens, ()))

    def differs(what, logits, expected):
        worst = mx.abs(logits - expected).max().item()
        # not (a <= b), so that NaN is a finding too
        return "" if worst <= allowed else f"{what}: logits off by {worst:.2g}"

    nothing = stack.with_layers(skipping_layers(stack, SkipDraft()))
    draft = probe_sets(stack.num_layers)
    skipping = stack.with_layers(skipping_layers(stack, draft))
    every = range(stack.num_layers)
    zeroed = stack.with_layers(
        stack.replace(
            i,
            attention=zero_attention(stack.attention_of(i)),
            mlp=zero_mlp(stack.mlp_of(i)),
        )
        if i % 2
        else stack.layers[i]
        for i in every
    )
    jumped = stack.with_layers(
        pass_through(stack.layers[i]) if i % 2 else stack.layers[i] for i in every
    )
    return (
        differs("leaving nothing out", nothing(tokens), full)
        or differs("a block that adds zero", zeroed(tokens), jumped(tokens))
        or differs(
            "with a cache",
            _cached(skipping, tokens, draft.attention, make_prompt_cache(model)),
            skipping(tokens),
        )
        or next(
            filter(
                None,
                (
                    differs(
                        f"verifying from layer {depth}",
                        _from_the_middle(model, stack, depth, tokens),
                        full,
                    )
                    for depth in {1, stack.num_layers // 2}
                    if 0 < depth < stack.num_layers
                ),
            ),
            "",
        )
    )


def _cached(model, tokens, stand_ins, entries=None):
    entries = make_prompt_cache(model) if entries is None else entries
    entries = Caches(entries).stand_ins(stand_ins)
    out, start = [], 0
    for size in PATTERN:
        out.append(model(tokens[:, start : start + size], cache=entries))
        start += size
    return mx.concatenate(out, axis=1)


def _from_the_middle(model, stack, depth, tokens):
    """Logits of the whole text, its last rows drafted up to `depth` and then verified."""
    caches = Caches(make_prompt_cache(model))
    length = tokens.shape[1] - KEPT
    before = model(tokens[:, :length], cache=caches.entries)
    prefix = Prefix(stack, depth)
    for row in range(length, length + KEPT - 1):
        prefix.read(tokens[0, row : row + 1], caches)
    after = prefix.verify(tokens[0, length:], caches, length)
    return mx.concatenate([before, after[None]], axis=1)
