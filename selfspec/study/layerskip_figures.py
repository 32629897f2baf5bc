"""Figures of drafts that leave early. One function each, data in, figure out. No MLX.

figures.show(layerskip_figures.maps(measured, counted), name="map", alt=...)
"""

import math
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from selfspec.study.figures import (
    BREAK_EVEN,
    LEGEND_HEIGHT,
    REFERENCE_COLOUR,
    acceptance_intervals,
    legend,
    plane_frame,
)
from selfspec.study.methods import name as method_name
from selfspec.study.methods import order
from selfspec.study.palette import INK, MARKERS, QUIET, SERIES, look

# Arms of the training; what was taught looks as it does on the plane
COLOURS = {
    "baseline": QUIET,
    "ld-ee": look("exit, taught").colour,
    "ee": SERIES[2],
    "ld": SERIES[3],
}
SPARE = (SERIES[4], SERIES[8], SERIES[0], SERIES[5])
PANELS = {
    "exact_match": "exact match (%)",
    "agreement": "agrees with the last layer (%)",
    "perplexity": "perplexity",
}


def maps(measured: pd.DataFrame, counted: pd.DataFrame):
    """Speedup by exit layer and draft length: by layers counted, and by the clock.

    Args:
        measured: of `layerskip_summary.speed_grid`.
        counted: of `layerskip_summary.counted_grid`.
    """
    panels = {"by layer evaluations": counted, "by the clock": measured}
    height = 0.45 * max(len(measured), 2) + 1.4
    figure, axes = plt.subplots(1, 2, figsize=(7.4, height))
    values = np.concatenate([grid.to_numpy(float).ravel() for grid in panels.values()])
    reach = max(0.05, *np.abs(np.log2(values[np.isfinite(values)])))
    for ax, (title, grid) in zip(axes, panels.items(), strict=True):
        sns.heatmap(
            np.log2(grid.astype(float)),
            annot=grid.map(lambda value: f"{value:.2f}").to_numpy(),
            fmt="",
            center=0,
            vmin=-reach,
            vmax=reach,
            cmap="PuOr",  # told apart with any kind of colour vision
            cbar=False,
            linewidths=0.5,
            annot_kws={"fontsize": "small"},
            ax=ax,
        )
        ax.set(title=title, xlabel="draft tokens", ylabel="exit after layer")
        ax.tick_params(axis="y", rotation=0)
    figure.tight_layout()
    return figure


def describe_maps(measured: pd.DataFrame, counted: pd.DataFrame) -> str:
    """Alt text of `maps`, from the same data."""
    parts = []
    for words, grid in (("layer evaluations", counted), ("the clock", measured)):
        values = grid.stack()
        parts.append(
            f"by {words} from {values.min():.2f} (exit {values.idxmin()[0]}, "
            f"{values.idxmin()[1]} tokens) to {values.max():.2f} (exit "
            f"{values.idxmax()[0]}, {values.idxmax()[1]} tokens)"
        )
    return (
        "Two maps of the speedup over exit layer and draft length: "
        f"{'; '.join(parts)}. {int((measured > 1).sum().sum())} of "
        f"{int(measured.notna().sum().sum())} timed configurations lie above 1."
    )


