"""Figures of the rule that declines. One function each, data in, figure out. No MLX.

figures.show(auto_figures.rule_and_fixed(compared, fixed), name="rule", alt=...)
"""

from itertools import cycle

import matplotlib.pyplot as plt
import pandas as pd

from selfspec.study.auto_summary import BOUND
from selfspec.study.figures import BREAK_EVEN, LEGEND_HEIGHT, legend
from selfspec.study.methods import name as method_name
from selfspec.study.palette import MARKERS, QUIET, SERIES, look

FIXED_MARKERS = ("D", "^", "s", "v", "P", "X")
_BOUND_LINE = {"color": QUIET, "linewidth": 1.5, "linestyle": ":"}


def rule_and_fixed(compared: pd.DataFrame, fixed: pd.DataFrame):
    """S of each draft under the rule, and at the fixed lengths that other runs timed.

    Args:
        compared: of `auto_summary.compare`, one line a draft.
        fixed: of `auto_summary.fixed_settings`.
    """
    figure, ax = _rows(compared)
    drafts = list(compared["draft"])
    colours = {draft: look(method_name(draft)).colour for draft in drafts}
    for place, line in enumerate(compared.to_dict("records")):
        colour = colours[line["draft"]]
        if not pd.isna(line["low"]):
            ax.hlines(place, line["low"], line["high"], colour, linewidth=2)
        ax.annotate(
            f"{line['speedup']:.2f}",
            (line["speedup"], place),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize="x-small",
            color=colour,
        )
    ax.scatter(
        compared["speedup"],
        range(len(drafts)),
        color=list(colours.values()),
        zorder=4,
        label='"auto", this run',
    )
    own = fixed[fixed["draft"].isin(drafts)]
    lengths = sorted(own["num_draft_tokens"].unique())
    for length, marker in zip(lengths, cycle(FIXED_MARKERS), strict=False):
        part = own[own["num_draft_tokens"] == length]
        places = [drafts.index(draft) + 0.22 for draft in part["draft"]]
        hues = [colours[draft] for draft in part["draft"]]
        ax.hlines(places, part["low"], part["high"], hues, linewidth=0.8, alpha=0.5)
        ax.scatter(
            part["speedup"],
            places,
            marker=marker,
            facecolors="none",
            edgecolors=hues,
            zorder=3,
            label=f"{length} tokens, other runs",
        )
    legend(figure)
    return figure


def every_prompt(rows: pd.DataFrame, compared: pd.DataFrame):
    """S of every prompt under the rule, one row of dots a draft, by domain.

    Args:
        rows: of the run.
        compared: gives the order of the drafts.
    """
    figure, ax = _rows(compared)
    drafts = list(compared["draft"])
    timed = rows[rows["speedup"].notna()]
    looks = zip(cycle(SERIES), cycle(MARKERS), strict=False)
    domains = zip(timed.groupby("domain", sort=True), looks, strict=False)
    for number, ((domain, part), (colour, marker)) in enumerate(domains):
        shift = 0.12 * (number - 1.5)
        ax.scatter(
            part["speedup"],
            [drafts.index(draft) + shift for draft in part["draft"]],
            s=22,
            color=colour,
            marker=marker,
            label=domain,
            zorder=3,
        )
    legend(figure)
    return figure


def describe_rule(compared: pd.DataFrame, fixed: pd.DataFrame) -> str:
    """Alt text of `rule_and_fixed`, from the same data."""
    parts = [
        f"{line['draft']} {line['speedup']:.2f}"
        + (
            f" (fixed lengths {line['worst_speedup']:.2f} to {line['best_speedup']:.2f})"
            if line["fixed"]
            else ""
        )
        for line in compared.to_dict("records")
    ]
    others = "" if fixed.empty else " Hollow marks are fixed lengths from other runs."
    return (
        "Speedup under the rule that declines, one row a draft: "
        f"{'; '.join(parts)}. A dotted line marks {BOUND:.2f}, a dashed one break-even."
        f"{others}"
    )


def describe_prompts(rows: pd.DataFrame) -> str:
    """Alt text of `every_prompt`, from the same data."""
    timed = rows[rows["speedup"].notna()]
    lowest = timed.loc[timed["speedup"].idxmin()]
    below = int((timed["speedup"] < BOUND).sum())
    return (
        f"Speedup of each of {len(timed)} pairs, one row a draft, coloured by domain: "
        f"from {timed['speedup'].min():.2f} ({lowest['draft']}, {lowest['domain']}) to "
        f"{timed['speedup'].max():.2f}; {below} lie below {BOUND:.2f}."
    )


def _rows(compared: pd.DataFrame):
    """Axes with a row for each draft, break-even and the bound."""
    drafts = list(compared["draft"])
    height = 0.55 * len(drafts) + 1.2
    figure, ax = plt.subplots(figsize=(6.4, height + LEGEND_HEIGHT))
    ax.axvline(1, **BREAK_EVEN)
    ax.axvline(BOUND, **_BOUND_LINE)
    ax.set(
        xlabel="speedup S",
        yticks=range(len(drafts)),
        yticklabels=drafts,
        ylim=(len(drafts) - 0.5, -0.5),  # the first draft on top
    )
    return figure, ax
