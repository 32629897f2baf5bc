"""The methods of the study: which one a configuration belongs to, and their order.

A method is a kind of draft; palette.py says how each looks. Needs no MLX.

    labelled(record)                # its table, with a column `method`
    column("exit, taught")          # "early exit": where the verdict puts it
"""

import re

import pandas as pd

from selfspec.study.draft_summary import method
from selfspec.study.experiments import NAIVE_SWEEP
from selfspec.study.palette import METHODS
from selfspec.study.run_records import Record

SKIP, EXIT, OTHER = "middle skipped", "early exit", "other drafts"
# The verdict's columns, in the order of the book.
COLUMNS = {
    "skip, two caches": SKIP,
    "skip, one cache": SKIP,
    "skip, chosen": "blocks chosen",
    "exit": EXIT,
    "exit, taught": EXIT,
    "exit, dynamic": EXIT,
    "fitted exit": "fitted exit",
    "shortlist": "shorter head",
    "lookup": "prompt lookup",
    "small model": "another model",
}


def column(name: str) -> str:
    """The verdict's column of a method."""
    return COLUMNS.get(name, OTHER)


def order(names) -> list[str]:
    """Each name once, in the order of the book, unknown ones last."""
    found = dict.fromkeys(names)
    return [
        *(n for n in METHODS if n in found),
        *(n for n in found if n not in METHODS),
    ]


def name(draft: str, *, taught: bool = False) -> str:
    """The method that a draft's label names.

    Args:
        taught: whether the model's exits were trained.
    """
    kind = method(draft)
    if kind == "skip":
        selector = re.search(r"\(([\w-]+)\)", draft)  # "skip 30 % (greedy), ..."
        chosen = selector and selector[1] != "middle"
        return "skip, chosen" if chosen else "skip, one cache"
    if kind == "exit":
        return "exit, taught" if taught else "exit"
    # the exits' own experiment times a knapsack's set and a second model beside them
    known = {"dynamic": "exit, dynamic", "small": "small model"}
    known |= {"fitted": "fitted exit"}
    return known.get(kind, "skip, chosen" if kind == "knapsack" else kind)


def labelled(record: Record) -> pd.DataFrame:
    """The run's table with `method`, and `draft` for a sweep that has no such column."""
    table = record.table
    if record.experiment == NAIVE_SWEEP:
        return table.assign(
            draft=[f"skip {100 * share:g} %" for share in table["skip_fraction"]],
            method="skip, " + table["mechanism"],
            temperature=0.0,
        )
    taught = bool(record.facts.get("subject", {}).get("trained"))
    return table.assign(method=[name(d, taught=taught) for d in table["draft"]])
