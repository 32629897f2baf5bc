"""The book's first figure: every configuration measured on one machine, in one plane.

Each run that drafts a fixed number of tokens gives points: the acceptance rate and the
cost ratio of its greedy configurations, whatever the method. A rule that chooses its own
length has no place here. Machines are never pooled: it is the machine of the largest
and latest run. Needs no MLX.

    records = shown(latest(collect(root)))
    svg(draw(points(records), reference.post(root)))
"""

from collections.abc import Sequence

import pandas as pd
from matplotlib import patheffects

from selfspec.study import figures, layerskip_summary
from selfspec.study.experiments import AUTO, EXPERIMENTS
from selfspec.study.methods import labelled, order
from selfspec.study.palette import look
from selfspec.study.run_records import Record, headlines, of_experiment

FIXED_LENGTH = tuple(name for name in EXPERIMENTS if name != AUTO)
WORDS = ("method", "draft", "num_draft_tokens", "verdict")
COLUMNS = (
    *WORDS,
    *("cost_ratio", "acceptance_rate", "acceptance_low", "acceptance_high"),
    *("speedup", "low", "high"),
)
# Of a name on the figure: width a letter, height, distance to its mark
_LETTER, _LINE, _GAP = 0.0165, 0.035, 0.018
_HALO = {
    "path_effects": [patheffects.withStroke(linewidth=2.5, foreground="white")],
}


def shown(records: Sequence[Record]) -> list[Record]:
    """The runs whose configurations the figure shows: one machine's, the largest each."""
    chosen = headlines(of_experiment(records, *FIXED_LENGTH))
    if not chosen:
        return []
    machine = max(chosen, key=lambda record: record.rank).machine
    same = [record for record in chosen if record.machine == machine]
    return sorted(same, key=lambda record: FIXED_LENGTH.index(record.experiment))


def points(records: Sequence[Record]) -> pd.DataFrame:
    """One line a configuration: COLUMNS, and the model that it was measured with."""
    tables = [
        _points(record).assign(model=record.model_name)[["model", *COLUMNS]]
        for record in records
    ]
    if not tables:
        numbers = {name: float for name in COLUMNS if name not in WORDS}
        return pd.DataFrame(columns=["model", *COLUMNS]).astype(numbers)
    # a lookup that never found anything drafted nothing and has no rate
    found = pd.concat(tables, ignore_index=True)
    return found[found["acceptance_rate"].notna()]


def draw(found: pd.DataFrame, post: pd.DataFrame):
    """The plane, one mark a configuration, colour and shape by method.

    Args:
        found: of `points`.
        post: of reference.post().
    """
    figure, ax = figures.plane_frame(found["cost_ratio"], post)
    names = order(found["method"])
    for name in names:
        part, (colour, marker) = found[found["method"] == name], _look(name)
        x = part["cost_ratio"]
        figures.acceptance_intervals(ax, x, part, colour, alpha=0.3)
        ax.scatter(
            x,
            part["acceptance_rate"],
            color=colour,
            marker=marker,
            s=45,
            alpha=0.85,
            linewidth=0,
            zorder=4,
            clip_on=False,  # a draft that costs nothing stands on the edge
            label=name,
        )
    for name, (x, y) in label_places(found).items():
        ax.text(x, y, name, color=_look(name)[0], fontsize="small", zorder=6, **_HALO)
    figures.legend(figure)
    return figure


def label_places(found: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Where each method's name stands: beside one of its marks, on as little as can be.

    Lower left corner of the name, in the plane's own units.
    """
    marks = found[["cost_ratio", "acceptance_rate"]].to_numpy(float)
    taken: list[tuple[float, float, float, float]] = []
    places = {}
    for name in order(found["method"]):
        own = found[found["method"] == name]
        wide, high = _LETTER * len(name), _LINE
        best = None
        for x, y in own[["cost_ratio", "acceptance_rate"]].to_numpy(float):
            for left in (x + _GAP, x - _GAP - wide, x - wide / 2):
                for low in (y - high / 2, y + _GAP, y - _GAP - high):
                    box = (left, low, left + wide, low + high)
                    cost = _covered(box, marks, taken)
                    if best is None or cost < best[0]:
                        best = (cost, box)
        if best:
            taken.append(best[1])
            places[name] = (float(best[1][0]), float(best[1][1]))
    return places


def _covered(box, marks, taken) -> float:
    """Marks under a box; names under it and edges across it count many times."""
    left, low, right, top = box
    inside = (marks[:, 0] > left - 0.01) & (marks[:, 0] < right + 0.01)
    inside &= (marks[:, 1] > low - 0.01) & (marks[:, 1] < top + 0.01)
    others = sum(left < r and right > a and low < t and top > b for a, b, r, t in taken)
    outside = left < 0.01 or right > 1.04 or low < 0.08 or top > 0.92
    return int(inside.sum()) + 20 * others + 50 * outside


def _look(name: str) -> tuple[str, str]:
    found = look(name)
    return found.colour, found.marker


def describe(found: pd.DataFrame) -> str:
    """Alt text, from the same data."""
    text = figures.describe_plane(found)
    if found.empty:
        return text
    counts = ", ".join(
        f"{name} {(found['method'] == name).sum()}" for name in order(found["method"])
    )
    return f"{text} By method: {counts}."


def _points(record: Record) -> pd.DataFrame:
    return layerskip_summary.fixed(labelled(record))
