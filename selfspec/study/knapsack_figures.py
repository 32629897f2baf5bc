"""Figures of the choice of blocks. One function each, facts in, figure out. No MLX.

figures.show(knapsack_figures.frontiers(facts), name="frontiers", alt=..., caption=...)
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from selfspec.study.figures import BREAK_EVEN, LEGEND_HEIGHT, legend
from selfspec.study.knapsack_sets import sets_of
from selfspec.study.methods import name as method_name
from selfspec.study.palette import INK, MARKERS, QUIET, SERIES, look
from selfspec.study.palette import PARTS as PART_COLOURS
from selfspec.study.set_statistics import margin

PARTS = ("in_sample", "proxy", "search")
Facts = Mapping[str, Any]


def importance(facts: Facts):
    """Share of tokens lost without each block alone, over depth."""
    found = pd.DataFrame(facts["importance"])
    figure, ax = plt.subplots(figsize=(6.4, 3.2 + LEGEND_HEIGHT))
    for shift, kind, colour, name in (
        (-0.2, "attention", PART_COLOURS["attention"], "attention"),
        (0.2, "mlp", PART_COLOURS["mlp"], "MLP"),
    ):
        part = found[found["kind"] == kind]
        ax.bar(part["layer"] + shift, 100 * part["loss"], 0.4, color=colour, label=name)
    ax.set(xlabel="layer", ylabel="tokens lost without it (%)")
    legend(figure)
    return figure


def describe_importance(facts: Facts) -> str:
    """Alt text of `importance`."""
    found = pd.DataFrame(facts["importance"])
    worst = found.loc[found["loss"].idxmax()]
    least = found.sort_values("loss").head(3)
    names = ", ".join(f"{_kind(r.kind)} {r.layer}" for r in least.itertuples())
    return (
        "Share of first draft tokens that no longer agree when one block is left out, "
        f"over depth. The dearest to lose is {_kind(worst['kind'])} {worst['layer']} "
        f"({worst['loss']:.0%}); the least missed are {names} "
        f"(up to {least['loss'].max():.1%})."
    )


def frontiers(facts: Facts):
    """Held-out agreement over cost ratio, one line a selector; the diagonal is break-even.

    Sets with the whole head stand on the left, those that cut it down on the right.
    """
    figure, axes = plt.subplots(
        1, 2, figsize=(8, 4.2 + LEGEND_HEIGHT), sharex=True, sharey=True
    )
    looks = _looks(facts)
    for frontier in facts["frontiers"]:
        for ax, head in zip(axes, (False, True), strict=True):
            sets = [s for s in frontier["sets"] if bool(s.get("shortlist")) == head]
            name = frontier["selector"]
            _frontier(ax, sets, *looks[name], label=None if head else name)
    for ax, title in zip(axes, ("the whole head", "a shortlist"), strict=True):
        ax.plot([0, 1], [0, 1], **BREAK_EVEN)
        ax.set(xlabel="cost ratio c", xlim=(0.3, 1.02), ylim=(0, 1.02), title=title)
    axes[0].set_ylabel("first-token agreement, held out")
    legend(figure)
    return figure


def _looks(facts: Facts) -> dict[str, tuple[str, str]]:
    """Colour and marker of each selector, the same in every figure."""
    looks = zip(cycle(SERIES), cycle(MARKERS), strict=False)
    names = [frontier["selector"] for frontier in facts["frontiers"]]
    return dict(zip(names, looks, strict=False))


def _frontier(ax, sets: Sequence[Mapping[str, Any]], colour, marker, label) -> None:
    """One selector's line, with the interval of each set."""
    ordered = sorted(sets, key=lambda s: s["cost_ratio"])
    ax.plot(
        [s["cost_ratio"] for s in ordered],
        [s["held_out_agreement"] for s in ordered],
        color=colour,
        marker=marker,
        label=label,
    )
    for found in ordered:
        low, high = _interval(found["held_out"])
        if np.isfinite(low):
            ax.vlines(found["cost_ratio"], low, high, colour, alpha=0.5)


