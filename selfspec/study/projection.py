"""What the measured acceptances would be worth on Apple chips: projection, no result.

Acceptance is a property of model and text, so it moves from one machine to another;
costs do not. Here the rounds that were measured elsewhere are paid for with published
curves v(m), and with c either from the share of weights that a draft reads or from the
blocks as they were measured:

    S = sum of tokens / sum over rounds of (c*D + v(D + 1)),       o = 0

A curve is read between its widths and never beyond the last. A draft that keeps the
rows of its first layers saves their share of v(m) - 1. Needs no MLX.

    fragment(latest(collect(root)), root)         # Markdown for the book
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec.costs.draft_length import verify_at
from selfspec.study import reference
from selfspec.study.experiments import MACHINE, NAIVE_SWEEP
from selfspec.study.fragments import table
from selfspec.study.markdown import literal
from selfspec.study.reference import Curve
from selfspec.study.row_table import AUTO, read_rounds
from selfspec.study.run_records import Record, headlines, of_experiment

# Generations for which nobody has published a curve of a dense quantised model.
UNKNOWN = ("M1", "M2")
NOTHING = (
    "Not yet measured: a projection needs a finished run of the experiment `machine`, "
    "which holds what each draft reads."
)
WARNING = (
    "```{warning}\n"
    "Projected, not measured: none of these speedups has been timed by anybody.\n"
    "Acceptance is from this study's runs of {model} on {machine}; v(m) is what others "
    "published for other models, and o is taken as 0.\n"
    "```"
)
COST_COLUMNS = {"weight_cost": "c from weights", "cost_ratio": "c from blocks"}


def projected_speedup(
    texts: Iterable[tuple[Sequence[tuple[int, int]], int]],
    *,
    cost_ratio: float,
    verify_ratio: Mapping[int, float],
    kept: float = 0.0,
) -> float:
    """S of measured rounds under other costs; NaN beyond the curve or without rounds.

    Args:
        texts: (drafted, accepted) of every round, and the tokens emitted, by text.
        cost_ratio: c.
        verify_ratio: v by rows, as published.
        kept: share of the first layers, whose rows verification takes over.
    """
    tokens = cost = 0.0
    for rounds, emitted in texts:
        tokens += emitted
        for drafted, _ in rounds:
            rows = drafted + 1
            if rows > max(verify_ratio):
                return float("nan")
            passing = verify_at(verify_ratio, rows) if drafted else 1.0
            cost += cost_ratio * drafted + passing - kept * (passing - 1)
    return tokens / cost if cost else float("nan")


def configurations(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Every configuration with a fixed length whose weight shares are known.

    Keys: draft, num_draft_tokens, acceptance_rate, weight_cost, cost_ratio, kept, texts.

    Args:
        records: of one machine and model: its run of `machine`, and its sweep if any.
    """
    shares: dict[str, dict[str, float]] = {}
    for record in of_experiment(records, MACHINE):
        shares |= record.facts.get("weight_shares", {})
    return [
        line
        for record in records
        for line in of_rows(record.rows.assign(draft=_labels(record)), shares)
    ]


