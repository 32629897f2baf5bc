"""The one file that knows the MLX device.

Everything else asks here whether it runs on Apple's GPU, on CUDA or on a CPU, waits for
the device here and reads its memory here. Knows nothing of models.

    from selfspec.models import device
    device.kind()            # "cpu", "metal" or "cuda"
    device.synchronize()     # before a clock is read
"""

import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import mlx.core as mx
import psutil

CONTAINER = Path("/sys/fs/cgroup/memory.max")


def kind() -> str:
    """Where MLX computes by default: "metal", "cuda" or "cpu"."""
    if mx.default_device().type != mx.DeviceType.gpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def synchronize() -> None:
    """Wait until everything that was asked of the device is done."""
    mx.synchronize()


def peak_memory() -> int:
    """Most bytes MLX held since the last `reset_peak_memory` (whole process)."""
    return int(mx.get_peak_memory())


def memory_limit() -> int:
    """Bytes that a model may take: of the GPU where there is one, of this container."""
    limits = [psutil.virtual_memory().total]
    if kind() == "metal":
        told = mx.device_info().get("max_recommended_working_set_size")
        limits += [int(told)] if told else []
    try:
        limits.append(int(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return min(limits)


def reset_peak_memory() -> None:
    mx.reset_peak_memory()


def clear_cache() -> None:
    """Give MLX's cached buffers back, so that one run does not warm the next."""
    mx.clear_cache()


def description() -> str:
    """The chip's name as its maker gives it, e.g. "Apple M3 Max"."""
    if kind() == "cpu":
        return _cpu_name()
    info = mx.device_info()
    return str(info.get("device_name") or info.get("architecture") or kind())


@cache
def _cpu_name() -> str:
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True)
        return answer.stdout.strip() or platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].split(":", 1)[1].strip() if names else platform.machine()
