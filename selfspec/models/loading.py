"""`load`: a model by alias, hub name or folder, ready to decode.

An alias is the embedded model, a hub name or a folder is loaded by mlx-lm itself. On a
CPU, weights are written out in float32, where MLX's half precision and quantised
kernels are far slower; on a GPU they stay as they are stored.

    loaded = load("smollm2-135m")
    loaded.model, loaded.tokenizer, loaded.source
    source_of(loaded.model)                    # the source again, from the model alone
"""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import get_total_parameters

from selfspec.models import device, download, embedded, folder, gguf, hub, precision
from selfspec.models import tokenizer as tokenizers
from selfspec.models.errors import ModelError
from selfspec.models.remembered import Remembered
from selfspec.models.source import ModelSource

EXPANDED = ", expanded to float32"
FLOAT32_SCALES = ", kept packed with float32 scales"

_sources = Remembered()


@dataclass(frozen=True)
class Loaded:
    """A model, its tokenizer (mlx-lm's wrapper) and where it came from."""

    model: Any
    tokenizer: Any
    source: ModelSource


def load(name: str | os.PathLike, *, packed: bool | None = None) -> Loaded:
    """Load a model.

    A folder wins over an alias or a hub name that is spelled the same.

    Args:
        name: `smollm2-135m`, a hub name (`owner/name`), a folder in mlx-lm's layout,
            or a GGUF file of SmolLM's kind.
        packed: keep quantised weights as they are stored (True) or expand them to
            float32 (False). By default they are kept on a GPU and expanded on a CPU.

    Raises:
        ModelError: one line that names the thing and the way out.
    """
    name = os.fspath(name)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _load_folder(path, Path(os.path.abspath(path)).name, "folder", packed)
    if name in embedded.ALIASES:
        model = embedded.ALIASES[name]
        revision = model.wheel.requirement
        file = embedded.cached_file(model)
        return _load_gguf(file, name, "embedded", revision, model.sha256, packed)
    if name and path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{path.name} is a file. Way out: name the model's folder")
        return _load_gguf(path, path.name, "file", "", download.sha256(path), packed)
    if not hub.is_hub_name(name):
        raise _unknown(name)
    return _load_folder(hub.snapshot(name), name, "hub", packed)


def source_of(model) -> ModelSource | None:
    """The source of a model that `load` made; None for any other.

    None too for a copy, and for one that was changed since so that its size is another
    one: quantised, layers taken out.
    """
    source = _sources.get(model)
    if source is None or _size(model) != (source.num_layers, source.num_bytes):
        return None
    return source


def _unknown(name: str) -> ModelError:
    known = ", ".join(embedded.ALIASES)
    close = difflib.get_close_matches(name.lower(), embedded.ALIASES, n=1)
    hint = f"did you mean {close[0]}?" if close else "check the spelling"
    return ModelError(
        f"{name!r} is no model: neither {known}, nor a folder that exists, nor a hub "
        f"name (owner/name). Way out: {hint}"
    )


def _load_gguf(
    path: Path, name: str, kind: str, revision: str, sha256: str, packed: bool | None
) -> Loaded:
    weights, metadata, how = gguf.read(path)
    on_cpu = device.kind() == "cpu"
    packed = not on_cpu if packed is None else packed
    # Quantised weights with half-precision activations are 13 to 40 times slower on
    # a CPU, so packed weights get float32 scales and activations there.
    dtype = mx.float16 if packed and not on_cpu else mx.float32
    model = gguf.build_llama(weights, metadata, dtype=dtype, packed=packed)
    if not packed:
        how += EXPANDED
    elif on_cpu:
        how += FLOAT32_SCALES
    source = _source(model, name, kind, revision, sha256, "llama", how)
    return Loaded(model, tokenizers.from_gguf(metadata), source)


def _load_folder(path: Path, name: str, kind: str, packed: bool | None) -> Loaded:
    model, tokenizer, config = folder.load_folder(path, name, packed=packed)
    how = precision.stored_as(model, config)
    quantised = precision.is_quantised(model)
    if packed and not quantised:
        raise ModelError(
            f"{name} is stored as {how}, so there is nothing packed to keep. "
            "Way out: leave packed out, or name a quantised version of the model"
        )
    on_cpu = device.kind() == "cpu"
    if packed and on_cpu:
        precision.float32_scales(model)
        how += FLOAT32_SCALES
    elif on_cpu or (quantised and packed is False):
        precision.expand(model, name)
        how += "" if how == "float32" else EXPANDED
    try:
        mx.eval(model.parameters())
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"{name}: the weights cannot be read ({str(error).splitlines()[0]}). "
            "Way out: fetch the model again, or a smaller one if memory is short"
        ) from error
    revision = hub.revision(path) if kind == "hub" else ""
    sha256 = folder.folder_sha256(path)
    architecture = config["model_type"]
    source = _source(model, name, kind, revision, sha256, architecture, how)
    return Loaded(model, tokenizer, source)


def _source(model, name, kind, revision, sha256, architecture, how) -> ModelSource:
    num_layers, num_bytes = _size(model)
    source = ModelSource(
        name=name,
        kind=kind,
        revision=revision,
        sha256=sha256,
        architecture=architecture,
        quantisation=how,
        num_layers=num_layers,
        num_parameters=int(get_total_parameters(model)),
        num_bytes=num_bytes,
    )
    _sources[model] = source
    return source


def _size(model) -> tuple[int, int]:
    """Layers, and bytes of all weights."""
    return len(model.layers), sum(
        array.nbytes for _, array in tree_flatten(model.parameters())
    )
