"""OpenBLAS on Linux: loaded before MLX, one line of advice when it is not."""

import os
import subprocess
import sys

import pytest

LINUX = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="macOS uses Accelerate"
)


def ask(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@LINUX
def test_it_is_loaded_and_named_or_advised():
    out = ask(
        "from selfspec import blas; print(blas.info()['name'], '|', blas.problem())"
    )
    name, problem = (part.strip() for part in out.split("|"))
    if name.startswith("OpenBLAS"):
        assert problem == ""
    else:
        assert "Way out: apt install libopenblas0-pthread" in problem


@LINUX
def test_a_missing_library_gives_one_line_and_the_reference_blas():
    out = ask(
        "from selfspec import blas; print(blas.info()); print(blas.problem())",
        SELFSPEC_BLAS="/nonexistent/libopenblas.so",
    )
    info, problem = out.splitlines()
    assert info == "{'name': 'reference', 'threads': 1}"
    assert "Way out: apt install libopenblas0-pthread" in problem


@LINUX
def test_mlx_imported_first_is_noticed():
    out = ask(
        "import mlx.core; from selfspec import blas; print(blas.problem())",
    )
    assert "import selfspec first" in out


@LINUX
def test_the_thread_count_is_set_at_run_time():
    code = (
        "from selfspec import blas\n"
        "blas.set_threads(2); two = blas.threads()\n"
        "blas.set_threads(1); print(two, blas.threads(), blas.info()['name'])"
    )
    two, one, name, *_ = ask(code).split()
    if name == "OpenBLAS":
        assert (two, one) == ("2", "1")
    else:
        assert (two, one) == ("1", "1")


@LINUX
def test_mlx_multiplies_with_the_library_that_was_loaded():
    """The symbols MLX binds come from OpenBLAS: its call counter is its thread count,
    so a product computed after set_threads must be right at one and two threads, and
    the library must be mapped in the process."""
    code = (
        "from selfspec import blas\n"
        "import mlx.core as mx\n"
        "a = mx.arange(4096, dtype=mx.float32).reshape(64, 64) / 4096\n"
        "out = []\n"
        "for t in (1, 2):\n"
        "    blas.set_threads(t); out.append(mx.sum(a @ a.T).item())\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(out[0] == out[1] or abs(out[0] / out[1] - 1) < 1e-5,"
        " 'openblas' in maps, blas.info()['name'])"
    )
    same, mapped, name, *_ = ask(code).split()
    assert same == "True"
    assert (mapped == "True") == (name == "OpenBLAS")


def test_zero_threads_are_refused():
    from selfspec import blas

    with pytest.raises(ValueError, match="at least 1"):
        blas.set_threads(0)


def test_importing_selfspec_does_not_import_mlx():
    assert ask("import sys, selfspec; print('mlx.core' in sys.modules)") == "False"


def test_public_names_are_all_there():
    import selfspec

    for name in selfspec.__all__:
        assert getattr(selfspec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        selfspec.nonsense  # noqa: B018
