"""`selfspec study`, end to end: rows, page and book, and runs that stand side by side."""

import subprocess
import sys

import book_project
import nbformat
from tiny import save_tiny_model

from selfspec.study.results import read_csv, read_provenance


def study(root, folder):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "selfspec",
            "study",
            "--model",
            folder,
            "--size",
            "smoke",
        ],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    [page] = [
        line.removeprefix("page: ")
        for line in done.stdout.splitlines()
        if line.startswith("page: ")
    ]
    return nbformat.read(root / page, as_version=4).metadata.selfspec.run_id


def test_a_clone_measures_anew_beside_the_run_that_it_came_with(tmp_path):
    """Same machine, model, size and code: still another run, on the page and in rows."""
    root = book_project.copy_to(tmp_path / "clone")
    folder = str(save_tiny_model(tmp_path / "tiny-twice"))
    committed = study(root, folder)
    mine = study(root, folder)
    assert mine != committed
    [results] = (root / "results").glob("*/tiny-twice-*")
    rows = read_csv(results / "naive-sweep.csv")
    counts = {
        run: sum(row["run_id"] == run for row in rows) for run in (committed, mine)
    }
    assert counts[committed] == counts[mine] == len(rows) / 2
    assert {run["finished"] for run in read_provenance(results).values()} == {True}
    assert "runs/" in (root / "_toc.yml").read_text()
