"""The experiments of the study, by name: what pages, values and commands read.

Costs nothing to import: a summary is looked up when it is needed, and none of them
needs MLX. A new experiment is a line here, a template of its name in notebooks/, and a
page of the book that its runs stand under.

    EXPERIMENTS["auto"].title                       # heading of its run pages
    EXPERIMENTS["auto"].summarise(rows)             # one line a configuration
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        name: of its template, its results file and its pages.
        title: what its run pages are called.
        home: the page of the book that its runs stand under.
        summary: module of selfspec.study with `summarise(rows)`.
        model: what it measures where nobody says.
    """

    name: str
    title: str
    home: str
    summary: str
    model: str = "smollm2-135m"

    def summarise(self, rows: "pd.DataFrame") -> "pd.DataFrame":
        """One line a configuration, of one run's rows; needs no MLX."""
        return import_module(f"selfspec.study.{self.summary}").summarise(rows)


NAIVE_SWEEP = "naive-sweep"
MACHINE = "machine"
AUTO = "auto"
KNAPSACK = "knapsack"
LAYERSKIP = "layerskip"
FITTED = "fitted-exit"

# In the order in which `make study` runs them and the book shows them.
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(NAIVE_SWEEP, "Naive layer skip", "naive-sweep", "sweep_summary"),
        Experiment(MACHINE, "What a step costs", "machine", "draft_summary"),
        Experiment(AUTO, "A rule that declines", "auto", "draft_summary"),
        Experiment(KNAPSACK, "Choosing the blocks", "knapsack", "draft_summary"),
        Experiment(
            LAYERSKIP, "LayerSkip", "layerskip", "draft_summary", "layerskip-small"
        ),
        Experiment(FITTED, "A fitted exit", "fitted-exit", "draft_summary"),
    )
}
