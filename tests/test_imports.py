"""A folder imports only the folders before it, and never what wires them together."""

import ast
from pathlib import Path

import pytest

import selfspec

ORDER = ("models", "decoding", "costs", "selection", "training", "study", "commands")


def imported(file: Path) -> set[str]:
    """Names right below selfspec that a file imports, at whatever depth."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ImportFrom(module="selfspec", names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module)):
                names |= {module} if module.startswith("selfspec.") else set()
            case ast.Import(names=aliases):
                names |= {a.name for a in aliases if a.name.startswith("selfspec.")}
    return {name.removeprefix("selfspec.").split(".")[0] for name in names}


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_the_folders_before_it(folder):
    allowed = {*ORDER[: ORDER.index(folder) + 1], "blas", "__version__"}
    files = list((Path(selfspec.__file__).parent / folder).glob("*.py"))
    assert files
    for file in files:
        assert imported(file) <= allowed, file.name


def test_the_check_sees_every_way_to_import(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(
        "def late():\n    from selfspec.costs.store import x\n"
        "from selfspec import auto\nimport selfspec.study.study\nimport mlx.core\n"
    )
    assert imported(file) == {"costs", "auto", "study"}