def of_rows(
    rows: pd.DataFrame, shares: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """The same of one run's rows.

    Args:
        shares: weight shares by the label of a draft.
    """
    found = []
    fixed = rows[rows["num_draft_tokens"] != AUTO]
    for (draft, length), own in fixed.groupby(
        ["draft", "num_draft_tokens"], sort=False
    ):
        known = shares.get(draft.split(",")[0])
        if known is None or not own["drafted"].sum():
            continue
        found.append(
            {
                "draft": draft,
                "num_draft_tokens": int(length),
                "acceptance_rate": own["accepted"].sum() / own["drafted"].sum(),
                "weight_cost": known["cost_ratio"],
                "cost_ratio": float(own["cost_ratio"].median()),
                "kept": known["kept"],
                "texts": [
                    (read_rounds(cell), int(tokens))
                    for cell, tokens in zip(
                        own["drafted_accepted_per_round"], own["tokens"], strict=True
                    )
                ],
            }
        )
    return found


def project(
    found: Sequence[Mapping[str, Any]], curves: Sequence[Curve]
) -> pd.DataFrame:
    """One line a configuration and curve; S is NaN where a curve does not reach.

    Columns: draft, num_draft_tokens, acceptance_rate, curve, weight_cost, cost_ratio
    (the projected S with c from weights, and from measured blocks).
    """
    return pd.DataFrame(
        [
            {
                "draft": line["draft"],
                "num_draft_tokens": line["num_draft_tokens"],
                "acceptance_rate": line["acceptance_rate"],
                "curve": curve.name,
                **{
                    column: projected_speedup(
                        line["texts"],
                        cost_ratio=line[column],
                        verify_ratio=curve.verify_ratio,
                        kept=line["kept"],
                    )
                    for column in COST_COLUMNS
                },
            }
            for line in found
            for curve in curves
        ]
    )


def fragment(records: Sequence[Record], root: Path) -> str:
    """The projection page's tables, one pair for each machine and model measured.

    Runs on Apple silicon are left out: they have curves of their own.

    Args:
        records: of run_records.latest.
    """
    curves = [c for c in reference.apple_curves(root) if c.chip != "not stated"]
    chosen = headlines(of_experiment(records, MACHINE, NAIVE_SWEEP))
    places: dict[tuple[str, str], list[Record]] = {}
    for record in chosen:
        if record.device != "metal":
            places.setdefault((record.machine, record.model), []).append(record)
    parts = []
    for own in places.values():
        found = configurations(own)
        if found:
            parts.append(_section(own[0], found, curves))
    return "\n\n".join(parts) or NOTHING


def _section(record: Record, found, curves: Sequence[Curve]) -> str:
    projected = project(found, curves)
    words = {
        "model": literal(record.model_name),
        "machine": literal(record.machine_name),
    }
    # not str.format: the text has braces of its own
    warning = WARNING
    for name, value in words.items():
        warning = warning.replace(f"{{{name}}}", value)
    return "\n\n".join(
        [warning, _by_curve(projected, curves), _every(projected, found)]
    )


def _by_curve(projected: pd.DataFrame, curves: Sequence[Curve]) -> str:
    """One row a curve: the best configuration under it, and how many would win."""
    rows: list[tuple] = [
        (chip, "no published curve", "-", "-", "-", "-") for chip in UNKNOWN
    ]
    for curve in curves:
        own = projected[projected["curve"] == curve.name]
        cells = []
        for column in COST_COLUMNS:
            reached = own[own[column].notna()]
            cells.append(_best(reached, column))
            cells.append(f"{int((reached[column] > 1).sum())} of {len(reached)}")
        kind = "whole model" if curve.whole_model else "one matrix"
        rows.append(
            (
                curve.chip,
                f"{kind}, {curve.what}, {curve.quantisation} {{cite:p}}`{curve.source}`",
                *cells,
            )
        )
    head = ["chip", "published curve"]
    for words in COST_COLUMNS.values():
        head += [f"best projected S, {words}", "above 1"]
    return table(head, sorted(rows, key=lambda row: row[0]))


def _best(own: pd.DataFrame, column: str) -> str:
    if own.empty:
        return "-"
    best = own.loc[own[column].idxmax()]
    return f"{best[column]:.2f} ({best['draft']}, {best['num_draft_tokens']} tokens)"


def _every(projected: pd.DataFrame, found) -> str:
    """Every configuration under every curve, c from weights; folded."""
    curves = list(dict.fromkeys(projected["curve"]))
    worth = projected.set_index(["draft", "num_draft_tokens", "curve"])["weight_cost"]
    rows = [
        (
            line["draft"],
            line["num_draft_tokens"],
            f"{line['acceptance_rate']:.0%}",
            f"{line['weight_cost']:.2f}",
            *(
                _two(worth[(line["draft"], line["num_draft_tokens"], curve)])
                for curve in curves
            ),
        )
        for line in found
    ]
    head = ("draft", "draft tokens", "acceptance rate", "c from weights", *curves)
    return (
        "````{admonition} Every configuration, projected with c from weights\n"
        ":class: note dropdown\n\n"
        f"{table(head, rows)}\n````"
    )


def _labels(record: Record) -> pd.Series:
    """The label of each row's draft; a sweep's rows name mechanism and share."""
    rows = record.rows
    if record.experiment != NAIVE_SWEEP:
        return rows["draft"]
    return (
        "skip "
        + (100 * rows["skip_fraction"]).map("{:g}".format)
        + " %, "
        + rows["mechanism"]
    )


def _two(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
