"""A tiny random model in the layout of the hub, so that whole studies run in seconds.

folder = save_tiny_model(tmp_path / "tiny-llama", seed=1)
selfspec.load(folder)
"""

import json
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 6,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 258,
    "head_dim": 8,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "eos_token_id": 257,
}


def save_tiny_model(folder: Path, *, seed: int = 0, **overrides) -> Path:
    """Write config, weights and a byte-level tokenizer (no chat template) to `folder`."""
    config = {**CONFIG, **overrides}
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    # strong blocks whose middle matters less: a draft without it is right now and then,
    # and the text does not loop on one token
    for index, layer in enumerate(model.layers):
        gain = 4 * (0.3 if 2 <= index < 5 else 1)
        layer.self_attn.o_proj.weight *= gain
        layer.mlp.down_proj.weight *= gain
    model.model.embed_tokens.weight *= 8
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(
        str(folder / "model.safetensors"), weights, metadata={"format": "mlx"}
    )
    (folder / "config.json").write_text(json.dumps(config))
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: index for index, letter in enumerate(alphabet)}
    vocab |= {"<s>": 256, "</s>": 257}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>"
    )
