"""Markdown that the runs of drafts write: a table of runs each for "machine" and "auto".

Records in, text out, as in fragments.py; every number is formatted from a record.

    machine_runs(latest(collect(root)), pages)
"""

import math
from collections.abc import Container, Sequence

import pandas as pd

from selfspec.study import auto_summary, sweep_summary
from selfspec.study.draft_summary import prediction_error
from selfspec.study.experiments import AUTO, KNAPSACK, MACHINE
from selfspec.study.fragments import NOTHING, interval, table, verdicts
from selfspec.study.knapsack_values import of_knapsack
from selfspec.study.markdown import literal
from selfspec.study.run_records import Record, of_experiment

_RUN = ("machine", "model", "run")


def machine_runs(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run. `pages`: which runs have a page to link to."""
    head = (
        *_RUN,
        "configurations",
        "best S",
        "predicted S",
        "draft",
        "faster / same / slower",
        "prediction misses by",
        "from held-out prompts",
        "lossless",
    )
    rows = []
    for record in of_experiment(records, MACHINE):
        lines = record.table
        best = sweep_summary.best(lines)
        rows.append(
            (
                *run_cells(record, pages),
                len(lines),
                f"{best['speedup']:.2f}{interval(best)}",
                f"{best['predicted_speedup']:.2f}",
                f"{best['draft']}, {best['num_draft_tokens']} tokens",
                verdicts(lines),
                _miss(prediction_error(lines)),
                _miss(prediction_error(lines, "predicted_held_out")),
                f"{record.lossless} of {record.judged}",
            )
        )
    return table(head, rows) if rows else NOTHING


def auto_runs(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run and draft, with what fixed lengths of the same draft gave."""
    bound = f"{auto_summary.BOUND:.2f}"
    head = (
        *_RUN,
        "draft",
        'S with "auto"',
        f"interval and {bound}",
        "plain tokens",
        "fixed lengths, in other runs",
        "lossless",
    )
    rows = []
    for record in of_experiment(records, AUTO):
        fixed = auto_summary.fixed_settings(records, record.machine, record.model)
        for line in auto_summary.compare(record.table, fixed).to_dict("records"):
            rows.append(
                (
                    *run_cells(record, pages),
                    line["draft"],
                    f"{line['speedup']:.2f}{interval(line)}",
                    line["promise"],
                    f"{line['plain_share']:.0%}",
                    fixed_in_words(line),
                    f"{line['lossless']} of {line['pairs']}",
                )
            )
    return table(head, rows) if rows else NOTHING


def knapsack_runs(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run: the set nearest to clearing its cost, and the best that was timed."""
    head = (
        *_RUN,
        "nearest set",
        "c",
        "agreement, held out",
        "budgets won against the middle",
        "best S",
        "predicted S",
        "draft",
        "lossless",
    )
    rows = []
    for record in of_experiment(records, KNAPSACK):
        known = of_knapsack(record.facts, record.table)
        best = sweep_summary.best(record.table)
        won = known["sure_budgets"]
        rows.append(
            (
                *run_cells(record, pages),
                known["nearest_selector"] or "-",
                _or_dash(known["nearest_c"], ".2f"),
                _or_dash(known["nearest_agreement_percent"], ".0f") + "%",
                "no interval" if won is None else f"{won} of {known['budgets']}",
                f"{best['speedup']:.2f}{interval(best)}",
                f"{best['predicted_speedup']:.2f}",
                f"{best['draft']}, {int(best['num_draft_tokens'])} tokens",
                f"{record.lossless} of {record.judged}",
            )
        )
    return table(head, rows) if rows else NOTHING


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def fixed_in_words(line) -> str:
    """'0.62 (5 tokens) to 0.93 (2 tokens)', of a line of `auto_summary.compare`."""
    if not line["fixed"]:
        return "not timed"
    ends = [
        f"{line[f'{name}_speedup']:.2f} ({int(line[f'{name}_length'])} tokens)"
        for name in ("worst", "best")
    ]
    return " to ".join(dict.fromkeys(ends))


def run_cells(record: Record, pages: Container[str]) -> tuple[str, str, str]:
    """Machine, model, and size with its date: how every row of a run begins."""
    size = record.size
    if record.page in pages:
        size = f"{{doc}}`{size} </{record.page}>`"
    drifted = " (drifted)" if record.drifted else ""
    return (
        literal(record.machine_name) + drifted,
        literal(record.model_name),
        f"{size}, {record.date}",
    )


def _miss(errors: pd.Series) -> str:
    """'3% in the median, 12% at most'."""
    if not math.isfinite(errors.median()):
        return "-"
    return f"{errors.median():.0%} in the median, {errors.max():.0%} at most"