def exits(scores: pd.DataFrame, arms: pd.DataFrame | None, *, answers: bool):
    """How every exit does: this model's marks, the trained arms as lines with ranges.

    Args:
        scores: of `layerskip_summary.scores`.
        arms: of `arms_table.by_exit`, where this model is one of theirs.
        answers: whether an exact match means anything.
    """
    panels = {k: v for k, v in PANELS.items() if answers or k != "exact_match"}
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3.0 * len(panels), 3.1 + LEGEND_HEIGHT), squeeze=False
    )
    for ax, (metric, words) in zip(axes[0], panels.items(), strict=True):
        scale = 1 if metric == "perplexity" else 100
        if arms is not None:
            for name, colour in _colours(arms["arm"]).items():
                part = arms[arms["arm"] == name]
                ax.plot(
                    part["exit_layer"],
                    scale * part[metric],
                    color=colour,
                    linewidth=1.4,
                    label=name,
                )
                ax.fill_between(
                    part["exit_layer"],
                    scale * part[f"{metric}_low"],
                    scale * part[f"{metric}_high"],
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
        ax.scatter(
            scores["exit_layer"],
            scale * scores[metric],
            color=INK,
            s=18,
            zorder=4,
            label="this model",
        )
        ax.set(xlabel="exit after layer", ylabel=words)
        if metric == "perplexity":
            ax.set_yscale("log")
        else:
            ax.set_ylim(0, 103)
    legend(figure)
    return figure


def describe_exits(scores: pd.DataFrame, *, answers: bool) -> str:
    """Alt text of `exits`, of this model's marks."""
    first, last = scores.iloc[0], scores.iloc[-1]
    half = scores.iloc[(len(scores) - 1) // 2]
    parts = []
    for line in (first, half, last):
        exact = f"exact match {line['exact_match']:.0%}, " if answers else ""
        parts.append(
            f"after layer {int(line['exit_layer'])} {exact}agreement with the last "
            f"layer {line['agreement']:.0%}, perplexity {line['perplexity']:.3g}"
        )
    return f"What each exit says, by layer: {'; '.join(parts)}."


def lead(table: pd.DataFrame):
    """How far the taught exits lie above the baseline's, with intervals over seeds.

    Args:
        table: of `arms_table.lead`.
    """
    figure, ax = plt.subplots(figsize=(6.0, 3.4))
    ax.axhline(0, **BREAK_EVEN)
    colour = COLOURS["ld-ee"]
    known = table[table["low"].notna()]
    ax.vlines(known["exit_layer"], 100 * known["low"], 100 * known["high"], colour)
    ax.scatter(table["exit_layer"], 100 * table["lead"], color=colour, zorder=3)
    ax.set(xlabel="exit after layer", ylabel="exact match, lead (points)")
    figure.tight_layout()
    return figure


def describe_lead(table: pd.DataFrame) -> str:
    """Alt text of `lead`."""
    parts = [
        f"layer {int(line['exit_layer'])} {100 * line['lead']:+.0f}"
        for line in table.to_dict("records")
    ]
    return (
        "Exact match of the taught exits less the baseline's, in points, by exit layer: "
        f"{', '.join(parts)}."
    )


def while_training(table: pd.DataFrame):
    """Perplexity of a few exits by training step, median and range over seeds.

    Args:
        table: of `arms_table.while_training`.
    """
    figure, ax = plt.subplots(figsize=(6.0, 3.4 + LEGEND_HEIGHT))
    looks = zip(cycle(SERIES), cycle(MARKERS), strict=False)
    for (layer, part), (colour, marker) in zip(
        table.groupby("exit_layer"), looks, strict=False
    ):
        ax.plot(
            part["step"],
            part["perplexity"],
            color=colour,
            marker=marker,
            markersize=4,
            label=f"after layer {layer}",
        )
        ax.fill_between(
            part["step"], part["low"], part["high"], color=colour, alpha=0.15
        )
    ax.set(xlabel="training step", ylabel="perplexity", yscale="log")
    legend(figure)
    return figure


def describe_while_training(table: pd.DataFrame) -> str:
    """Alt text of `while_training`."""
    parts = []
    for layer, part in table.groupby("exit_layer"):
        first, last = part.iloc[0], part.iloc[-1]
        parts.append(
            f"after layer {layer} {first['perplexity']:.3g} at step "
            f"{int(first['step'])} and {last['perplexity']:.3g} at step "
            f"{int(last['step'])}"
        )
    return f"Perplexity of exits while the baseline trains: {'; '.join(parts)}."


def depths(found: dict):
    """From which layer each token stays: one strip a text, a bar a token.

    Args:
        found: of `layerskip_facts.depths`.
    """
    examples = found["examples"]
    longest = max(len(one["tokens"]) for one in examples)
    figure, axes = plt.subplots(
        len(examples),
        1,
        figsize=(max(5.6, 0.24 * longest + 1.2), 2.1 * len(examples)),
        squeeze=False,
    )
    for ax, one in zip(axes[:, 0], examples, strict=True):
        ax.bar(range(len(one["depths"])), one["depths"], color=COLOURS["ld-ee"])
        ax.set_xticks(
            range(len(one["tokens"])),
            [_shown(token) for token in one["tokens"]],
            rotation=90,
            fontsize="x-small",
            family="monospace",
        )
        ax.set(ylabel="layer", ylim=(0, found["layers"]), xlim=(-0.6, longest - 0.4))
        ax.grid(visible=False, axis="x")
    figure.tight_layout()
    return figure


def describe_depths(found: dict) -> str:
    """Alt text of `depths`."""
    parts = [
        f"{len(one['depths'])} tokens, from layer {min(one['depths'])} to "
        f"{max(one['depths'])}"
        for one in found["examples"]
    ]
    return (
        "The first layer from which the best token stays the last layer's, token by "
        f"token, for {len(parts)} texts: {'; '.join(parts)}."
    )


def alone(table: pd.DataFrame, best: pd.Series, metric: str):
    """Early exit without verification: speed against what its text is worth.

    Args:
        table: of `layerskip_summary.alone`.
        best: the verified draft that is fastest, whose text is the model's own.
        metric: exact_match or agreement.
    """
    figure, ax = plt.subplots(figsize=(6.0, 3.6 + LEGEND_HEIGHT))
    ax.axvline(1, **BREAK_EVEN)
    for line in table.to_dict("records"):
        if not math.isnan(line["low"]):
            ax.hlines(
                100 * line[metric], line["low"], line["high"], COLOURS["baseline"]
            )
        ax.annotate(
            int(line["exit_layer"]),
            (line["speedup"], 100 * line[metric]),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize="small",
        )
    ax.scatter(
        table["speedup"],
        100 * table[metric],
        color=COLOURS["baseline"],
        marker="s",
        zorder=3,
        label="exit alone, by its layer",
    )
    ax.axvline(best["speedup"], color=COLOURS["ld-ee"], label="best verified draft")
    ax.set(xlabel="speedup S", ylabel=PANELS[metric], ylim=(0, 103))
    legend(figure)
    return figure


def describe_alone(table: pd.DataFrame, best: pd.Series, metric: str) -> str:
    """Alt text of `alone`."""
    parts = [
        f"exit {int(line['exit_layer'])} {line['speedup']:.2f} and {line[metric]:.0%}"
        for line in table.to_dict("records")
    ]
    words = PANELS[metric].removesuffix(" (%)")
    return (
        f"Speedup of early exit alone, and how often it holds ({words}): "
        f"{', '.join(parts)}. The best verified draft stands at {best['speedup']:.2f}."
    )


def plane(table: pd.DataFrame, published: pd.DataFrame, *, taught: bool = True):
    """The acceptance-cost plane: this run's drafts by kind, published ones hollow.

    Args:
        table: of draft_summary.summarise, fixed lengths.
        taught: whether the model's exits were trained.
        published: of reference.layerskip_speed, those with an acceptance rate.
    """
    figure, ax = plane_frame(table["cost_ratio"])
    kinds = table["draft"].map(lambda draft: method_name(draft, taught=taught))
    for kind in order(kinds):
        part = table[kinds == kind]
        colour = look(kind).colour
        acceptance_intervals(ax, part["cost_ratio"], part, colour, alpha=0.3)
        ax.scatter(
            part["cost_ratio"],
            part["acceptance_rate"],
            color=colour,
            marker=look(kind).marker,
            s=40,
            alpha=0.85,
            linewidth=0,
            zorder=4,
            label=kind,
        )
    ax.scatter(
        published["cost_ratio"],
        published["acceptance_rate"],
        marker="D",
        facecolors="none",
        edgecolors=REFERENCE_COLOUR,
        label="published, other machines",
        zorder=5,
    )
    legend(figure)
    return figure


def _shown(token: str) -> str:
    """A token as text of a figure; what cannot be printed is spelled out, for an SVG
    with a control character in it is no SVG."""
    token = token.strip(" ") or token
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)
    return shown.replace("$", r"\$")


def _colours(arms: pd.Series) -> dict[str, str]:
    spare = cycle(SPARE)
    return {name: COLOURS.get(name) or next(spare) for name in dict.fromkeys(arms)}
