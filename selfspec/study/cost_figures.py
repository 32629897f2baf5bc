"""Figures of what a step costs and what that predicts: data in, figure out. No MLX.

Each figure has a `describe_` beside it,
which says in words what it shows, from the same data.

    figures.show(cost_figures.verify(curves, 2, apple), name="verify", alt=..., ...)
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from selfspec.costs.draft_length import required_acceptance
from selfspec.study.draft_summary import prediction_error
from selfspec.study.figures import BREAK_EVEN, LEGEND_HEIGHT, REFERENCE_COLOUR, legend
from selfspec.study.methods import name as method_name
from selfspec.study.methods import order
from selfspec.study.palette import INK, MARKERS, QUIET, look
from selfspec.study.palette import PARTS as PART_COLOURS
from selfspec.study.reference import Curve

PARTS = ("attention", "mlp", "layer", "head", "rest")
PART_NAMES = {
    "attention": "attention",
    "mlp": "MLP",
    "layer": "norms and additions",
    "head": "head",
    "rest": "embedding, launches, rest",
}
MOST_ROWS = 16
LENGTHS = tuple(range(1, 9))
COSTS = tuple(round(0.05 * i, 2) for i in range(0, 21))
_LINES = ("-", "--", "-.", ":")
_BAND = 0.1  # beyond it a prediction is named and explained


# Verification


def verify(
    curves: Mapping[int, Mapping[int, float]], chosen: int, apple: Sequence[Curve]
):
    """v(m): this machine's thread counts, and what others published, thin and grey.

    Args:
        curves: BLAS threads (0 on a GPU) -> rows -> v.
        chosen: the thread count that the study runs at.
    """
    figure, ax = plt.subplots(figsize=(6.4, 4.4 + 2 * LEGEND_HEIGHT))
    for marker, (threads, ratios) in zip(cycle("os^v"), curves.items(), strict=False):
        rows = sorted(ratios)
        used = threads in (chosen, 0)
        ax.plot(
            rows,
            [ratios[m] for m in rows],
            marker=marker,
            color=INK if used else QUIET,
            linewidth=2.5 if used else 1.5,
            label=threads_in_words(threads, chosen),
            zorder=4,
        )
    for number, curve in enumerate(apple):
        known = sorted({1: 1.0, **curve.verify_ratio}.items())
        ax.plot(
            *zip(*known, strict=True),
            color=REFERENCE_COLOUR,
            linewidth=0.8,
            linestyle=_LINES[number % len(_LINES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=3,
            alpha=0.8,
            label=f"{curve.name} [{curve.source}]",
        )
    ax.axhline(1, **BREAK_EVEN)
    ax.set(
        xlabel="rows m in a pass",
        ylabel="v(m), in plain steps",
        xlim=(0.5, MOST_ROWS + 0.5),
        ylim=(0, None),
    )
    _long_legend(figure, ax)
    return figure


def _long_legend(figure, ax) -> None:
    """Two columns of small print below, as high as it has lines."""
    handles, labels = ax.get_legend_handles_labels()
    inches = 0.2 * math.ceil(len(labels) / 2) + 0.15
    figure.tight_layout(rect=(0, inches / figure.get_figheight(), 1, 1))
    figure.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=2,
        frameon=False,
        fontsize="x-small",
    )


def threads_in_words(threads: int, chosen: int) -> str:
    """'2 threads (used)'; a GPU has no BLAS threads."""
    if threads == 0:
        return "this machine"
    words = f"{threads} thread{'' if threads == 1 else 's'}"
    return f"{words} (used)" if threads == chosen else words


def describe_verify(
    curves: Mapping[int, Mapping[int, float]], chosen: int, apple: Sequence[Curve]
) -> str:
    """Alt text of `verify`."""
    parts = []
    for threads, ratios in curves.items():
        shown = [m for m in (2, 4, 8, 16) if m in ratios] or sorted(ratios)[:1]
        values = ", ".join(f"v({m}) = {ratios[m]:.2f}" for m in shown)
        parts.append(f"{threads_in_words(threads, chosen)}: {values}")
    chips = ", ".join(dict.fromkeys(curve.chip for curve in apple))
    others = f" Thin grey lines are {len(apple)} published curves ({chips})."
    return (
        "Cost of a pass over m rows in plain steps, on this machine. "
        f"{'; '.join(parts)}.{others if apple else ''}"
    )


# Where a step goes


def step_parts(parts: pd.DataFrame):
    """Milliseconds of a step by block, stacked, one bar a context length.

    Args:
        parts: index context length, columns PARTS, in seconds.
    """
    figure, ax = plt.subplots(figsize=(6.4, 3.8 + LEGEND_HEIGHT))
    below = np.zeros(len(parts))
    places = [f"{length}" for length in parts.index]
    for part in PARTS:
        height = 1000 * parts[part].to_numpy()
        colour = PART_COLOURS[part]
        ax.bar(places, height, bottom=below, color=colour, label=PART_NAMES[part])
        below += height
    ax.set(xlabel="tokens in the cache", ylabel="milliseconds a step")
    ax.grid(visible=False, axis="x")
    legend(figure)
    return figure


def describe_step_parts(parts: pd.DataFrame) -> str:
    """Alt text of `step_parts`."""
    lines = []
    for length in (parts.index[0], parts.index[-1]):
        whole = parts.loc[length].sum()
        shares = ", ".join(
            f"{PART_NAMES[part]} {parts.loc[length, part] / whole:.0%}"
            for part in PARTS
        )
        lines.append(f"after {length} tokens {1000 * whole:.1f} milliseconds: {shares}")
    return f"Time of a plain step by block, stacked. {'; '.join(dict.fromkeys(lines))}."


# Break-even


def required(verify_ratio: Mapping[int, float], overhead_ratio: float) -> pd.DataFrame:
    """The least per-token acceptance that breaks even; infinity where none does.

    Returns:
        Index draft length, columns cost ratio.
    """
    return pd.DataFrame(
        [
            [
                required_acceptance(
                    1.0,
                    num_draft_tokens=length,
                    cost_ratio=cost,
                    verify_ratio=verify_ratio,
                    overhead_ratio=overhead_ratio,
                )
                for cost in COSTS
            ]
            for length in LENGTHS
        ],
        index=list(LENGTHS),
        columns=list(COSTS),
    )


def break_even(needed: pd.DataFrame):
    """The break-even map: required acceptance over c and draft length.

    Args:
        needed: of `required`.
    """
    figure, ax = plt.subplots(figsize=(6.8, 3.9))
    shown = np.ma.masked_invalid(needed.to_numpy())
    colours = plt.get_cmap("viridis").with_extremes(bad="#dddddd")
    half = (needed.columns[1] - needed.columns[0]) / 2
    image = ax.imshow(
        shown,
        origin="lower",
        aspect="auto",
        cmap=colours,
        vmin=0,
        vmax=1,
        extent=(
            needed.columns[0] - half,
            needed.columns[-1] + half,
            needed.index[0] - 0.5,
            needed.index[-1] + 0.5,
        ),
    )
    ax.grid(visible=False)
    ax.set(
        xlabel="cost ratio c (draft step / plain step)",
        ylabel="draft tokens a round",
        yticks=list(needed.index),
    )
    figure.colorbar(image, label="per-token acceptance needed")
    figure.text(0.01, 0.01, "grey: no acceptance is enough", fontsize="small")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return figure


def describe_break_even(needed: pd.DataFrame) -> str:
    """Alt text of `break_even`."""
    parts = []
    for length in (needed.index[0], 4, needed.index[-1]):
        reach = [c for c in needed.columns if math.isfinite(needed.loc[length, c])]
        if not reach:
            parts.append(f"{length} draft tokens never break even")
            continue
        cheapest, dearest = reach[0], reach[-1]
        parts.append(
            f"with {length} draft tokens it rises from "
            f"{needed.loc[length, cheapest]:.2f} at c = {cheapest:g} to "
            f"{needed.loc[length, dearest]:.2f} at c = {dearest:g}"
            + (", beyond which none is enough" if dearest < needed.columns[-1] else "")
        )
    return (
        "Map of the per-token acceptance needed to break even, over cost ratio and "
        f"draft length: {'; '.join(parts)}."
    )


# Prediction


def predicted(table: pd.DataFrame):
    """Predicted against measured speedup, with the identity line, one panel a kind.

    Args:
        table: of draft_summary.summarise.
    """
    panels = {
        "predicted_speedup": "acceptance as observed",
        "predicted_held_out": "acceptance from held-out prompts",
    }
    figure, axes = plt.subplots(
        1, 2, figsize=(7.4, 3.9 + LEGEND_HEIGHT), sharex=True, sharey=True
    )
    values = table[["speedup", *panels]].to_numpy()
    low, high = 0.9 * np.nanmin(values), 1.1 * np.nanmax(values)
    kinds = table["draft"].map(method_name)
    for ax, (column, title) in zip(axes, panels.items(), strict=True):
        ax.plot([low, high], [low, high], **BREAK_EVEN)
        ax.fill_between(
            [low, high],
            [low * (1 - _BAND), high * (1 - _BAND)],
            [low * (1 + _BAND), high * (1 + _BAND)],
            color=REFERENCE_COLOUR,
            alpha=0.12,
            linewidth=0,
        )
        for name in order(kinds):
            part = table[kinds == name]
            known = part["low"].notna()
            if known.any():
                spans = (part[column][known], part["low"][known], part["high"][known])
                ax.hlines(*spans, look(name).colour, alpha=0.35, linewidth=1)
            ax.scatter(
                part["speedup"],
                part[column],
                color=look(name).colour,
                marker=look(name).marker,
                s=40,
                label=name,
                zorder=3,
            )
        ax.set(
            title=title,
            xlabel="measured S",
            ylabel="predicted S",
            xlim=(low, high),
            ylim=(low, high),
        )
    legend(figure)
    return figure


def describe_predicted(table: pd.DataFrame) -> str:
    """Alt text of `predicted`."""
    parts = []
    for column, words in (
        ("predicted_speedup", "With the observed acceptance"),
        ("predicted_held_out", "with that of held-out prompts"),
    ):
        errors = prediction_error(table, column)
        parts.append(
            f"{words} the median miss is {errors.median():.1%}, the largest "
            f"{errors.max():.0%}, and {int((errors <= _BAND).sum())} lie within 10%"
        )
    return (
        f"Predicted against measured speedup of {len(table)} configurations, around the "
        f"line of equality. {'; '.join(parts)}."
    )
