"""What a result needs beside it to be believed: machine, versions, code, command.

No host name, user name or absolute path is ever part of it.

    machine = provenance.machine()          # {"chip": "Apple M3", "memory_gb": 16, ...}
    provenance.machine_slug(machine)        # "apple-m3-16gb-metal"
"""

import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from selfspec import blas
from selfspec.models import device
from selfspec.study.results import slug

PACKAGE = Path(__file__).resolve().parents[1]


def machine() -> dict[str, Any]:
    """Chip, cores, memory, system, power source and MLX device of this machine."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return {
        "chip": _chip(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": _system(),
        "device": device.kind(),
        "power": _power(battery),
        "blas": blas.info()["name"] if device.kind() == "cpu" else "",
    }


def machine_slug(facts: dict[str, Any]) -> str:
    """The <machine> of results/<machine>: chip, cores where they tell, memory, device."""
    cores = "" if facts["chip"].startswith("Apple") else f"{facts['cores']}-cores"
    return slug(f"{facts['chip']} {cores} {facts['memory_gb']}gb {facts['device']}")


def collect(source, command: str) -> dict[str, Any]:
    """Everything that stands beside a run's rows.

    Args:
        source: the ModelSource of the model that was measured.
        command: the command that a reader types to get this run.
    """
    return {
        "machine": machine(),
        **code(),
        "model": source.to_json(),
        "command": command,
        "date": now(),
    }


def code() -> dict[str, Any]:
    """Versions, commit, whether there are changes to it, and a hash of the code."""
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("mlx", "mlx-lm", "selfspec")},
        },
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", "selfspec", "notebooks")),
        "code": code_hash(),
    }


def now() -> str:
    """The date and time of a result, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def code_hash() -> str:
    """SHA-256 over the package's source files: a resumed run must run the same code."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _chip() -> str:
    if sys.platform == "darwin":
        return _run("sysctl", "-n", "machdep.cpu.brand_string") or "Apple silicon"
    if device.kind() == "cuda":
        return device.description()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].split("@")[0]
                for noise in ("(R)", "(TM)", "CPU", "Processor"):
                    name = name.replace(noise, " ")
                return " ".join(name.split())
    except OSError:
        pass
    return platform.machine() or "unknown chip"


def _system() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    return f"{platform.system()} {platform.release().split('-')[0]}"


def _power(battery) -> str:
    if sys.platform == "darwin" and "lowpowermode 1" in " ".join(
        _run("pmset", "-g").split()
    ):
        return "low power mode"
    if battery is None:
        return "unknown"
    return "mains" if battery.power_plugged else "battery"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _git(*words: str) -> str:
    return _run("git", "-C", str(PACKAGE.parent), *words)


def _run(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
