"""A page is made again from the rows that it showed, and nothing is measured."""

import book_project
import nbformat
import pytest

from selfspec.study import redraw, runner
from selfspec.study.errors import StudyError
from selfspec.study.run_records import collect


@pytest.fixture
def project(tmp_path):
    """A project with one invented run, its page, and a template that would measure."""
    root = tmp_path / "project"
    (root / "results" / "reference").mkdir(parents=True)
    run_id = book_project.add_results(root)
    template(root, "sweep = naive_sweep.measure(\n    model,\n    seed=seed,\n)")
    page = runner.page_path(
        root, "apple-m3-16gb-metal", "tiny-0.5b", "naive-sweep", "default"
    )
    page.parent.mkdir(parents=True)
    old = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Old")])
    old.metadata["selfspec"] = {
        "label": "the-label",
        "parameters": {"model": "tiny-0.5b"},
        "run_id": run_id,
    }
    nbformat.write(old, page)
    return root


def template(root, measuring):
    return book_project.template(
        root / "notebooks" / "naive-sweep.ipynb",
        "# A sweep",
        "model = 'm'\nseed = 0",
        measuring,
        "print(len(sweep.rows), 'rows of', sweep.folder.name)\n" + book_project.RUN_ID,
    )


def test_a_page_is_made_again_from_its_rows(project):
    [record] = collect(project)
    page = redraw.redraw(project, record)
    notebook = nbformat.read(page, as_version=4)
    text = "".join(cell.source for cell in notebook.cells)
    assert "naive_sweep.measure(" in text and "_redraw" not in text
    assert "# Naive layer skip: tiny-0.5b on Apple M3 (default)" in text
    printed = [
        out.text
        for cell in notebook.cells
        for out in cell.get("outputs", [])
        if "text" in out
    ]
    assert printed == [f"{len(record.rows)} rows of tiny-0.5b\n"]
    assert notebook.metadata.selfspec.run_id == record.run_id
    assert notebook.metadata.selfspec.label == "the-label"


def test_a_template_that_measures_twice_or_never_is_refused(project):
    template(project, "sweep = None")
    with pytest.raises(StudyError, match="has 0 cells that measure"):
        redraw.redraw(project, *collect(project))


def test_a_run_that_is_gone_is_told(project, monkeypatch):
    monkeypatch.chdir(project)
    with pytest.raises(StudyError, match="results hold no run 1 of x"):
        redraw.stored("x", "1")
