"""Readings on disk: shards that are written once, within a budget, and go on.

A shard is a function of its number and the seed, so a run that was killed goes on with
the next one. Streams are kept in half precision. What was reached and what it took
stands in each shard, so the budget holds over several sittings.

    shards = Shards(folder, configuration)
    shards.add(readings, seconds)
    shards.tokens, shards.nbytes, shards.seconds
    texts = shards.readings()
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from selfspec.training.bridge_text import Reading
from selfspec.training.errors import TrainingError

HALF = mx.float16


class Shards:
    """The shards of a folder, in order.

    Args:
        configuration: what the text depends on; a folder of another one is refused.

    Raises:
        TrainingError: a shard that cannot be read or belongs to something else.
    """

    def __init__(self, folder: Path, configuration: Mapping[str, Any]):
        self.folder = folder
        self.configuration = json.loads(json.dumps(dict(configuration)))
        self.paths: list[Path] = []
        self.tokens = 0
        self.nbytes = 0
        self.seconds = 0.0
        while (path := self._path(len(self.paths))).exists():
            self._count(path, _notes(path))

    def add(self, readings: Sequence[Reading], seconds: float) -> Path:
        """Write the next shard.

        Raises:
            TrainingError: the disk is full or the folder cannot be written.
        """
        path = self._path(len(self.paths))
        lengths = [len(r.ids) for r in readings]
        arrays = {
            "ids": mx.array([token for r in readings for token in r.ids], mx.int32),
            "lengths": mx.array(lengths, mx.int32),
            "starts": mx.array([r.start for r in readings], mx.int32),
            "early": mx.concatenate([_half(r.early) for r in readings]),
            "late": mx.concatenate([_half(r.late) for r in readings]),
        }
        notes = {
            "configuration": self.configuration,
            "seconds": seconds,
            "tokens": sum(lengths) - len(lengths),
        }
        temporary = path.with_name(f".{os.getpid()}.tmp.safetensors")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            mx.save_safetensors(
                str(temporary), arrays, metadata={"notes": json.dumps(notes)}
            )
            os.replace(temporary, path)
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise TrainingError(
                f"cannot write {path.name}: {error}. Way out: free some disk space, then "
                "run the same command again; it goes on after the last whole shard"
            ) from None
        self._count(path, notes)
        return path

    def readings(self) -> list[Reading]:
        """Every text of every shard."""
        found = []
        for path in self.paths:
            arrays = mx.load(str(path))
            ids = np.array(arrays["ids"])
            at = row = 0
            starts = arrays["starts"].tolist()
            for length, start in zip(arrays["lengths"].tolist(), starts, strict=True):
                rows = slice(row, row + length - 1)
                text = tuple(ids[at : at + length].tolist())
                streams = arrays["early"][rows], arrays["late"][rows]
                found.append(Reading(text, start, *streams))
                at, row = at + length, row + length - 1
        return found

    def digest(self) -> str:
        """Tells one set of texts from another."""
        digest = hashlib.sha256()
        for path in self.paths:
            digest.update(np.array(mx.load(str(path))["ids"]).tobytes())
        return digest.hexdigest()[:16]

    def _path(self, number: int) -> Path:
        return self.folder / f"shard-{number:04d}.safetensors"

    def _count(self, path: Path, notes: Mapping[str, Any]) -> None:
        if notes["configuration"] != self.configuration:
            raise TrainingError(
                f"{path.name} was written for another model, exit or text. "
                "Way out: another folder, or delete that one to begin anew"
            )
        self.paths.append(path)
        self.tokens += notes["tokens"]
        self.seconds += notes["seconds"]
        self.nbytes += path.stat().st_size


def _half(stream: mx.array) -> mx.array:
    """In half precision; what is too large for it is as large as it gets."""
    return mx.clip(stream, -65504, 65504).astype(HALF)


def _notes(path: Path) -> dict[str, Any]:
    try:
        _, metadata = mx.load(str(path), return_metadata=True)
        return json.loads(metadata["notes"])
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise TrainingError(
            f"{path.name} cannot be read ({str(error).splitlines()[0]}). "
            "Way out: delete it and those after it; they are written anew"
        ) from None
