"""A folder in mlx-lm's layout: checked whole, loaded by mlx-lm, given a checksum.

Weights come from safetensors only, and no code from a folder is ever run. What is
missing or cut short is found before anything is loaded. Knows nothing of hubs.

    check(folder, "my-model")
    model, tokenizer, config = load_folder(folder, "my-model")
    folder_sha256(folder)
"""

import hashlib
import json
import re
import struct
from pathlib import Path

from mlx_lm.utils import load_model, load_tokenizer

from selfspec.models import device, memory
from selfspec.models.download import sha256
from selfspec.models.errors import ModelError, UnsupportedModelError

WEIGHTS = "model*.safetensors"  # the names that mlx-lm reads
# What a model is made of. Not "*.py": no code is fetched, none is run.
PARTS = ("*.json", WEIGHTS, "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")
CODE_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def check(folder: Path, name: str) -> None:
    """Refuse a folder that is not a whole model.

    Raises:
        ModelError: no config.json, no safetensors, a missing or truncated file.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"folder {name!r} has no config.json, so it is not a model. Way out: name "
            "a folder in mlx-lm's layout; if another model was meant, rename this "
            "folder or call from elsewhere"
        )
    try:
        json.loads((folder / "config.json").read_text())["model_type"]
    except (ValueError, KeyError, TypeError):
        raise ModelError(
            f"{name}: config.json is damaged or names no model_type. "
            "Way out: fetch the model again"
        ) from None
    files = sorted(folder.glob(WEIGHTS))
    missing = [part for part in _listed(folder) if not (folder / part).exists()]
    if missing:
        raise ModelError(
            f"{name}: {len(missing)} weight file(s) missing, the first is "
            f"{missing[0]}. Way out: fetch the model again"
        )
    if not files:
        raise no_safetensors(name, [path.name for path in folder.iterdir()])
    for path in files:
        _check_whole(path, name)


def no_safetensors(name: str, filenames: list[str]) -> ModelError:
    """The refusal of a model without `model*.safetensors`, by what it has instead."""
    others = [f for f in filenames if any(Path(f).match(p) for p in CODE_WEIGHTS)]
    why = f"only {others[0]}, which can run code when read" if others else "none"
    return ModelError(
        f"{name}: weights are read from model*.safetensors and there is {why}. "
        "Way out: a safetensors version of the model, or convert it with mlx_lm.convert"
    )


def _listed(folder: Path) -> list[str]:
    """Weight files that the index says exist."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError):
        return []


def _check_whole(path: Path, name: str) -> None:
    """A safetensors file must be as long as its own header says."""
    size = path.stat().st_size
    try:
        ends = [entry["data_offsets"][1] for entry in memory.header(path).values()]
        with open(path, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
        whole = 8 + length + max(ends, default=0)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        whole = None
    if whole != size:
        raise ModelError(
            f"{name}: {path.name} is truncated or not a safetensors file "
            f"({size} bytes). Way out: fetch the model again (with git: git lfs pull)"
        )


def load_folder(folder: Path, name: str, *, packed: bool | None = None):
    """Model (weights not evaluated yet), tokenizer and config, by mlx-lm.

    Args:
        packed: as of `selfspec.load`; only to tell what memory it takes.

    Raises:
        ModelError: an architecture mlx-lm does not know, weights that do not fit the
            config or the memory, a model that wants to run its own code.
    """
    check(folder, name)
    expanded = packed is False or (packed is None and device.kind() == "cpu")
    config = json.loads((folder / "config.json").read_text())
    weights = memory.needed(folder, config, expanded=expanded)
    memory.require(weights, name, expanded=expanded)
    try:
        model, config = load_model(folder, lazy=True)
    except Exception as error:
        raise _explain(error, folder, name) from error
    try:
        # False, not None: None would ask on the terminal whether to run code.
        tokenizer = load_tokenizer(
            folder,
            {"trust_remote_code": False},
            eos_token_ids=config.get("eos_token_id"),
        )
    except Exception as error:
        raise ModelError(
            f"{name}: the tokenizer cannot be loaded ({_line(error, folder, name)}). "
            "Way out: a version of the model with a tokenizer.json"
        ) from error
    return model, tokenizer, config


def _explain(error: Exception, folder: Path, name: str) -> ModelError:
    text = _line(error, folder, name)
    if match := re.match(r"Model type (\S+) not supported", text):
        return UnsupportedModelError(
            f"{name}: mlx-lm does not know the architecture {match[1]!r}. Way out: a "
            "newer mlx-lm (pip install -U mlx-lm), or another model"
        )
    if "custom module" in text:
        return UnsupportedModelError(
            f"{name} wants to run its own code, which selfspec never does. "
            "Way out: a version whose architecture mlx-lm knows"
        )
    return ModelError(
        f"{name} cannot be loaded by mlx-lm ({text}). "
        "Way out: a version of the model converted for mlx-lm"
    )


def _line(error: Exception, folder: Path, name: str) -> str:
    """The error's first line, without the place where the model lies."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].replace(str(folder), name).rstrip(" .:")[:200]


def folder_sha256(folder: Path) -> str:
    """One checksum over names and contents of all files a model is made of."""
    digest = hashlib.sha256()
    files = {path for pattern in PARTS for path in folder.glob(pattern)}
    for path in sorted(files, key=lambda path: path.name):
        if path.is_file():
            digest.update(f"{path.name} {_file_sha256(path)}\n".encode())
    return digest.hexdigest()


def _file_sha256(path: Path) -> str:
    # The hub's cache names a big file's content by its SHA-256 and links to it.
    real = path.resolve()
    if real.parent.name == "blobs" and re.fullmatch("[0-9a-f]{64}", real.name):
        return real.name
    return sha256(path)
