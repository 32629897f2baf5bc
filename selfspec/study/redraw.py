"""Make the pages of measured runs anew from their results, without measuring.

When a figure or a sentence is changed, the pages that were made with the old one are
stale and their measurements are not. A page is made again by its own template and the
real runner; only the cell that measures is replaced by one that reads the run back.

    python -m selfspec.study.redraw            # every page of book/runs
"""

import re
import sys
import tempfile
from pathlib import Path

import nbformat

from selfspec.study import reference, runner
from selfspec.study.errors import StudyError
from selfspec.study.experiments import EXPERIMENTS
from selfspec.study.results import RESULTS
from selfspec.study.run_records import Record, collect

# `run = machine_study.measure(` to the parenthesis that closes it at a line's start
_MEASURING = re.compile(r"^(\w+) = \w+\.measure\(.*?^\)$", re.MULTILINE | re.DOTALL)


def redraw(root: Path, record: Record) -> Path:
    """The page of one run, made again from its rows and facts.

    Raises:
        StudyError: a template without one measuring cell, or one that does not run.
    """
    template = root / "notebooks" / f"{record.experiment}.ipynb"
    page = root / "book" / f"{record.page}.ipynb"
    old = nbformat.read(page, as_version=4)
    notebook = nbformat.read(template, as_version=4)
    measuring = [c for c in notebook.cells if _MEASURING.search(c.source)]
    if len(measuring) != 1:
        raise StudyError(f"{template.name} has {len(measuring)} cells that measure")
    [cell] = measuring
    original = cell.source
    stored = (
        "from selfspec.study import redraw as _redraw\n"
        rf"\1 = _redraw.stored({record.page!r}, {record.run_id!r})"
    )
    cell.source = _MEASURING.sub(stored, original)
    with tempfile.TemporaryDirectory(prefix="selfspec-") as scratch:
        copy = Path(scratch) / template.name
        nbformat.write(notebook, copy)
        runner.run_notebook(
            copy,
            old.metadata["selfspec"]["parameters"],
            page=page,
            label=old.metadata["selfspec"]["label"],
            title=_title(record),
            cwd=root,
        )
    made = nbformat.read(page, as_version=4)
    for again in made.cells:
        if "_redraw.stored(" in again.source:
            again.source = original
    runner._write(page, nbformat.writes(made))
    return page


def _title(record: Record) -> str:
    """As study.py heads the page of a fresh run."""
    facts = record.facts
    return (
        f"{EXPERIMENTS[record.experiment].title}: {facts['model']['name']} on "
        f"{facts['machine']['chip']} ({record.size})"
    )


def stored(page: str, run_id: str):
    """The run as its experiment's `measure` would give it; called in the kernel."""
    from selfspec.study.bench import Sweep

    root = reference.find_root()
    for record in collect(root):
        if (record.page, record.run_id) == (page, run_id):
            folder = root / RESULTS / record.machine / record.model
            return Sweep(record.rows, record.facts, folder, run_id)
    raise StudyError(f"results hold no run {run_id} of {page}")


def main() -> int:
    """Every page whose run is in results/."""
    root = reference.find_root()
    for record in collect(root):
        path = root / "book" / f"{record.page}.ipynb"
        if not path.is_file():
            continue
        shown = nbformat.read(path, as_version=4).metadata.get("selfspec", {})
        if shown.get("run_id") == record.run_id:
            print(redraw(root, record).relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
