"""The numbers behind figures that are drawn from a run's facts, as tables to download.

A figure of timed pairs links to the run's own CSV. One that is drawn from what the run
found out beside them gets a file of its own in book/_generated, made with the page's
other fragments. Needs no MLX.

    tables(record)["verify"]             # one line a width
    place(run, "verify")                 # what figures.show takes as `csv`
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from selfspec.costs.profile import CostProfile
from selfspec.study import cost_figures, machine_page
from selfspec.study.experiments import KNAPSACK, MACHINE
from selfspec.study.knapsack_sets import sets_of
from selfspec.study.run_records import Record

Facts = Mapping[str, Any]


def place(run, name: str) -> str:
    """Where the table of a figure of this run will stand, from the root.

    Args:
        run: what an experiment's `measure` gave.
    """
    facts = run.provenance
    folder = f"{run.folder.parent.name}--{run.folder.name}"
    return f"book/_generated/runs/{folder}/{facts['experiment']}-{facts['size']}-{name}.csv"


def tables(record: Record) -> dict[str, pd.DataFrame]:
    """Figure -> its table, as far as the run's facts have it.

    {} for an experiment whose figures are all of its rows.
    """
    return {
        name: make(record.facts)
        for name, (fact, make) in _TABLES.get(record.experiment, {}).items()
        if fact in record.facts
    }


def _verify(facts: Facts) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"blas_threads": threads, "rows": rows, "verify_ratio": ratio}
            for threads, ratios in machine_page.verify_curves(facts).items()
            for rows, ratio in sorted(ratios.items())
        ]
    )


def _parts(facts: Facts) -> pd.DataFrame:
    parts = machine_page.step_parts(CostProfile.from_json(facts["profile"]))
    return parts.add_suffix("_seconds").rename_axis("context").reset_index()


def _needed(facts: Facts) -> pd.DataFrame:
    profile = CostProfile.from_json(facts["profile"])
    verify = {rows: profile.verify_ratio(rows) for rows in profile.pass_seconds}
    needed = cost_figures.required(verify, profile.overhead_ratio())
    long = needed.rename_axis("num_draft_tokens").reset_index()
    return long.melt("num_draft_tokens", var_name="cost_ratio", value_name="acceptance")


def _sets(facts: Facts) -> pd.DataFrame:
    return pd.DataFrame(sets_of(facts)).drop(columns="held_out", errors="ignore")


def _regret(facts: Facts) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"model": number, "selector": name, **parts}
            for number, model in enumerate(facts["small_models"])
            for name, parts in model["selectors"].items()
        ]
    )


# Experiment -> figure -> the fact that it is drawn from, and how.
_TABLES: Mapping[str, Mapping[str, tuple[str, Callable[[Facts], pd.DataFrame]]]] = {
    MACHINE: {
        "verify": ("verify_curves", _verify),
        "parts": ("profile", _parts),
        "needed": ("profile", _needed),
    },
    KNAPSACK: {
        "importance": ("importance", lambda facts: pd.DataFrame(facts["importance"])),
        "sets": ("frontiers", _sets),
        "reliability": (
            "proxy",
            lambda facts: pd.DataFrame(facts["proxy"]["reliability"]),
        ),
        "regret": ("small_models", _regret),
        "online": ("online", lambda facts: pd.DataFrame(facts["online"])),
    },
}
