"""A GGUF file of the Llama kind, read into mlx-lm's own Llama class.

`mx.load` reads the weights, but turns what MLX has no kernel for into half precision
without a word, so the header is read here first and such files are refused by name.
GGUF stores the rows of the query and key projections interleaved, which is what
`rope_traditional=True` expects: the rows stay where they are. Knows nothing of where
the file came from, nor of text.

    weights, metadata, stored_as = gguf.read(path)
    model = gguf.build_llama(weights, metadata, dtype=mx.float32, packed=False)
"""

import math
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import llama

from selfspec.models.errors import ModelError

MAGIC = b"GGUF"
GROUP_SIZE = 32  # weights that share one scale in Q4_0, Q4_1 and Q8_0

# ggml's numbers for how a tensor is stored
TYPE_NAMES = {
    **{0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0"},
    **{9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"},
    **{15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S"},
    **{20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16"},
    **{26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0"},
    **{35: "TQ2_0", 39: "MXFP4"},
}
# those MLX keeps as they are -> (bytes, weights) of one stored piece
SUPPORTED_TYPES = {
    "F32": (4, 1),
    "F16": (2, 1),
    "Q4_0": (18, 32),
    "Q4_1": (20, 32),
    "Q8_0": (34, 32),
}
ALIGNMENT = 32  # where the data begins, in bytes

# the header's scalar value types, as struct letters; 8 is a string, 9 an array
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_SCALARS |= {10: "Q", 11: "q", 12: "d"}

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_OTHER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


class _Header:
    """Reads the fields of a GGUF header one after the other."""

    def __init__(self, stream):
        self.stream = stream

    def number(self, letter: str):
        size = struct.calcsize("<" + letter)
        return struct.unpack("<" + letter, self.take(size))[0]

    def take(self, size: int) -> bytes:
        data = self.stream.read(size)
        if len(data) != size:
            raise EOFError
        return data

    def string(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def skip_value(self, value_type: int) -> None:
        if value_type == 8:
            self.string()
        elif value_type == 9:
            item_type, count = self.number("I"), self.number("Q")
            if item_type in _SCALARS:
                self.take(count * struct.calcsize("<" + _SCALARS[item_type]))
            else:
                for _ in range(count):
                    self.skip_value(item_type)
        else:
            self.number(_SCALARS[value_type])


@dataclass(frozen=True)
class Tensor:
    """One tensor's entry in the header; `offset` counts from where the data begins."""

    stored_as: str
    num_weights: int
    offset: int


def tensors(path: Path) -> tuple[dict[str, Tensor], int]:
    """The header's tensors by name, and the byte at which their data begins."""
    with open(path, "rb") as stream:
        header = _Header(stream)
        try:
            if header.take(4) != MAGIC:
                raise ModelError(
                    f"{path.name} is not a GGUF file. Way out: fetch it again"
                )
            version = header.number("I")
            if version not in (2, 3):
                raise ModelError(
                    f"{path.name}: GGUF version {version} is not supported (2 and 3 "
                    "are). Way out: the same model in MLX format from the hub"
                )
            num_tensors, num_values = header.number("Q"), header.number("Q")
            for _ in range(num_values):
                header.string()
                header.skip_value(header.number("I"))
            found = {}
            for _ in range(num_tensors):
                name = header.string()
                shape = [header.number("Q") for _ in range(header.number("I"))]
                number, offset = header.number("I"), header.number("Q")
                stored_as = TYPE_NAMES.get(number, f"type {number}")
                found[name] = Tensor(stored_as, math.prod(shape), offset)
        except (EOFError, KeyError, OverflowError, MemoryError):
            raise _damaged(path) from None
        return found, -(-stream.tell() // ALIGNMENT) * ALIGNMENT


def _damaged(path: Path) -> ModelError:
    return ModelError(
        f"{path.name}: the GGUF file is cut short or damaged. "
        "Way out: fetch the file again"
    )


def read(path: Path) -> tuple[dict, dict, str]:
    """Arrays under mlx-lm's names, the file's metadata, and how it is stored in words.

    Raises:
        ModelError: another architecture, a tensor this reader does not know, or a
            quantisation that MLX cannot keep as it is.
    """
    path = Path(path)
    found, begin = tensors(path)
    refused = sorted({t.stored_as for t in found.values()} - set(SUPPORTED_TYPES))
    if refused:
        raise ModelError(
            f"{path.name}: unsupported GGUF quantisation {', '.join(refused)} "
            f"(supported: {', '.join(SUPPORTED_TYPES)}). Way out: a Q4_1 or Q8_0 file, "
            "or the same model in MLX format from the hub"
        )
    for tensor in found.values():  # MLX maps the file and would read past its end
        num_bytes, num_weights = SUPPORTED_TYPES[tensor.stored_as]
        size = tensor.num_weights // num_weights * num_bytes
        if begin + tensor.offset + size > path.stat().st_size:
            raise _damaged(path)
    arrays, metadata = mx.load(str(path), format="gguf", return_metadata=True)
    architecture = metadata.get("general.architecture")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if architecture != "llama" or scaling != "none":
        what = f"rope scaling {scaling!r}" if architecture == "llama" else architecture
        raise ModelError(
            f"{path.name}: GGUF architecture {what} is not supported (plain llama is). "
            "Way out: the same model in MLX format from the hub"
        )
    weights = {_mlx_name(name, path): array for name, array in arrays.items()}
    return weights, metadata, _in_words(found)


def _in_words(found: dict[str, Tensor]) -> str:
    """ "4-bit (GGUF Q4_1, some Q8_0; groups of 32)", most weights first."""
    weights = Counter()
    for tensor in found.values():
        weights[tensor.stored_as] += tensor.num_weights
    packed = [name for name, _ in weights.most_common() if name.startswith("Q")]
    if not packed:
        return weights.most_common(1)[0][0]
    others = "".join(f", some {name}" for name in packed[1:])
    return f"{packed[0][1]}-bit (GGUF {packed[0]}{others}; groups of {GROUP_SIZE})"


def _mlx_name(name: str, path: Path) -> str:
    stem, _, part = name.rpartition(".")  # part: weight, scales or biases
    if stem in _OTHER_NAMES:
        return f"{_OTHER_NAMES[stem]}.{part}"
    pieces = stem.split(".")
    if len(pieces) == 3 and pieces[0] == "blk" and pieces[2] in _LAYER_NAMES:
        return f"model.layers.{pieces[1]}.{_LAYER_NAMES[pieces[2]]}.{part}"
    raise ModelError(
        f"{path.name}: tensor {name!r} is not part of a plain Llama. "
        "Way out: the same model in MLX format from the hub"
    )


def llama_args(metadata: dict, *, tied: bool) -> llama.ModelArgs:
    """mlx-lm's configuration of the model that the metadata describes."""

    def value(key: str, kind=int):
        return kind(metadata[f"llama.{key}"].item())

    return llama.ModelArgs(
        model_type="llama",
        hidden_size=value("embedding_length"),
        num_hidden_layers=value("block_count"),
        intermediate_size=value("feed_forward_length"),
        num_attention_heads=value("attention.head_count"),
        num_key_value_heads=value("attention.head_count_kv"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon", float),
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        max_position_embeddings=value("context_length"),
        rope_theta=value("rope.freq_base", float),
        rope_traditional=True,
        tie_word_embeddings=tied,
    )


def build_llama(
    weights: dict, metadata: dict, *, dtype: mx.Dtype, packed: bool
) -> llama.Model:
    """The model, with activations in `dtype`; `packed` keeps quantised weights so."""
    args = llama_args(metadata, tied="lm_head.weight" not in weights)
    model = llama.Model(args)
    if not packed:
        weights = expand(weights, dtype)
    bits = {
        name.removesuffix(".scales"): _bits(weights, name.removesuffix(".scales"))
        for name in weights
        if name.endswith(".scales")
    }

    def how(name, module):
        return name in bits and {"group_size": GROUP_SIZE, "bits": bits[name]}

    if bits:
        nn.quantize(model, class_predicate=how)
    weights = {
        name: array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array
        for name, array in weights.items()
    }
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    mx.eval(model.parameters())
    return model


def expand(weights: dict, dtype: mx.Dtype) -> dict:
    """The same weights with every quantised one written out in `dtype`."""
    expanded = {}
    for name, array in weights.items():
        stem, _, part = name.rpartition(".")
        if part in ("scales", "biases"):
            continue
        if f"{stem}.scales" in weights:
            scales = weights[f"{stem}.scales"].astype(dtype)
            biases = weights[f"{stem}.biases"].astype(dtype)
            array = mx.dequantize(
                array, scales, biases, GROUP_SIZE, _bits(weights, stem)
            )
        expanded[name] = array
    return expanded


def _bits(weights: dict, stem: str) -> int:
    # packed into uint32: columns * 32 / bits = groups * GROUP_SIZE
    columns = weights[f"{stem}.weight"].shape[-1]
    groups = weights[f"{stem}.scales"].shape[-1]
    return columns * 32 // (groups * GROUP_SIZE)
