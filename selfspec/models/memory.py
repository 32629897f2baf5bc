"""Whether a model fits into memory, told before anything of it is loaded.

Weights are counted from the headers of their files. On a CPU they are written out in
float32, so a quantised model takes several times its size there.

    memory.require(memory.needed(folder, config), "owner/name")
"""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfspec.models import device
from selfspec.models.errors import ModelError

BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2}
BYTES |= {"BF16": 2, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}
FLOAT32 = 4
WORD = 32  # bits of the words that quantised weights are packed in
ROOM = 1.1  # for the cache of a few thousand tokens, and for what a pass needs
GIGA = 1e9
# What is suggested instead: parameters in billions, the largest first.
SMALLER = (
    ("mlx-community/Meta-Llama-3.1-8B-Instruct-4bit", 8.03),
    ("mlx-community/Qwen3-4B-4bit", 4.02),
    ("smollm2-135m", 0.135),
)
STORED_BYTES = 0.5625  # a weight of 4 bits with its share of scales


def header(path: Path) -> dict[str, Any]:
    """What a safetensors file says of its tensors, by name.

    Raises:
        ValueError: it is not a safetensors file.
    """
    try:
        with open(path, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > path.stat().st_size:
                raise ValueError(f"{path.name} is shorter than its header")
            tensors = json.loads(stream.read(length))
        tensors.pop("__metadata__", None)
    except (struct.error, AttributeError, TypeError) as error:
        raise ValueError(f"{path.name} is not a safetensors file") from error
    return tensors


def needed(folder: Path, config: Mapping[str, Any], *, expanded: bool) -> int:
    """Bytes that the weights of a folder take in memory.

    Args:
        config: of the model; says how many bits a packed weight has.
        expanded: they are written out in float32.
    """
    total = 0
    for path in sorted(folder.glob("model*.safetensors")):
        tensors = header(path)
        for name, tensor in tensors.items():
            size = math.prod(tensor.get("shape", ()))
            if not expanded:
                total += size * BYTES.get(tensor.get("dtype"), 1)
                continue
            stem, _, part = name.rpartition(".")
            packed = f"{stem}.scales" in tensors
            if packed and part in ("scales", "biases"):
                continue  # they go into the weights that are written out
            if packed and part == "weight":
                size *= WORD // _bits(config, stem)
            total += size * FLOAT32
    return total


def require(num_bytes: float, name: str, *, expanded: bool) -> None:
    """Refuse what does not fit, with what it would need and what does fit.

    Raises:
        ModelError: more than this machine can hold.
    """
    limit = device.memory_limit()
    if num_bytes * ROOM <= limit:
        return
    each = FLOAT32 if expanded else STORED_BYTES
    fits = [n for n, billions in SMALLER if billions * GIGA * each * ROOM <= limit]
    smaller = f"a smaller model, such as {fits[0]}" if fits else "a smaller model"
    if not expanded:
        smaller += ", or a version with fewer bits a weight"
    how = ", written out in float32 on a CPU" if expanded else ""
    raise ModelError(
        f"{name} needs about {num_bytes * ROOM / GIGA:.3g} GB of memory{how}, and "
        f"{limit / GIGA:.3g} GB can be had here. Way out: {smaller}"
    )


def _bits(config: Mapping[str, Any], stem: str) -> int:
    """Bits of a packed weight: its own, or the model's."""
    settings = config.get("quantization") or config.get("quantization_config") or {}
    own = settings.get(stem)
    bits = (own if isinstance(own, dict) else settings).get("bits", 4)
    return bits if isinstance(bits, int) and 1 <= bits <= WORD else 4
