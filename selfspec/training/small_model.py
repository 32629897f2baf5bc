"""The small Llama that learns the task: mlx-lm's own class, a few layers deep.

Untied, because the paper's models are: with a tied head an exit's loss would reach the
embedding from the other side too. Twelve layers, because the recipe is about depth.
The stream begins at unit size and no block can swamp it: with mlx's own initial values
(an embedding of size 1 / sqrt(width), blocks that do not know of each other) the same
training had not learnt to copy words when it ended.

    model = build(len(task.vocabulary), seed=0)
"""

import math

import mlx.core as mx
from mlx_lm.models import llama

LAYERS, WIDTH, HEADS = 12, 128, 4
MLP_RATIO = 2.5  # of the width; three matrices, so about two thirds of a layer


def build(
    vocab_size: int,
    *,
    layers: int = LAYERS,
    width: int = WIDTH,
    tied: bool = False,
    seed: int = 0,
) -> llama.Model:
    """A model with random float32 weights, the same for the same seed."""
    mx.random.seed(seed)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=width,
            num_hidden_layers=layers,
            intermediate_size=int(MLP_RATIO * width),
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            rms_norm_eps=1e-5,
            vocab_size=vocab_size,
            max_position_embeddings=512,
            tie_word_embeddings=tied,
        )
    )
    embedding = model.model.embed_tokens
    embedding.weight = embedding.weight * math.sqrt(width)
    for layer in model.layers:  # 2 L blocks add up to about one
        for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
            last.weight = last.weight / math.sqrt(2 * layers)
    mx.eval(model.parameters())
    return model
