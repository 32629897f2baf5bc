"""Profiles on disk: used again for the same model on the same machine, never else.

A profile lies in the user's cache folder with what it depends on: weights,
quantisation, device, chip, BLAS and its threads, versions. The key is part of the file
and compared whole, so a file that was copied, renamed, cut short or written by a newer
selfspec is not used; the reason is kept and the profile measured anew. Knows keys as
plain strings, and no models.

    key = profile_key(loaded.source.to_json())
    found = load_profile(key)                    # Found(profile or None, reason)
    profile = profile_for(key, lambda: measure_profile(loaded.model))
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from selfspec.costs.profile import CostProfile

SCHEMA = 1
OF_THE_MODEL = ("sha256", "architecture", "quantisation")
NOTHING = "nothing was measured yet"


class Found(NamedTuple):
    """A profile that may be used, or None and why there is none."""

    profile: CostProfile | None
    reason: str


def profile_key(source: Mapping[str, Any], **more: Any) -> dict[str, str]:
    """What a profile depends on, as plain strings.

    Args:
        source: a ModelSource as JSON: sha256, architecture and quantisation count.
        more: anything else the profile depends on, e.g. the context lengths asked for.
    """
    from selfspec import blas
    from selfspec.models import device

    on_cpu = device.kind() == "cpu"
    return {
        **{name: str(source[name]) for name in OF_THE_MODEL},
        "device": device.kind(),
        "chip": device.description(),
        "cores": str(os.cpu_count()),
        "blas": blas.info()["name"] if on_cpu else "",
        "blas_threads": str(blas.threads()) if on_cpu else "",
        "mlx": version("mlx"),
        "mlx_lm": version("mlx-lm"),
        **{name: str(value) for name, value in more.items()},
    }


def profile_path(key: Mapping[str, str]) -> Path:
    """The file of a key, below the user's cache folder (`SELFSPEC_CACHE`)."""
    from selfspec.models.embedded import cache_folder

    text = json.dumps(dict(key), sort_keys=True)
    return cache_folder() / "profiles" / f"{_sha256(text)[:24]}.json"


def save_profile(key: Mapping[str, str], profile: CostProfile) -> Path:
    """Write a profile beside its key, in one step; a reader never sees half a file."""
    path = profile_path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"key": dict(key), "profile": profile.to_json()}
    text = json.dumps(
        {
            "schema": SCHEMA,
            "sha256": _sha256(_canonical(body)),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **body,
        },
        indent=1,
    )
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w") as out:
            out.write(text)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def load_profile(key: Mapping[str, str]) -> Found:
    """The stored profile of exactly this key; no file of any content raises."""
    path = profile_path(key)
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        return Found(None, NOTHING)
    except (OSError, ValueError):
        return Found(None, f"{path.name} cannot be read: cut short, or no JSON")
    if not isinstance(stored, dict) or not {"schema", "key", "profile"} <= set(stored):
        return Found(None, f"{path.name} is no profile")
    if stored["schema"] != SCHEMA:
        return Found(None, f"{path.name} has schema {stored['schema']!r}, not {SCHEMA}")
    if stored["key"] != dict(key):
        differs = _differing(stored["key"], key)
        return Found(None, f"{path.name} was measured elsewhere: another {differs}")
    body = {"key": stored["key"], "profile": stored["profile"]}
    if stored.get("sha256") != _sha256(_canonical(body)):
        return Found(None, f"{path.name} was changed after it was written")
    try:
        return Found(CostProfile.from_json(stored["profile"]), "")
    except (ValueError, TypeError) as error:
        return Found(None, f"{path.name}: {error}")


def profile_for(
    key: Mapping[str, str],
    measure: Callable[[], CostProfile],
    *,
    told: Callable[[str], None] = lambda reason: None,
) -> CostProfile:
    """The stored profile, or one measured now and stored.

    Args:
        measure: called if there is none that may be used.
        told: called with the reason before measuring.
    """
    found = load_profile(key)
    if found.profile is not None:
        return found.profile
    told(found.reason)
    profile = measure()
    try:
        save_profile(key, profile)
    except OSError as error:  # a full or read-only disk costs the next run its time
        told(f"the profile was not kept: {error.strerror}")
    return profile


def _differing(stored: Any, key: Mapping[str, str]) -> str:
    if not isinstance(stored, dict):
        return "key"
    return ", ".join(sorted(k for k in {*stored, *key} if stored.get(k) != key.get(k)))


def _canonical(body: dict) -> str:
    return json.dumps(body, sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
