"""The verdict: what to do on each machine with each model, and the short answer above it.

Records in, Markdown out. Of each machine and model the largest run of every experiment
counts, and of each method its best greedy configuration. A configuration that drafted
nothing is plain decoding, so it wins nothing. Needs no MLX.

    table(latest(collect(root)))           # one row a machine and model
    short_answer(latest(collect(root)))    # three sentences
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from selfspec.study import fragments, methods, plane
from selfspec.study.markdown import literal
from selfspec.study.results import RESULTS
from selfspec.study.row_table import AUTO
from selfspec.study.run_records import Record, headlines
from selfspec.study.statistics import Estimate, median_ratio

RULE = "rule that declines"
COLUMNS = (*dict.fromkeys(methods.COLUMNS.values()), methods.OTHER, RULE)
DECLINED = "declined"
UNJUDGED = "too few prompts"


@dataclass(frozen=True)
class Place:
    """A machine and a model: its runs, and every configuration that they timed.

    Attributes:
        lines: columns method, column, draft, num_draft_tokens, speedup, low, high,
            verdict, acceptance_rate, peak_memory_ratio, speedup_without_loops,
            predicted_speedup, data; one line a greedy configuration.
    """

    records: tuple[Record, ...]
    lines: pd.DataFrame

    @property
    def first(self) -> Record:
        return max(self.records, key=lambda record: record.rank)

    @property
    def best(self) -> pd.DataFrame:
        """Of each column's methods the best line, in the order of the columns."""
        drafted = self.lines[self.lines["acceptance_rate"].notna()]
        top = drafted.loc[drafted.groupby("column")["speedup"].idxmax()]
        known = {column: i for i, column in enumerate(COLUMNS)}
        return top.sort_values("column", key=lambda names: names.map(known))

    @property
    def winner(self) -> pd.Series | None:
        """The fastest of the best lines whose whole interval lies above 1."""
        faster = self.best[self.best["verdict"] == "faster"]
        return None if faster.empty else faster.loc[faster["speedup"].idxmax()]

    @property
    def answer(self) -> str:
        if (winner := self.winner) is not None:
            return called(winner)
        unjudged = (self.lines["verdict"] == UNJUDGED).all()
        return UNJUDGED if unjudged else DECLINED

    @property
    def plain(self) -> Estimate:
        """Tokens a second of plain decoding, the median over the largest run's prompts."""
        rows = self.first.rows
        rate = rows["baseline_decode_tokens"] / rows["baseline_decode_seconds"]
        return median_ratio(rate.groupby(rows["prompt_id"]).mean().dropna())


