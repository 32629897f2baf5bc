"""Which BLAS multiplies on Linux, and with how many threads.

MLX's CPU wheel carries the reference BLAS: one thread, no blocking, and a pass over m
rows costs m times one row, so no speculation can win. A BLAS that is loaded with global
symbols before `mlx.core` takes its place. This file knows nothing of models; macOS uses
Accelerate and none of this.

    from selfspec import blas
    blas.load()          # before the first `import mlx.core`
    blas.info()          # {"name": "OpenBLAS 0.3.21 ...", "threads": 2}
"""

import ctypes
import ctypes.util
import os
import sys

ADVICE = (
    "OpenBLAS was not found: MLX runs on its reference BLAS, several times slower, and "
    "speculation cannot win. Way out: apt install libopenblas0-pthread"
)
LATE = (
    "mlx was imported before selfspec: it keeps its reference BLAS. "
    "Way out: import selfspec first"
)

_library = None
_problem = ""


def load() -> None:
    """Load OpenBLAS for MLX, once; a no-op outside Linux and where it is missing.

    `SELFSPEC_BLAS` names another library file, or `none` to leave MLX as it is.
    """
    global _library, _problem
    if _library is not None or not sys.platform.startswith("linux"):
        return
    wanted = os.environ.get("SELFSPEC_BLAS", "")
    if wanted == "none":
        return
    if "mlx.core" in sys.modules:
        _problem = LATE
        return
    name = wanted or ctypes.util.find_library("openblas") or "libopenblas.so.0"
    try:
        _library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        _problem = ""
    except OSError:
        _problem = ADVICE


def problem() -> str:
    """One line of advice when MLX runs on its slow BLAS on Linux, else ''."""
    return _problem


def set_threads(count: int) -> None:
    """Use `count` BLAS threads from now on; nothing happens without OpenBLAS."""
    if count < 1:
        raise ValueError(f"threads must be at least 1, got {count}")
    if _library is not None:
        _library.openblas_set_num_threads(int(count))


def threads() -> int:
    """BLAS threads in use; 1 for MLX's reference BLAS, 0 where MLX runs on a GPU."""
    if _library is not None:
        return int(_library.openblas_get_num_threads())
    return 1 if sys.platform.startswith("linux") else 0


def info() -> dict:
    """Name and thread count, for provenance and for keying cost profiles."""
    if not sys.platform.startswith("linux"):
        return {"name": "Accelerate", "threads": threads()}
    if _library is None:
        return {"name": "reference", "threads": 1}
    _library.openblas_get_config.restype = ctypes.c_char_p
    config = _library.openblas_get_config().decode()
    return {"name": " ".join(config.split()[:2]), "threads": threads()}
