"""What may not reach the book, and ordinary text that must."""

import getpass
import platform
from pathlib import Path

import nbformat
import pytest

from selfspec.study import page_check


def notebook(output=None, *, source="x = 1", count=1, metadata=None):
    cell = nbformat.v4.new_code_cell(source, execution_count=count)
    cell.metadata.update(metadata or {})
    if output:
        cell.outputs = [output]
    return nbformat.v4.new_notebook(cells=[cell])


def text(value, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=value)


def data(**kinds):
    kinds = {kind.replace("_", "/", 1): value for kind, value in kinds.items()}
    return nbformat.v4.new_output("display_data", data=kinds)


def test_clean_page_has_no_problems():
    assert page_check.problems(notebook(text("speedup 0.75\n"))) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            notebook(
                nbformat.v4.new_output("error", ename="E", evalue="v", traceback=[])
            ),
            "cell 1 ended in an error: E: v",
        ),
        (notebook(count=None), "cell 1 was not run"),
        (
            notebook(metadata={"papermill": {"exception": True}}),
            "cell 1 is marked as failed",
        ),
        (notebook(text("UserWarning", "stderr")), "stderr"),
        (notebook(text(" 30%|###   | 3/10 [00:01]")), "progress bar"),
        (notebook(text("a\rb")), "progress bar"),
        (notebook(text("Fetching 3 files: 4.1it/s")), "progress bar"),
        (notebook(data(text_plain="<a.B at 0x7f00deadbeef>")), "object's address"),
        (notebook(data(text_html="<p>/home/kim/x</p>")), "shows '/home/kim/x'"),
        (notebook(source="p = '/Volumes/disk/m'"), "shows '/Volumes/disk/m'"),
        (notebook(metadata={"p": "/tmp/a"}), "shows '/tmp/a'"),
    ],
)
def test_each_problem_is_named(page, said):
    found = page_check.problems(page)
    assert any(said in what for what in found), found


def test_failed_run_is_seen_in_the_notebooks_own_metadata():
    page = notebook()
    page.metadata["papermill"] = {"exception": True}
    assert page_check.failures(page) == ["papermill marked the run as failed"]


def test_dead_widget_is_a_problem():
    widget = data(text_plain="bar")
    widget.data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}
    assert page_check.problems(notebook(widget)) == ["cell 1 shows a progress bar"]


def test_empty_cell_needs_no_execution_count():
    assert page_check.problems(notebook(source="  \n", count=None)) == []


@pytest.mark.parametrize(
    "place",
    [
        "/Users/kim/models/x",
        "/home/kim",
        "/root/.cache/x",
        "/private/var/folders/a/b",
        "/tmp/selfspec-1/page.ipynb",
        "file:///home/kim/x",
        "C:\\Users\\kim\\x",
        str(Path.cwd()),
    ],
)
def test_absolute_paths_are_leaks(place):
    assert page_check.leaks(f"see {place}, please") != []
    assert page_check.leaks(f'{{"path": "{place}"}}') != []


@pytest.mark.parametrize(
    "text",
    [
        "the square root of the user's home page",
        "results/apple-m3/tiny/naive-sweep.csv and ../../results/x.csv",
        "https://example.org/home/kim/page and https://github.com/a/tmp/x",
        "a tie/divergence, 3/4 of /v1/models",
        "the local runner on a mac, run by root",
        "~/Library/Caches/selfspec",
        "12 tokens/s, 100% | 3 | 4 |",
    ],
)
def test_ordinary_text_is_no_leak(text):
    assert page_check.leaks(text) == []
    assert page_check.noise(text) == []


def test_host_and_user_name_are_leaks(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "Kims-MacBook-Air.local")
    monkeypatch.setattr(getpass, "getuser", lambda: "will")
    assert page_check.leaks("on Kims-MacBook-Air") == ["Kims-MacBook-Air"]
    assert page_check.leaks("will@somewhere") == ["will"]
    assert page_check.leaks("dir/will/x") == ["will"]
    assert page_check.leaks("will") == ["will"]  # alone: a metadata value
    assert page_check.leaks("it will run on a MacBook Air") == []