def places(records: Sequence[Record]) -> list[Place]:
    """Every machine and model of the results, machines that are Macs first."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in headlines(list(records)):
        found.setdefault((record.machine, record.model), []).append(record)
    made = [
        Place(tuple(own), pd.concat([_lines(r) for r in own], ignore_index=True))
        for own in found.values()
    ]
    return sorted(made, key=lambda p: (p.first.device != "metal", p.first.machine_name))


def called(line: pd.Series) -> str:
    """'lookup under the rule' or 'exit, taught'."""
    return line["method"] + (" under the rule" if line["column"] == RULE else "")


def table(records: Sequence[Record]) -> str:
    """One row a machine and model, in it a line for the best of each method."""
    found = places(records)
    if not found:
        return fragments.NOTHING
    head = (
        "machine and model",
        "answer",
        "plain tokens/s",
        "best of each method: S, accepted",
        "lossless",
        "memory",
    )
    rows = [
        (
            f"{literal(place.first.machine_name)}, {literal(place.first.model_name)}",
            f"**{place.answer}**",
            _rate(place.plain),
            "<br>".join(_line(line) for _, line in place.best.iterrows()) or "-",
            f"{sum(r.lossless for r in place.records)} of "
            f"{sum(r.judged for r in place.records)}",
            _memory(place),
        )
        for place in found
    ]
    text = fragments.table(head, rows)
    if not any(place.first.device == "metal" for place in found):
        text += "\n\n" + fragments.MAC_MISSING.removeprefix("- ")
    return text


def details(records: Sequence[Record]) -> str:
    """Below a heading for each machine and model: the best of every method, in full."""
    parts = []
    head = (
        "method",
        "draft",
        "draft tokens",
        "S",
        "predicted S",
        "without looping texts",
        "acceptance",
        "peak memory",
        "verdict",
        "data",
    )
    for place in places(records):
        rows = [
            (
                called(line),
                line["draft"],
                line["num_draft_tokens"],
                f"{line['speedup']:.2f}{fragments.interval(line)}",
                f"{line['predicted_speedup']:.2f}",
                _or_dash(line["speedup_without_loops"], ".2f"),
                f"{line['acceptance_rate']:.0%}",
                f"{line['peak_memory_ratio'] - 1:+.1%}",
                line["verdict"],
                f"{{download}}`CSV <../{line['data']}>`",
            )
            for _, line in place.best.iterrows()
        ]
        name = f"{literal(place.first.machine_name)}, {literal(place.first.model_name)}"
        parts.append(f"**{name}**\n\n{fragments.table(head, rows)}")
    return "\n\n".join(parts) or fragments.NOTHING


def short_answer(records: Sequence[Record]) -> str:
    """Whether it pays on a Mac, what was found where it was measured, and why."""
    found = places(records)
    macs = [place for place in found if place.first.device == "metal"]
    text = [_on_macs(macs)]
    if others := [place for place in found if place.first.device != "metal"]:
        text.append(" ".join(["Elsewhere:", "; ".join(map(_one, others)) + "."]))
    if points := _why(records):
        text.append(points)
    return "\n".join(text)


def _on_macs(macs: Sequence[Place]) -> str:
    if not macs:
        return (
            "**On your Mac: not yet measured here**; `make study` measures it and puts "
            "the answer in this place."
        )
    return "**On a Mac:** " + "; ".join(map(_one, macs)) + "."


def _one(place: Place) -> str:
    """What to do with one model on one machine, half a sentence."""
    where = (
        f"on {literal(place.first.machine_name)} with {literal(place.first.model_name)}"
    )
    if (winner := place.winner) is not None:
        return (
            f"{where} {called(winner)} pays, at {winner['speedup']:.2f} times the plain "
            f"speed{fragments.interval(winner)}" + _but(place, winner)
        )
    no = "there are too few prompts for a verdict"
    if place.answer == DECLINED:
        no = "no draft pays beyond doubt, and the answer is to decline"
    if place.best.empty:
        return f"{where} {no}"
    best = place.best.loc[place.best["speedup"].idxmax()]
    return (
        f"{where} {no}: the nearest, {called(best)}, runs at {best['speedup']:.2f} times "
        f"the plain speed{fragments.interval(best)}"
    )


def _but(place: Place, winner: pd.Series) -> str:
    """What skipping the middle gives there, if that is not what pays."""
    skip = place.best[place.best["column"] == methods.SKIP]
    if skip.empty or winner["column"] == methods.SKIP:
        return ""
    line = skip.iloc[0]
    return (
        f", while skipping middle layers gives {line['speedup']:.2f}"
        f"{fragments.interval(line)} at best"
    )


def _why(records: Sequence[Record]) -> str:
    """How many configurations clear their cost, and what is left once they verify."""
    shown = plane.shown(records)
    points = plane.points(shown)
    if points.empty:
        return ""
    above = points["acceptance_rate"] > points["cost_ratio"]
    faster = points["verdict"] == "faster"
    verify = {
        int(m): v
        for record in shown
        for m, v in record.facts.get("costs", {}).get("verify_ratio", {}).items()
    }
    rows = [m for m in (3, 2, *sorted(verify)) if m in verify][:1]
    cost = ""
    if rows:
        cost = (
            f"; verifying is not free, a pass over {rows[0]} rows costs "
            f"{verify[rows[0]]:.2f} steps"
        )
    return (
        "A draft pays only where its acceptance exceeds its cost, above the diagonal of "
        f"the figure: of {len(points)} configurations measured on "
        f"{literal(shown[0].machine_name)}, {int(above.sum())} lie there, and "
        f"{int(faster.sum())} win by the clock beyond doubt{cost}."
    )


def _lines(record: Record) -> pd.DataFrame:
    own = methods.labelled(record)
    own = own[own["temperature"] == 0]
    ruled = own["num_draft_tokens"] == AUTO
    columns = own["method"].map(methods.column)
    return own.assign(
        column=columns.mask(ruled, RULE),
        data=f"{RESULTS}/{record.machine}/{record.model}/{record.experiment}.csv",
    )


def _line(line: pd.Series) -> str:
    """One method in a line of its own, which does not wrap."""
    text = (
        f"{line['column']} {line['speedup']:.2f}{fragments.interval(line)}, "
        f"{line['acceptance_rate']:.0%}"
    )
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _memory(place: Place) -> str:
    """Peak memory of the answer over plain decoding's."""
    if (winner := place.winner) is None:
        return "as plain"
    return f"{winner['peak_memory_ratio'] - 1:+.1%}"


def _rate(found: Estimate) -> str:
    digits = 0 if found.value >= 100 else 1
    text = f"{found.value:.{digits}f}"
    if not math.isfinite(found.low):
        return text
    return f"{text} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _or_dash(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"
