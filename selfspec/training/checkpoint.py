"""What a training needs to go on exactly: one file, replaced whole or not at all.

Weights that are trained, the optimiser's state, MLX's random state and what was noted
so far, with the configuration they belong to. The order of the data and the draws of
layer dropout are functions of seed and step, so the step is all there is to keep of
them. A checkpoint of another configuration is refused, naming what differs.

    save(path, step, arrays, configuration, facts)
    step, arrays, facts = load(path, configuration)
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from selfspec.training.errors import TrainingError

NAME = "checkpoint.safetensors"


def save(
    path: Path,
    step: int,
    arrays: Mapping[str, mx.array],
    configuration: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> None:
    """Replace the checkpoint.

    Raises:
        TrainingError: the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{os.getpid()}.tmp.safetensors")
    notes = {"step": step, "configuration": configuration, "facts": facts}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mx.save_safetensors(
            str(temporary), dict(arrays), metadata={"notes": json.dumps(notes)}
        )
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        raise TrainingError(
            f"cannot write {path}: {error}. Way out: free some disk space or make the "
            "folder writable, then run the same command again; it goes on from the "
            "checkpoint before"
        ) from None


def load(
    path: Path, configuration: Mapping[str, Any]
) -> tuple[int, dict[str, mx.array], dict[str, Any]] | None:
    """(step, arrays, facts) of a checkpoint; None where there is none.

    Raises:
        TrainingError: it cannot be read, or belongs to another configuration.
    """
    if not path.exists():
        return None
    try:
        arrays, metadata = mx.load(str(path), return_metadata=True)
        mx.eval(arrays)
        notes = json.loads(metadata["notes"])
        step, known, facts = notes["step"], notes["configuration"], notes["facts"]
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise TrainingError(
            f"{path} cannot be read ({str(error).splitlines()[0]}). "
            "Way out: delete it; the training then begins anew"
        ) from None
    differing = _differing(known, json.loads(json.dumps(configuration)))
    if differing:
        raise TrainingError(
            f"{path} was made with {differing}. Way out: another folder, or delete "
            "that one to begin anew"
        )
    return step, arrays, facts


def _differing(known: Mapping[str, Any], asked: Mapping[str, Any], path="") -> str:
    """The first thing that differs, in words; '' where nothing does."""
    for name in sorted({*known, *asked}):
        there, here = known.get(name, "nothing"), asked.get(name, "nothing")
        if isinstance(there, dict) and isinstance(here, dict):
            if found := _differing(there, here, f"{path}{name}."):
                return found
        elif there != here:
            return f"{path}{name} {there}, not {here}"
    return ""
