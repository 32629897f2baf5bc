"""Figures of a fitted exit. One function each, data in, figure out. No MLX.

figures.show(fitted_figures.learning(curve, needs), name="learning", alt=...)
"""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from selfspec.study import fitted_summary, methods
from selfspec.study.figures import (
    BREAK_EVEN,
    LEGEND_HEIGHT,
    REFERENCE_COLOUR,
    legend,
    plane_frame,
)
from selfspec.study.palette import MARKERS, METHODS, look

FITTED_COLOUR = METHODS["fitted exit"].colour


def learning(curve: pd.DataFrame, needs: Mapping[str, Any]):
    """Held-out acceptance against tokens read and against minutes, with what is needed.

    Args:
        curve: of `fitted_summary.curve`.
        needs: break_even and needed of the run.
    """
    figure, axes = plt.subplots(
        1, 2, figsize=(7.4, 3.1 + LEGEND_HEIGHT), sharey=True, squeeze=False
    )
    for ax, (column, words) in zip(
        axes[0],
        (("tokens", "tokens read"), ("minutes", "minutes of training")),
        strict=True,
    ):
        ax.plot(
            curve[column],
            100 * curve["agreed"],
            color=FITTED_COLOUR,
            marker="o",
            markersize=4,
            label="a token is kept, held-out text",
        )
        for name, style, what in (
            ("break_even", "--", "break-even"),
            ("needed", ":", f"{needs['goal']:g} times the speed"),
        ):
            if needs[name] is not None:
                ax.axhline(
                    100 * needs[name],
                    color="black",
                    linewidth=1,
                    linestyle=style,
                    label=what,
                )
        ax.set(xlabel=words, ylim=(0, 100))
    axes[0][0].set_ylabel("per-token acceptance (%)")
    legend(figure)
    return figure


def describe_learning(curve: pd.DataFrame, needs: Mapping[str, Any]) -> str:
    """Alt text of `learning`, from the same data."""
    first, last = curve.iloc[0], curve.iloc[-1]
    parts = [
        f"{what} needs {needs[name]:.0%}"
        for name, what in (
            ("break_even", "break-even"),
            ("needed", f"{needs['goal']:g} times the speed"),
        )
        if needs[name] is not None
    ]
    return (
        "Per-token acceptance on held-out text against tokens read and minutes of "
        f"training: from {first['agreed']:.0%} before to {last['agreed']:.0%} after "
        f"{int(last['tokens'])} tokens and {last['minutes']:.1f} minutes, at best "
        f"{curve['agreed'].max():.0%}; "
        + ("; ".join(parts) or "no acceptance breaks even")
        + "."
    )


def speeds(table: pd.DataFrame, published: pd.DataFrame):
    """S of every case with its interval; others' published figures as hollow marks.

    Args:
        table: of `draft_summary.summarise`.
        published: of reference.fitted_exits.
    """
    names = [_name(line) for line in table.to_dict("records")]
    height = 0.34 * (len(names) + len(published)) + 1.2
    figure, ax = plt.subplots(figsize=(6.4, height + LEGEND_HEIGHT))
    ax.axvline(1, **BREAK_EVEN)
    for method, part in _by_method(table.assign(place=range(len(table)))):
        own = look(method)
        for line in part[part["low"].notna()].to_dict("records"):
            ax.hlines(line["place"], line["low"], line["high"], own.colour, linewidth=2)
        ax.scatter(
            part["speedup"],
            part["place"],
            color=own.colour,
            marker=own.marker,
            zorder=4,
            label=method,
        )
    rows = range(len(names), len(names) + len(published))
    ax.scatter(
        published["speedup"],
        list(rows),
        marker="D",
        facecolors="none",
        edgecolors=REFERENCE_COLOUR,
        label="published elsewhere, at best",
    )
    names += [f"{method}, published" for method in published["method"]]
    ax.set(
        xlabel="speedup S",
        yticks=range(len(names)),
        yticklabels=names,
        ylim=(len(names) - 0.5, -0.5),  # the first on top
    )
    legend(figure)
    return figure