def describe_frontiers(facts: Facts) -> str:
    """Alt text of `frontiers`."""
    parts = []
    for frontier in facts["frontiers"]:
        if frontier["sets"]:
            best = max(frontier["sets"], key=lambda s: s["held_out_agreement"])
            parts.append(
                f"{frontier['selector']} up to {best['held_out_agreement']:.0%} at "
                f"c = {best['cost_ratio']:.2f}"
            )
    above = sum(_clears(s) for f in facts["frontiers"] for s in f["sets"])
    count = sum(len(f["sets"]) for f in facts["frontiers"])
    return (
        f"Held-out first-token agreement over cost ratio by selector: {'; '.join(parts)}."
        f" {above} of {count} sets lie above the diagonal."
    )


def optimism(facts: Facts):
    """Agreement on the texts that chose a set, against agreement on others."""
    sets = _sets(facts)
    figure, ax = plt.subplots(figsize=(4.6, 4.2 + LEGEND_HEIGHT))
    looks = _looks(facts)
    for name, part in sets.groupby("selector", sort=False):
        colour, marker = looks[name]
        ax.scatter(
            part["calibration"],
            part["held_out_agreement"],
            color=colour,
            marker=marker,
            label=name,
        )
    ax.plot([0, 1], [0, 1], **BREAK_EVEN)
    ax.set(
        xlabel="agreement on calibration windows",
        ylabel="agreement on other windows",
        xlim=(0, 1.02),
        ylim=(0, 1.02),
    )
    legend(figure)
    return figure


def describe_optimism(facts: Facts) -> str:
    """Alt text of `optimism`."""
    sets = _sets(facts)
    lost = sets["calibration"] - sets["held_out_agreement"]
    return (
        "Agreement of each set on the windows it was chosen on, against other windows: "
        f"on average {100 * lost.mean():.1f} points less on the others "
        f"(from {100 * lost.min():.1f} to {100 * lost.max():.1f})."
    )


def reliability(facts: Facts):
    """Share of tokens that agree among those of like cosine."""
    found = pd.DataFrame(facts["proxy"]["reliability"])
    middle = (found["low"] + found["high"]) / 2
    figure, ax = plt.subplots(figsize=(6.4, 3.4))
    ax.plot(middle, found["agreement"], color=INK, marker="o")
    ax.hlines(found["agreement"], found["low"], found["high"], INK, alpha=0.4)
    ax.set(
        xlabel="cosine similarity to the target's hidden state",
        ylabel="tokens that agree",
        ylim=(0, 1.02),
    )
    return figure


def describe_reliability(facts: Facts) -> str:
    """Alt text of `reliability`."""
    bins = facts["proxy"]["reliability"]
    first, last = bins[0], bins[-1]
    return (
        f"Share of {facts['proxy']['tokens']} draft tokens that agree, by cosine "
        f"similarity: from {first['agreement']:.0%} between {first['low']:.2f} and "
        f"{first['high']:.2f} to {last['agreement']:.0%} between {last['low']:.2f} and "
        f"{last['high']:.2f}."
    )


def regret(facts: Facts):
    """Mean regret of each selector on the small models, by the step that lost it."""
    names, means = _regret_parts(facts)
    figure, ax = plt.subplots(figsize=(6.4, 0.4 * len(names) + 1.2 + LEGEND_HEIGHT))
    places = range(len(names))
    # negative parts to the left of zero, so that bars never cover one another
    left, right = np.zeros(len(names)), np.zeros(len(names))
    for part, colour in zip(PARTS, SERIES, strict=False):
        values = means[part]
        start = np.where(values >= 0, right, left)
        ax.barh(places, values, left=start, color=colour, label=part.replace("_", "-"))
        right, left = right + np.maximum(values, 0), left + np.minimum(values, 0)
    ax.axvline(0, color="black", linewidth=1)
    ax.set(
        yticks=list(places),
        yticklabels=names,
        ylim=(len(names) - 0.5, -0.5),
        xlabel="optimum's S less the selector's",
    )
    legend(figure)
    return figure


