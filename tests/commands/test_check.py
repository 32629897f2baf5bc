"""`selfspec check` on the committed project, and on copies with a fault planted."""

import json
import subprocess
import sys

import book_project
import pytest

from selfspec import cli
from selfspec.study import book_check, pages


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The committed project; that its generated files are fresh is test_committed's."""
    root = book_project.copy_to(tmp_path_factory.mktemp("check") / "clone")
    pages.write(root)
    return root


@pytest.fixture
def run_page(clone):
    """A committed run page, put back afterwards."""
    page = sorted((clone / "book" / "runs").glob("*/*.ipynb"))[0]
    text = page.read_text()
    yield page
    page.write_text(text)


def everything(root):
    return {
        path: path.read_bytes()
        for folder in ("book", "results")
        for path in (root / folder).rglob("*")
        if path.is_file()
    } | {root / "_toc.yml": (root / "_toc.yml").read_bytes()}


def test_the_committed_project_is_whole_and_stays_as_it_is(command, clone):
    before = everything(clone)
    code, out, errors = command("check", "--root", str(clone))
    assert code == 0, out + errors
    assert out.startswith("whole: ") and "run pages" in out
    assert everything(clone) == before


def test_a_stale_fragment_is_named_and_not_mended(command, clone):
    answer = clone / "book" / "_generated" / "answer.md"
    text = answer.read_text()
    answer.write_text(text + "Faster everywhere.\n")
    try:
        code, out, errors = command("check", "--root", str(clone))
        assert (code, out) == (
            cli.EXIT_ERROR,
            "book/_generated/answer.md: not what the results say. "
            "Way out: selfspec book\n",
        )
        assert (
            "1 fault in clone" in errors and "Faster everywhere" in answer.read_text()
        )
    finally:
        answer.write_text(text)


def test_a_page_whose_results_are_gone_is_named(clone, run_page):
    notebook = json.loads(run_page.read_text())
    notebook["metadata"]["selfspec"]["run_id"] = "20990101T000000Z-aaaa"
    run_page.write_text(json.dumps(notebook))
    found = book_check.stale(clone)
    name = run_page.relative_to(clone).as_posix()
    assert any(line.startswith(f"{name}: its run is not in results/") for line in found)


def test_pages_with_an_error_or_a_cell_that_was_not_run_are_named(
    command, clone, run_page
):
    notebook = json.loads(run_page.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells[0]["execution_count"] = None
    cells[1]["outputs"] = [
        {"output_type": "error", "ename": "E", "evalue": "bad", "traceback": []}
    ]
    run_page.write_text(json.dumps(notebook))
    code, out, errors = command("check", "--root", str(clone))
    assert code == cli.EXIT_ERROR
    assert "was not run (no execution count)" in out
    assert "ended in an error: E: bad" in out
    assert "mend results and run pages first" in errors
    run_page.write_text("{")
    [line] = book_check.run_pages(clone)
    assert "is not a notebook" in line


def test_a_dead_link_is_named(command, clone):
    page = clone / "book" / "references.md"
    text = page.read_text()
    page.write_text(text + "\n[gone](gone.md)\n")
    try:
        code, out, _ = command("check", "--root", str(clone))
    finally:
        page.write_text(text)
    assert code == cli.EXIT_ERROR and "book/references.md: no file gone.md" in out


def test_it_needs_no_mlx_and_no_clone_around(tmp_path, clone):
    for name in ("mlx", "mlx_lm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('no MLX')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from selfspec import cli\n"
        f"sys.exit(cli.main(['check', '--root', {str(clone)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-1000:]


def test_another_folder_is_refused(command, tmp_path):
    code, _, errors = command("check", "--root", str(tmp_path))
    assert code == cli.EXIT_ERROR and "Way out: name a clone's folder" in errors
