"""Small random float32 models of every family, made from mlx-lm's own classes.

The engine's promises are about mechanics (masks, offsets, rings, scales), so the
models are tiny and random, but their forward passes are mlx-lm's. The weights are
scaled so that every block matters about equally, and less after some tokens than
after others: a draft that leaves blocks out is then often right and often wrong,
and the text does not settle on one token.
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
    gains: dict = field(default_factory=dict)  # in place of some of GAINS
    norms: dict = field(default_factory=dict)  # suffix -> constant norm weight
    # Tokens whose embedding is loud are followed by what they alone suggest, so a
    # draft is mostly right after them; after the others every block has its say.
    loud: float = 8.0
    loud_share: float = 0.6
    window: bool = False
    salt: int = 0  # chosen so that seed 0 has no near ties


PERIOD = [SLIDING, SLIDING, FULL]
SHARP_NORMS = {"q_norm.weight": 2.0, "k_norm.weight": 2.0}  # they undo the gains
# Gemma's norms multiply by one plus their weight.
GEMMA_NORMS = {
    "q_norm.weight": 1.0,
    "k_norm.weight": 1.0,
    "model.norm.weight": 0.0,
    "layernorm.weight": 0.0,
}

SUPPORTED = {
    "llama": Family("llama"),
    "llama_sliding": Family(
        "llama", {"sliding_window": WINDOW, "layer_types": PERIOD * 2}, window=True
    ),
    "qwen2": Family("qwen2", {"rope_theta": 1e6}, salt=2),
    "qwen3": Family("qwen3", {"head_dim": HEAD_DIM}, norms=SHARP_NORMS, salt=2),
    "qwen3_moe": Family(
        "qwen3_moe",
        {
            "head_dim": HEAD_DIM,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [1],
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
        },
        norms=SHARP_NORMS,
    ),
    "smollm3": Family("smollm3", {"no_rope_layer_interval": 3}, salt=2),
    # mlx-lm reads a Mistral as a Llama; its own window, on every layer, is not used.
    "mistral": Family("llama", {"head_dim": HEAD_DIM, "rope_theta": 1e6}),
    "ministral3": Family(
        "ministral3",
        {
            "head_dim": HEAD_DIM,
            "sliding_window": WINDOW,
            "layer_types": PERIOD * 2,
            "rope_parameters": {
                "rope_theta": 1e4,
                "llama_4_scaling_beta": 0.1,
                "original_max_position_embeddings": 32,
            },
        },
        window=True,
        salt=2,
    ),
    "phi3": Family("phi3", {"partial_rotary_factor": 0.5}),
    "gemma2": Family(
        "gemma2",
        {"head_dim": HEAD_DIM, "query_pre_attn_scalar": HEAD_DIM},
        # The head is the embedding, so the blocks must outweigh it.
        gains={"embed_tokens.weight": 0.15},
        norms={
            "post_attention_layernorm.weight": 1.0,
            "post_feedforward_layernorm.weight": 1.0,
            **GEMMA_NORMS,
            "model.norm.weight": 4.5,
        },
        loud=1.0,
    ),
    "gemma3_text": Family(
        "gemma3_text",
        {
            "head_dim": HEAD_DIM,
            "query_pre_attn_scalar": HEAD_DIM,
            "sliding_window": WINDOW,
            "sliding_window_pattern": len(PERIOD),
        },
        gains={"embed_tokens.weight": 1 / HIDDEN**0.5},
        norms=GEMMA_NORMS,
        loud=5.0,
        window=True,
        salt=1,
    ),
    "gpt_oss": Family(
        "gpt_oss",
        {
            "head_dim": HEAD_DIM,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": WINDOW,
            "layer_types": [SLIDING, FULL] * 3,
        },
        window=True,
        salt=1,
    ),
    "cohere2": Family(
        "cohere2",
        {
            "head_dim": HEAD_DIM,
            "layer_norm_eps": 1e-5,
            "logit_scale": 0.75,
            "sliding_window": WINDOW,
            "sliding_window_pattern": len(PERIOD),
        },
        gains={
            "embed_tokens.weight": 0.5,
            "o_proj.weight": 4.0,
            "down_proj.weight": 4.0,
        },
        loud=1.0,
        window=True,
    ),
    "olmo3": Family(
        "olmo3",
        {"sliding_window": WINDOW, "layer_types": PERIOD * 2},
        norms=SHARP_NORMS,
        window=True,
        salt=1,
    ),
    "exaone4": Family(
        "exaone4",
        {
            "head_dim": HEAD_DIM,
            "rope_scaling": None,
            "sliding_window": WINDOW,
            "sliding_window_pattern": "LLG",
        },
        norms=SHARP_NORMS,
        window=True,
        salt=2,
    ),
    "granite": Family(
        "granite",
        {
            "logits_scaling": 2.0,
            "attention_multiplier": 0.2,
            "embedding_multiplier": 2.0,
            "residual_multiplier": 0.5,
            "attention_bias": True,
            "mlp_bias": True,
        },
        gains={"embed_tokens.weight": 0.25, "lm_head.weight": 12.0},
        salt=5,
    ),
    "mixtral": Family(
        "mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}, salt=1
    ),
}

# Structures that the library must refuse, each with what is wrong with it.
UNSUPPORTED = {
    "mamba": Family(  # recurrent: no keys and values at all
        "mamba",
        {
            "state_size": 8,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_rank": 4,
        },
    ),
    "lfm2": Family(  # hybrid: convolutions between the attentions
        "lfm2",
        {
            "norm_eps": 1e-5,
            "conv_bias": False,
            "conv_L_cache": 3,
            "block_dim": HIDDEN,
            "block_ff_dim": 96,
            "block_multiple_of": 1,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": False,
            "full_attn_idxs": [2, 5],
        },
    ),
    "gemma4_text": Family(  # the last layers read the keys and values of earlier ones
        "gemma4_text",
        {
            "head_dim": HEAD_DIM,
            "global_head_dim": HEAD_DIM,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": VOCAB,
            "sliding_window": WINDOW,
            "sliding_window_pattern": len(PERIOD),
        },
    ),
    "nanbeige": Family("nanbeige", {"num_loops": 2}),  # the stack runs twice
}

FAMILIES: tuple[str, ...] = tuple(SUPPORTED)
REFUSED: tuple[str, ...] = tuple(UNSUPPORTED)


def build(family: str, seed: int = 0, **overrides) -> nn.Module:
    """A model of `family` with weights from `seed`; `overrides` are model arguments."""
    spec = (SUPPORTED | UNSUPPORTED)[family]
    module = importlib.import_module(f"mlx_lm.models.{spec.module}")
    args = {**COMMON, "model_type": spec.module, **spec.args, **overrides}
    model = module.Model(module.ModelArgs.from_dict(args))
    fill(model, spec, np.random.default_rng([spec.salt, seed]))
    model.eval()
    mx.eval(model.parameters())
    return model


def fill(model: nn.Module, spec: Family, rng: np.random.Generator) -> None:
    """Draw every parameter of `model` anew, in the order of their names."""
    gains = {**GAINS, **spec.gains}
    weights = []
    for name, weight in sorted(tree_flatten(model.parameters())):
        if "norm" in name:
            suffix = next((s for s in spec.norms if name.endswith(s)), None)
            start = np.array(weight) if suffix is None else spec.norms[suffix]
            value = start + 0.1 * rng.standard_normal(weight.shape)
        else:
            gain = next((gains[s] for s in gains if name.endswith(s)), None)
            if gain is None:  # a decay or step size, whose start is not noise
                continue
            if weight.ndim > 1 and "embed" not in name:
                gain /= weight.shape[-1] ** 0.5
            value = gain * rng.standard_normal(weight.shape)
            if "embed" in name:
                is_loud = rng.random(len(value)) < spec.loud_share
                value *= np.where(is_loud, spec.loud, 1.0)[:, None]
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
