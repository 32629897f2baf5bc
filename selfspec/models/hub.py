"""A model of the Hugging Face hub, as a folder on this machine.

huggingface_hub fetches, resumes and caches; this file asks it only for what a model is
made of, looks at the disk first, and turns its errors into one line each. A model that
is there once loads without a network.

    folder = snapshot("mlx-community/Qwen3-4B-4bit")
    revision(folder)                  # the commit, 40 hex digits
"""

import re
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants, errors

from selfspec.models import memory
from selfspec.models.download import FULL_DISK, require_space
from selfspec.models.errors import ModelError
from selfspec.models.folder import PARTS, WEIGHTS, no_safetensors

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(name: str) -> bool:
    """Whether `name` has the form owner/name."""
    return bool(NAME.fullmatch(name)) and ".." not in name and "--" not in name


def snapshot(name: str) -> Path:
    """The folder of the model's newest commit, or offline of the one that is cached.

    Raises:
        ModelError: no such model, gated, no network, too little disk, no safetensors.
    """
    try:
        _look_first(name)
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=[*PARTS]))
    except ModelError:
        raise
    except Exception as error:
        try:
            cached = huggingface_hub.snapshot_download(
                name, allow_patterns=[*PARTS], local_files_only=True
            )
        except Exception:
            raise explain(error, name) from error
        return Path(cached)


def revision(folder: Path) -> str:
    """The commit that a folder of the hub's cache holds; "" for any other folder."""
    parts = folder.resolve().parts
    if len(parts) > 1 and parts[-2] == "snapshots":
        return parts[-1]
    return ""


def _look_first(name: str) -> None:
    """Refuse what has no safetensors, or fits no memory or disk, before the first byte."""
    info = huggingface_hub.HfApi().model_info(name, files_metadata=True)
    files = [entry.rfilename for entry in info.siblings]
    if not any(Path(file).match(WEIGHTS) for file in files):
        raise no_safetensors(name, files)
    weights = sum(
        entry.size or 0
        for entry in info.siblings
        if Path(entry.rfilename).match(WEIGHTS)
    )
    # the least that it takes; what a CPU makes of it is known once it is here
    memory.require(weights, name, expanded=False)
    needed = sum(
        entry.size or 0
        for entry in info.siblings
        if any(Path(entry.rfilename).match(pattern) for pattern in PARTS)
        and not _is_cached(name, entry.rfilename, info.sha)
    )
    folder = Path(constants.HF_HUB_CACHE).expanduser()
    while not folder.exists():
        folder = folder.parent
    require_space(folder, needed, name, variable="HF_HOME")


def _is_cached(name: str, filename: str, commit: str) -> bool:
    found = huggingface_hub.try_to_load_from_cache(name, filename, revision=commit)
    return isinstance(found, str)


def explain(error: Exception, name: str) -> ModelError:
    """huggingface_hub's error as one line with the way out."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return ModelError(
            f"{name} is gated: its owner wants a licence accepted first. Way out: "
            f"accept it on the model's page, https://huggingface.co/{name}, then run: "
            "hf auth login"
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return ModelError(
            f"{name} is neither a folder here nor a model on the hub, or it is "
            "private. Way out: check the spelling, or for a private model run: "
            "hf auth login"
        )
    if isinstance(error, errors.HFValidationError):
        return ModelError(
            f"{name!r} is not a valid hub name. Way out: owner/name, as on its page"
        )
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return ModelError(
            f"{name}: the disk of the hub's cache is full. Way out: free some space, "
            "or set HF_HOME to a folder on another disk"
        )
    if status is not None:
        return ModelError(
            f"{name}: the hub answered with error {status}. Way out: try again later"
        )
    return ModelError(
        f"{name} is not cached and the hub cannot be reached. Way out: connect once "
        "(it is kept for use offline), unset HF_HUB_OFFLINE, or pass a folder"
    )
