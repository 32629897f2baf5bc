"""What the decoding tests share: run the engine, make drafts that are half right.

tokens, trace = run(model, prompt, 200, draft=SkipDraft({1}))
"""

import selfspec  # noqa: F401  (loads the BLAS before mlx)

# isort: split
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding import Trace, generate_step


def run(model, prompt, max_tokens, **options):
    """All token ids that the engine emits, and the trace."""
    trace = options.pop("trace", None) or Trace()
    steps = generate_step(prompt, model, max_tokens=max_tokens, trace=trace, **options)
    return [token for token, _, _ in steps], trace


def noisy_copy(model, scale=0.15, seed=5):
    """The same architecture with its weights disturbed: a draft model, half right."""
    import copy

    rng = np.random.default_rng(seed)
    noisy = copy.deepcopy(model)
    weights = [
        (name, w * mx.array(1 + scale * rng.standard_normal(w.shape), w.dtype))
        for name, w in tree_flatten(model.parameters())
    ]
    noisy.update(tree_unflatten(weights))
    return noisy


def cache_arrays(entry, length):
    """Keys and values of the first `length` tokens, dequantised if need be."""
    arrays = []
    for part in (entry.keys, entry.values):
        if isinstance(part, tuple | list):
            part = mx.dequantize(*part, group_size=entry.group_size, bits=entry.bits)
        arrays.append(part[..., :length, :])
    return arrays


def assert_same_cache(entries, replayed, length, tolerance=2e-5):
    """Equal offsets, and the valid part of keys and values equal within rounding."""
    for index, (entry, other) in enumerate(zip(entries, replayed, strict=True)):
        assert entry.offset == other.offset == length, index
        for mine, theirs in zip(
            cache_arrays(entry, length), cache_arrays(other, length), strict=True
        ):
            scale = max(1.0, mx.abs(theirs).max().item())
            worst = mx.abs(mine - theirs).max().item()
            assert worst <= tolerance * scale, (index, worst)


def replay(model, tokens, entries=None):
    """A cache filled one row at a time."""
    entries = make_prompt_cache(model) if entries is None else entries
    for token in tokens:
        mx.eval(model(mx.array([[token]]), cache=entries))
    return entries
