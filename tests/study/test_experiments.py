"""The registry: one line an experiment, and everything that must exist beside it."""

import subprocess
import sys

import book_project
import pandas as pd
import pytest

from selfspec.study import draft_summary, pages, sweep_summary
from selfspec.study.experiments import (
    AUTO,
    EXPERIMENTS,
    LAYERSKIP,
    MACHINE,
    NAIVE_SWEEP,
)


def test_the_experiments_are_there_under_their_own_names():
    assert [n for n in EXPERIMENTS if n in (NAIVE_SWEEP, MACHINE, AUTO, LAYERSKIP)] == [
        NAIVE_SWEEP,
        MACHINE,
        AUTO,
        LAYERSKIP,
    ]
    assert EXPERIMENTS[LAYERSKIP].model == "layerskip-small"
    assert all(name == e.name for name, e in EXPERIMENTS.items())
    assert len({e.title for e in EXPERIMENTS.values()}) == len(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_has_a_template_and_a_page_in_the_order_of_the_book(name):
    assert (book_project.ROOT / "notebooks" / f"{name}.ipynb").is_file()
    home = EXPERIMENTS[name].home
    assert (book_project.ROOT / "book" / f"{home}.md").is_file()
    assert home in pages.FRONT


def test_summaries_are_those_of_the_rows():
    empty = pd.DataFrame(columns=["draft", "num_draft_tokens"])
    assert EXPERIMENTS[AUTO].summarise(empty).empty
    modules = {e.name: e.summary for e in EXPERIMENTS.values()}
    assert modules[NAIVE_SWEEP] == sweep_summary.__name__.split(".")[-1]
    assert modules[AUTO] == modules[MACHINE] == draft_summary.__name__.split(".")[-1]


def test_naming_them_costs_no_import_of_pandas_or_mlx():
    """The command's `--help` reads the names."""
    code = (
        "import sys; from selfspec import cli; cli.parser(); "
        "print([m for m in ('pandas', 'scipy', 'mlx.core') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
