"""Small random float32 models of every family, made from mlx-lm's own classes.

The engine's promises are about mechanics (masks, offsets, rings, scales), so the
models are tiny and random, but their forward passes are mlx-lm's. The weights are
scaled so that every block matters about equally: a draft that leaves some out is
then often right and often wrong, and the text does not settle on one token.
Nothing here knows selfspec.

    model = families.build("gemma3_text")
    prompt = families.prompt("gemma3_text", 10)
    families.num_layers(model), families.has_window("gemma3_text")
"""

import importlib
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

VOCAB = 96
HIDDEN = 64
HEAD_DIM = 32  # a quantised KV cache needs a multiple of 32
WINDOW = 16
SLIDING, FULL = "sliding_attention", "full_attention"

# Heads: two for queries that share one for keys and values.
COMMON = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 6,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCAB,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}

# Standard deviation of a weight, times sqrt(fan-in); the first suffix that fits wins.
GAINS = {
    "embed_tokens.weight": 1.0,
    "lm_head.weight": 6.0,  # a sharp head keeps the two best tokens apart
    "q_proj.weight": 2.0,  # sharp attention: the text depends on far tokens
    "k_proj.weight": 2.0,
    "o_proj.weight": 2.0,
    "down_proj.weight": 2.0,
    ".weight": 1.0,
    ".bias": 0.3,
    "sinks": 1.0,
}


@dataclass(frozen=True)
class Family:
    """How to build one family: mlx-lm's module, its arguments, its scales."""

    module: str
    args: dict = field(default_factory=dict)
    gains: dict = field(default_factory=dict)  # suffix -> gain, before GAINS
    norms: dict = field(default_factory=dict)  # suffix -> constant norm weight
    window: bool = False
    salt: int = 0  # chosen so that seed 0 has no near ties


SUPPORTED = {
    "llama": Family("llama"),
    "llama_sliding": Family(
        "llama",
        {"sliding_window": WINDOW, "layer_types": [SLIDING, SLIDING, FULL] * 2},
        window=True,
    ),
}

FAMILIES = tuple(SUPPORTED)


def build(family: str, seed: int = 0, **overrides) -> nn.Module:
    """A model of `family` with weights from `seed`; `overrides` are model arguments."""
    spec = SUPPORTED[family]
    module = importlib.import_module(f"mlx_lm.models.{spec.module}")
    args = {**COMMON, "model_type": spec.module, **spec.args, **overrides}
    model = module.Model(module.ModelArgs.from_dict(args))
    fill(model, spec, np.random.default_rng([spec.salt, seed]))
    model.eval()
    mx.eval(model.parameters())
    return model


def fill(model: nn.Module, spec: Family, rng: np.random.Generator) -> None:
    """Draw every parameter of `model` anew, in the order of their names."""
    gains = {**spec.gains, **GAINS}
    weights = []
    for name, weight in sorted(tree_flatten(model.parameters())):
        if "norm" in name:
            suffix = next((s for s in spec.norms if name.endswith(s)), None)
            start = np.array(weight) if suffix is None else spec.norms[suffix]
            value = start + 0.1 * rng.standard_normal(weight.shape)
        else:
            gain = next(gains[s] for s in gains if name.endswith(s))
            if weight.ndim > 1 and "embed" not in name:
                gain /= weight.shape[-1] ** 0.5
            value = gain * rng.standard_normal(weight.shape)
        weights.append((name, mx.array(value.astype(np.float32))))
    model.update(tree_unflatten(weights))


def num_layers(model: nn.Module) -> int:
    """Layers in the stack."""
    return len(model.layers)


def has_window(family: str) -> bool:
    """Whether some layers of the family attend to the last `WINDOW` tokens only."""
    return SUPPORTED[family].window


def prompt(family: str, length: int = 10, seed: int = 0) -> list[int]:
    """`length` random token ids of the family's vocabulary."""
    rng = np.random.default_rng([len(family), length, seed])
    return rng.integers(0, VOCAB, length).tolist()
