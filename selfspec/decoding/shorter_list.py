"""The post's draft: a shallow copy of the model with a shorter list of layers.

It shares every weight and costs nothing to make, and mlx-lm's own
`speculative_generate_step` takes it as a second model, with its own prefill and cache.
It is right only where nothing in the model remembers a position in the list;
elsewhere it drafts wrong in silence (the target still verifies), so
`check_shorter_list` runs it before it is trusted. The engine itself never shortens the
list.

    check_shorter_list(model)
    draft_model = shorter_list_model(model, SkipDraft.middle(30, 0.3))
    speculative_generate_step(prompt, model, draft_model, num_draft_tokens=3)
"""

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding.drafts import SkipDraft
from selfspec.models.blocks import find_stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.surgery import cache_of, pass_through, with_call

# Prefill, three steps of one row, a pass of several rows: all that a round does.
PATTERN = (13, 1, 1, 1, 4)


def shorter_list_model(model: nn.Module, draft: SkipDraft) -> nn.Module:
    """The post's draft model: `draft`'s whole layers are missing, weights shared.

    Raises:
        ValueError: `draft` leaves out half a layer, a layer the model has not, or all.
    """
    stack = find_stack(model)
    if draft.attention != draft.mlp:
        raise ValueError(
            "a shorter list leaves out whole layers, but attention and mlp differ. "
            "Way out: the engine's own SkipDraft (selfspec.stream_generate)"
        )
    unknown = sorted(i for i in draft.whole_layers if i >= stack.num_layers)
    if unknown:
        raise ValueError(f"layers {unknown} are not among {stack.num_layers} layers")
    kept = [x for i, x in enumerate(stack.layers) if i not in draft.whole_layers]
    if not kept:
        raise ValueError(f"the draft leaves out all {stack.num_layers} layers")
    return stack.with_layers(kept)


def check_shorter_list(model: nn.Module, draft: SkipDraft | None = None) -> None:
    """Refuse a model for which a shorter list of layers drafts wrong.

    First every kept layer must be handed the mask and the kind of cache that it gets in
    the full list, also past the sliding window (nothing is computed for this, however
    wide the window). Then the shorter stack must agree with the full stack in which the
    same layers are jumped over at their old places, uncached and cached (prefill,
    single rows, several rows), within a tolerance relative to the full model's own
    difference between cached and uncached.

    Args:
        model: the target.
        draft: the skip set that will be used; the default tries two that move every
            remaining layer to another place.

    Raises:
        UnsupportedModelError: naming the architecture and what differed.
    """
    stack = find_stack(model)
    count = stack.num_layers
    tried = [draft] if draft is not None else _probes(count)
    tokens = _tokens(sum(PATTERN))
    reference = model(tokens)
    allowed = tolerance(reference, _cached(model, tokens))
    for candidate in tried:
        _check_what_layers_are_handed(stack, candidate)
        expected = _jumped_over(stack, candidate)(tokens)
        shorter = shorter_list_model(model, candidate)
        for how, run in (("uncached", _uncached), ("cached", _cached)):
            try:
                worst = mx.abs(run(shorter, tokens) - expected).max().item()
            except Exception as error:  # any crash inside the model is the answer
                reason = str(error).splitlines()[0] if str(error) else type(error)
                _refuse(model, candidate, f"{how}, it fails: {reason}")
            # not (a <= b), so that NaN refuses too
            if not worst <= allowed:
                _refuse(
                    model,
                    candidate,
                    f"{how}, its logits are off by {worst:.2g} (allowed {allowed:.2g})",
                )


def tolerance(uncached: mx.array, cached: mx.array) -> float:
    """Largest logit difference put down to rounding, from the full model's own."""
    own = mx.abs(cached - uncached).max().item()
    return 8 * own + 1e-5 * max(1.0, mx.abs(uncached).max().item())


def _refuse(model, draft, what):
    raise UnsupportedModelError(
        f"{name_of(model)}: a shorter list of layers drafts wrong (without layers "
        f"{sorted(draft.whole_layers)}: {what}). Way out: the engine's own SkipDraft "
        "(selfspec.stream_generate), which keeps the whole list"
    )


def _probes(count):
    if count < 2:
        return [SkipDraft()]
    first = frozenset({0, *range(3, count, 4)})
    second = frozenset(range(1, count, 3))
    return [SkipDraft(s, s) for s in (first, second) if len(s) < count]


def _tokens(total):
    """A row of token ids that every vocabulary has."""
    return mx.array([[(7 * i + 3) % 29 for i in range(total)]])


def _uncached(model, tokens):
    return model(tokens)


def _cached(model, tokens):
    cache = make_prompt_cache(model)
    out, start = [], 0
    for size in PATTERN:
        out.append(model(tokens[:, start : start + size], cache=cache))
        start += size
    return mx.concatenate(out, axis=1)


def _noting(layer, log):
    """The layer, passing its input on and noting the masks and cache it is handed."""
    passing = pass_through(layer)

    def call(self, x, *args, **kwargs):
        seen = [a for a in (*args, *kwargs.values()) if _is_mask(a)]
        log(seen, cache_of(args, kwargs))
        return passing(x, *args, **kwargs)

    return with_call(layer, call)


def _is_mask(value):
    if isinstance(value, mx.array):
        return value.dtype == mx.bool_
    return isinstance(value, str)


def _jumped_over(stack, draft):
    layers = [
        pass_through(x) if i in draft.whole_layers else x
        for i, x in enumerate(stack.layers)
    ]
    return stack.with_layers(layers)


def _check_what_layers_are_handed(stack, draft):
    """Compare masks and caches, layer by layer, with those of the full list."""
    windows = [getattr(c, "max_size", 0) for c in make_prompt_cache(stack.model)]
    pattern = (max([PATTERN[0], *windows]) + 3, *PATTERN[1:])
    kept = [i for i in range(stack.num_layers) if i not in draft.whole_layers]
    full = _handed(stack, range(stack.num_layers), pattern)
    try:
        short = _handed(stack, kept, pattern)
    except Exception as error:  # an index past the end, a mask of the wrong size
        _refuse(stack.model, draft, f"it fails: {type(error).__name__}")
    for index in kept:
        for (mask, cache), (mask_short, cache_short) in zip(
            full[index], short[index], strict=True
        ):
            if cache != cache_short:
                _refuse(
                    stack.model,
                    draft,
                    f"layer {index} is given a {cache_short} instead of a {cache}",
                )
            if not _equal(mask, mask_short):
                _refuse(stack.model, draft, f"layer {index} is given another's mask")


def _handed(stack, kept, pattern):
    """What each kept layer is handed on each pass: {layer: [(masks, cache kind)]}."""
    notes = {i: [] for i in kept}

    def note(index):
        def log(masks, cache):
            kind = f"{type(cache).__name__}({getattr(cache, 'max_size', '')})"
            notes[index].append((masks, kind))

        return log

    model = stack.with_layers([_noting(stack.layers[i], note(i)) for i in kept])
    cache, tokens, start = make_prompt_cache(model), _tokens(sum(pattern)), 0
    for size in pattern:
        model(tokens[:, start : start + size], cache=cache)
        start += size
    return notes


def _equal(masks, others):
    if len(masks) != len(others):
        return False
    return all(
        a == b
        if isinstance(a, str) or isinstance(b, str)
        else a.shape == b.shape and mx.array_equal(a, b).item()
        for a, b in zip(masks, others, strict=True)
    )
