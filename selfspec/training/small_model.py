"""The small Llama that learns the task: mlx-lm's own class, a few layers deep.

Untied, because the paper's models are: with a tied head an exit's loss would reach the
embedding from the other side too. Narrow and deep, because an exit after E of L layers
costs about E / L of a step, and a few layers are needed to copy a word at all.

It begins so that copying is near (mimetic initialisation, Trockman and Kolter 2023,
arXiv 2305.09828): the embedding is of unit size, values and outputs of attention begin
near the identity, and so a word that is attended to is a word that the head, which
begins as a part of the embedding, would say. The same training from mlx's own initial
values had not learnt to copy when it ended.

    model = build(len(task.vocabulary), seed=0)
"""

import math

import mlx.core as mx
from mlx_lm.models import llama

LAYERS, WIDTH, HEAD_SIZE = 24, 96, 32
HEAD, COPY, NOISE = 0.5, 4.0, 0.1  # sizes at the beginning; COPY of all layers together
MLP_RATIO = 4 / 3  # of the width: an exponential an element is most of what it costs


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
    heads = max(1, width // HEAD_SIZE)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=width,
            num_hidden_layers=layers,
            intermediate_size=32 * max(1, round(MLP_RATIO * width / 32)),
            num_attention_heads=heads,
            num_key_value_heads=heads,
            rms_norm_eps=1e-5,
            vocab_size=vocab_size,
            max_position_embeddings=512,
            tie_word_embeddings=tied,
        )
    )
    embedding = model.model.embed_tokens
    embedding.weight = embedding.weight * math.sqrt(width)
    if not tied:
        model.lm_head.weight = HEAD / math.sqrt(width) * embedding.weight
    copy = math.sqrt(COPY / layers) * mx.eye(width)  # values times outputs
    for layer in model.layers:
        attention, down = layer.self_attn, layer.mlp.down_proj
        for one in (attention.v_proj, attention.o_proj):
            one.weight = NOISE * one.weight + copy
        down.weight = down.weight / math.sqrt(2 * layers)  # 2 L blocks add up
    mx.eval(model.parameters())
    return model
