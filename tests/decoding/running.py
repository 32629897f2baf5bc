"""What the decoding tests share: run the engine, every kind of draft, a tokenizer.

tokens, trace = run(model, prompt, 200, draft=SkipDraft({1}))
for name, draft in drafts_of(model).items(): ...
stream_generate(model, Tokenizer(7, 9), prompt)      # 7 and 9 end the text
"""

import selfspec  # noqa: F401  (loads the BLAS before mlx)

# isort: split
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tokenizer_utils import TokenizerWrapper

from selfspec.decoding import (
    AdapterDraft,
    Bridge,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
    generate_step,
)
from selfspec.models.blocks import find_stack

SKIP = SkipDraft(attention={0, 2}, mlp={2, 4})
ON_THE_TARGETS_CACHE = {
    "skip": SKIP,
    "skip, prefix kept": SkipDraft(attention={3}, mlp={2, 3}, reuse_prefix=True),
    "exit": ExitDraft(4),
    "exit, nothing kept": ExitDraft(4, reuse=False),
}
DRAFTS = (
    *ON_THE_TARGETS_CACHE,
    "two models",
    "lookup",
    "shortlist",
    "fallback",
    "adapter",
    "adapter, mlp",
    "adapter, shortlist",
)


def drafts_of(model):
    """Every kind of draft by its name, for a model of the families."""
    few = ShortlistDraft(SKIP, range(50))
    others = (
        ModelDraft(noisy_copy(model)),
        LookupDraft(),
        ShortlistDraft(ExitDraft(4), range(60)),
        FallbackDraft(LookupDraft(), few),
        adapter(model, 4),
        adapter(model, 3, "mlp"),
        ShortlistDraft(adapter(model, 2), range(70)),
    )
    return dict(zip(DRAFTS, (*ON_THE_TARGETS_CACHE.values(), *others), strict=True))


def adapter(model, exit_layer, kind="layer", noise=0.0):
    """An exit whose bridge is the model's own last layer: half right, never fitted.

    After the layer before the last that would be the whole model, if not for noise.
    """
    bridge = Bridge.like(find_stack(model), kind)
    rng = np.random.default_rng(5)
    weights = {
        name: w * mx.array(1 + noise * rng.standard_normal(w.shape), w.dtype)
        for name, w in bridge.weights.items()
    }
    return AdapterDraft(exit_layer, Bridge(kind, weights))


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


class Detokenizer:
    """A token is written as its number and a comma."""

    def reset(self):
        self.last_segment = ""

    def add_token(self, token):
        self.last_segment = f"{token},"

    def finalize(self):
        self.last_segment = ""


class Tokenizer(TokenizerWrapper):
    """The little of mlx-lm's wrapper that `stream_generate` uses."""

    def __init__(self, *eos):
        for name, value in (
            ("eos_token_ids", set(eos)),
            ("bos_token", None),
            ("detokenizer", Detokenizer()),
        ):
            object.__setattr__(self, name, value)
        self.detokenizer.reset()

    # the parent's are properties of a real tokenizer
    eos_token_ids = bos_token = detokenizer = None

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def encode(self, text, add_special_tokens=True):
        return [int(t) for t in text.split(",")]