def describe_regret(facts: Facts) -> str:
    """Alt text of `regret`."""
    names, means = _regret_parts(facts)
    total = sum(means[part] for part in PARTS)
    parts = ", ".join(f"{n} {t:.3f}" for n, t in zip(names, total, strict=True))
    return (
        "Mean regret against the optimum, in units of S, over "
        f"{len(facts['small_models'])} small models: {parts}."
    )


def online(facts: Facts):
    """S and the selector's share of the time, by how often it chooses."""
    found = pd.DataFrame(facts["online"])
    names = ["never" if i == 0 else str(i) for i in found["interval"]]
    figure, (left, right) = plt.subplots(1, 2, figsize=(6.8, 3.2))
    places = range(len(names))
    left.plot(places, found["speedup"], color=look("skip, chosen").colour, marker="o")
    left.axhline(1, **BREAK_EVEN)
    left.set(ylabel="speedup S")
    right.plot(places, 100 * found["share"], color=INK, marker="s")
    right.axhline(3, **BREAK_EVEN)
    right.set(ylabel="time spent choosing (%)", ylim=(0, None))
    for ax in (left, right):
        ax.set(xticks=list(places), xticklabels=names, xlabel="tokens between choices")
    figure.tight_layout()
    return figure


def describe_online(facts: Facts) -> str:
    """Alt text of `online`."""
    parts = ", ".join(
        _how_often(line["interval"])
        + f": S = {line['speedup']:.2f}, {line['share']:.1%} of the time"
        for line in facts["online"]
    )
    return f"Choosing again while decoding, {parts}. A dashed line marks 3%."


def _how_often(interval: int | str) -> str:
    if interval == 0:
        return "never"
    return f"every {interval} tokens" if isinstance(interval, int) else interval


def speedups(table: pd.DataFrame):
    """Measured S with its interval beside the predicted one, one row a configuration."""
    names = [configuration(line) for line in table.to_dict("records")]
    figure, ax = plt.subplots(figsize=(6.4, 0.36 * len(names) + 1.2 + LEGEND_HEIGHT))
    places = np.arange(len(names))
    for place, line in zip(places, table.to_dict("records"), strict=True):
        shown = look(method_name(line["draft"]))
        if np.isfinite(line["low"]):
            ax.hlines(place, line["low"], line["high"], shown.colour, linewidth=2)
        ax.scatter(line["speedup"], place, color=shown.colour, marker=shown.marker)
    ax.scatter([], [], color=INK, label="measured, with its interval")
    ax.scatter(
        table["predicted_speedup"],
        places,
        facecolors="none",
        edgecolors=QUIET,
        marker="d",
        label="predicted",
    )
    ax.axvline(1, **BREAK_EVEN)
    ax.set(
        yticks=places,
        yticklabels=names,
        ylim=(len(names) - 0.5, -0.5),
        xlabel="speedup S",
    )
    legend(figure)
    return figure


def describe_speedups(table: pd.DataFrame) -> str:
    """Alt text of `speedups`."""
    parts = "; ".join(
        f"{configuration(line)} {line['speedup']:.2f}"
        for line in table.to_dict("records")
    )
    return f"Measured speedup of each configuration: {parts}. Dashed: break-even."


def configuration(line: Mapping[str, Any]) -> str:
    """'skip 10 % (greedy), 2 tokens' of a line of the summary."""
    length = int(line["num_draft_tokens"])
    heat = f", T = {line['temperature']:g}" if line["temperature"] else ""
    return f"{line['draft']}, {length} token{'s' if length > 1 else ''}{heat}"


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap over windows, as everywhere; NaN for few."""
    found = margin(values, [0.0] * len(values))
    return found.low, found.high


def _sets(facts: Facts) -> pd.DataFrame:
    return pd.DataFrame(sets_of(facts))


def _clears(found: Mapping[str, Any]) -> bool:
    return found["held_out_agreement"] > found["cost_ratio"]


def _regret_parts(facts: Facts) -> tuple[list[str], dict[str, np.ndarray]]:
    models = facts["small_models"]
    names = list(models[0]["selectors"])
    return names, {
        part: np.array(
            [np.mean([m["selectors"][name][part] for m in models]) for name in names]
        )
        for part in PARTS
    }


def _kind(kind: str) -> str:
    return "MLP" if kind == "mlp" else kind
