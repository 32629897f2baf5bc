"""The book's first figure: every configuration measured on one machine, in one plane.

Each run that drafts a fixed number of tokens gives points: the acceptance rate and the
cost ratio of its configurations, whatever the method. A rule that chooses its own
length has no place here. Machines are never pooled: it is the machine of the largest
and latest run. Needs no MLX.

    records = shown(latest(collect(root)))
    svg(draw(points(records), reference.post(root)))
"""

from collections.abc import Sequence
from itertools import cycle

import pandas as pd

from selfspec.study import figures, layerskip_page, layerskip_summary
from selfspec.study.draft_summary import METHODS, method
from selfspec.study.experiments import (
    FITTED,
    KNAPSACK,
    LAYERSKIP,
    MACHINE,
    NAIVE_SWEEP,
)
from selfspec.study.run_records import Record, headlines, of_experiment

FIXED_LENGTH = (NAIVE_SWEEP, MACHINE, KNAPSACK, LAYERSKIP, FITTED)
# Okabe-Ito; a shape each besides, for those who do not tell the colours apart
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "v", "P", "X", "*")


def shown(records: Sequence[Record]) -> list[Record]:
    """The runs whose configurations the figure shows: one machine's, the largest each."""
    chosen = headlines(of_experiment(records, *FIXED_LENGTH))
    if not chosen:
        return []
    machine = max(chosen, key=lambda record: record.rank).machine
    same = [record for record in chosen if record.machine == machine]
    return sorted(same, key=lambda record: FIXED_LENGTH.index(record.experiment))


def points(records: Sequence[Record]) -> pd.DataFrame:
    """One line a configuration: method, num_draft_tokens, cost_ratio, acceptance_rate."""
    tables = [_points(record) for record in records]
    columns = ["method", "num_draft_tokens", "cost_ratio", "acceptance_rate"]
    if not tables:
        return pd.DataFrame(columns=columns).astype({c: float for c in columns[2:]})
    # a lookup that never found anything drafted nothing and has no rate
    found = pd.concat(tables, ignore_index=True)[columns]
    return found[found["acceptance_rate"].notna()]


def draw(found: pd.DataFrame, post: pd.DataFrame):
    """The plane, one mark a configuration, colour and shape by method.

    Args:
        found: of `points`.
        post: of reference.post().
    """
    figure, ax = figures.plane_frame(found["cost_ratio"], post)
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    for name, (colour, marker) in zip(methods(found), looks, strict=False):
        part = found[found["method"] == name]
        ax.scatter(
            part["cost_ratio"],
            part["acceptance_rate"],
            color=colour,
            marker=marker,
            s=45,
            alpha=0.85,
            linewidth=0,
            zorder=4,
            label=name,
        )
    figures.legend(figure)
    return figure


def methods(found: pd.DataFrame) -> list[str]:
    """In the order of the book: skipping first."""
    names = dict.fromkeys(found["method"])
    order = [name for kind in METHODS for name in names if method(name) == kind]
    return [*order, *(name for name in names if name not in order)]


def describe(found: pd.DataFrame) -> str:
    """Alt text, from the same data."""
    text = figures.describe_plane(found)
    if found.empty:
        return text
    counts = ", ".join(
        f"{name} {(found['method'] == name).sum()}" for name in methods(found)
    )
    return f"{text} By method: {counts}."


def _points(record: Record) -> pd.DataFrame:
    table = record.table
    if record.experiment == NAIVE_SWEEP:
        return table.assign(method="skip, " + table["mechanism"])
    if record.experiment in (LAYERSKIP, FITTED):
        table = layerskip_summary.fixed(table)
    kinds = table["draft"].map(method)
    if record.experiment == LAYERSKIP and layerskip_page.has_answers(record.facts):
        kinds = kinds.replace("exit", "exit, taught")
    # the engine drafts on one cache, as the sweep's second mechanism does
    return table.assign(method=kinds.replace("skip", "skip, one cache"))