def describe_speeds(table: pd.DataFrame, published: pd.DataFrame) -> str:
    """Alt text of `speeds`, from the same data."""
    parts = [
        f"{_name(line)} {line['speedup']:.2f}" for line in table.to_dict("records")
    ]
    theirs = [
        f"{line['method']} up to {line['speedup']:.2f}"
        for line in published.to_dict("records")
    ]
    return (
        f"Speedup of every case: {'; '.join(parts)}. A dashed line marks break-even. "
        f"Hollow marks, published elsewhere: {'; '.join(theirs)}."
    )


def path(curve: pd.DataFrame, table: pd.DataFrame):
    """The acceptance-cost plane: the bridge's way up while it learnt, and every draft.

    Held-out acceptance of the looks is of one draft length, each mark of its own.
    """
    line = fitted_summary.best(table)
    cost = line["cost_ratio"]
    shown = table[table["acceptance_rate"].notna()]
    figure, ax = plane_frame(pd.concat([shown["cost_ratio"], pd.Series([cost])]))
    ax.plot(
        [cost] * len(curve),
        curve["acceptance"],
        color=FITTED_COLOUR,
        linewidth=1.2,
        marker=".",
        markersize=5,
        alpha=0.7,
        label="the bridge while it was fitted, held-out text",
        zorder=3,
    )
    for method, part in _by_method(shown):
        own = look(method)
        ax.scatter(
            part["cost_ratio"],
            part["acceptance_rate"],
            color=own.colour,
            marker=own.marker,
            s=45,
            zorder=4,
            clip_on=False,  # a draft that costs nothing stands on the edge
            label=method,
        )
    legend(figure)
    return figure


def describe_path(curve: pd.DataFrame, table: pd.DataFrame) -> str:
    """Alt text of `path`, from the same data."""
    line = fitted_summary.best(table)
    above = table["acceptance_rate"] > table["cost_ratio"]
    return (
        "Acceptance rate against cost ratio. The bridge rises at a cost ratio of "
        f"{line['cost_ratio']:.2f} from {curve['acceptance'].iloc[0]:.0%} to "
        f"{curve['acceptance'].max():.0%} accepted, in rounds of "
        f"{int(curve['num_draft_tokens'].iloc[0])}; {int(above.sum())} of {len(table)} "
        "timed cases lie above the diagonal."
    )


def domains(rows: pd.DataFrame, table: pd.DataFrame):
    """S of every prompt under the fitted exit at its best length, by domain."""
    part = fitted_summary.rows_of(rows, fitted_summary.best(table))
    names = list(dict.fromkeys(part["domain"]))
    figure, ax = plt.subplots(figsize=(6.4, 0.5 * len(names) + 1.2))
    ax.axvline(1, **BREAK_EVEN)
    for place, domain in enumerate(names):
        own = part[part["domain"] == domain]
        ax.scatter(
            own["speedup"],
            [place] * len(own),
            color=FITTED_COLOUR,
            marker=MARKERS[place % len(MARKERS)],
            alpha=0.8,
            zorder=3,
        )
    ax.set(
        xlabel="speedup S",
        yticks=range(len(names)),
        yticklabels=names,
        ylim=(len(names) - 0.5, -0.5),
    )
    return figure


def describe_domains(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Alt text of `domains`, from the same data."""
    part = fitted_summary.rows_of(rows, fitted_summary.best(table))
    spread = part.groupby("domain", sort=False)["speedup"]
    parts = [
        f"{domain} {low:.2f} to {high:.2f}"
        for (domain, low), high in zip(spread.min().items(), spread.max(), strict=True)
    ]
    return (
        "Speedup of each prompt under the fitted exit at its best length, by domain: "
        f"{'; '.join(parts)}. A dashed line marks break-even."
    )


def _by_method(table: pd.DataFrame):
    """(method, its lines) in the order of the book."""
    kinds = table["draft"].map(methods.name)
    return [(kind, table[kinds == kind]) for kind in methods.order(kinds)]


def _name(line) -> str:
    return f"{line['draft']}, {line['num_draft_tokens']}"
