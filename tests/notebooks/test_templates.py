"""Every template in notebooks/: clean as committed, and it runs by plain papermill."""

import os
import subprocess
import sys
from pathlib import Path

import book_project
import nbformat
import pytest
from nbclient import NotebookClient
from tiny import save_tiny_model

from selfspec.study import page_check, runner
from selfspec.study.experiments import EXPERIMENTS

TEMPLATES = sorted((book_project.ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=TEMPLATES, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def test_there_is_a_template_for_every_experiment():
    assert {path.stem for path in TEMPLATES} == set(EXPERIMENTS)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_runner_takes_the_template_with_model_and_size(path):
    runner.check_template(path, {"model": "m", "size": "smoke"})


def test_template_holds_no_output_and_no_trace_of_a_run(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
            assert set(cell.metadata) <= {"tags", "mystnb"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


def test_template_defines_no_function_and_imports_no_mlx(notebook):
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    for line in "\n".join(code).splitlines():
        assert not line.lstrip().startswith(
            ("def ", "class ", "import mlx", "from mlx")
        )


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_plain_papermill_from_the_root(path, tmp_path):
    """The way of a reader who knows papermill and has only the requirements."""
    root = book_project.copy_to(tmp_path / "clone")
    folder = save_tiny_model(tmp_path / "tiny-plain")
    command = [
        str(Path(sys.executable).parent / "papermill"),
        f"notebooks/{path.name}",
    ]
    command += ["out.ipynb", "-p", "model", str(folder), "-p", "size", "smoke"]
    environment = {**os.environ, "SELFSPEC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    page = nbformat.read(root / "out.ipynb", as_version=4)
    assert page_check.failures(page) == []
    assert list((root / "results").glob(f"*/tiny-plain-*/{path.stem}.csv"))


def test_all_cells_run_from_the_notebooks_own_folder(tmp_path):
    """The way of a reader who opens the template in JupyterLab and runs all cells."""
    root = book_project.copy_to(tmp_path / "clone")
    folder = save_tiny_model(tmp_path / "tiny-lab")
    notebook = nbformat.read(root / "notebooks" / "naive-sweep.ipynb", as_version=4)
    [cell] = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    cell.source += f"\nmodel, size = {str(folder)!r}, 'smoke'"
    client = NotebookClient(
        notebook, resources={"metadata": {"path": str(root / "notebooks")}}
    )
    client.execute()
    assert page_check.failures(notebook) == []
    assert list((root / "results").glob("*/tiny-lab-*/naive-sweep.csv"))
    assert not list((root / "notebooks").glob("results*"))
