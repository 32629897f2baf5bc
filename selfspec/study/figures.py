"""The study's figures: one function each, data in, matplotlib figure out.

Colours mean the same thing in every figure. A figure is shown with the words a reader
needs who cannot see it, computed from the same data; the page builder carries them to
the built page. Needs no MLX.

    show(figures.speedup(table, post), name="speedup", alt=..., caption=..., csv=...)
"""

from collections.abc import Sequence

import matplotlib

matplotlib.use("svg", force=False)
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import seaborn as sns  # noqa: E402

DRAFT_LENGTH_COLOURS = {2: "#0072b2", 3: "#d55e00", 5: "#009e73"}  # Okabe-Ito
REFERENCE_COLOUR = "#555555"
LEGEND_HEIGHT = 0.7  # inches below the panels
MARKERS = ("o", "s", "^", "D", "v")
_BREAK_EVEN = {"color": "black", "linewidth": 1, "linestyle": "--"}


def style() -> None:
    """White background (figures stay legible in dark mode), reproducible SVG."""
    sns.set_theme(style="whitegrid", context="notebook")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "selfspec",
            "svg.fonttype": "none",  # text stays text: sharp, searchable, small
            "savefig.facecolor": "white",
            "figure.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )


def show(figure, *, name: str, alt: str, caption: str, csv: str = "") -> None:
    """Display a figure as SVG, with the words that the page needs beside it.

    Args:
        name: short label, unique within the notebook; the page makes it unique.
        alt: what the figure shows, for those who cannot see it.
        caption: one or two sentences under the figure.
        csv: file name of the data, for the link under the figure.
    """
    import io

    from IPython.display import display

    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    words = {"name": name, "alt": alt, "caption": caption, "csv": csv}
    display(
        {"image/svg+xml": text.getvalue(), "text/plain": alt},
        raw=True,
        metadata={"selfspec": words},
    )


def speedup(table: pd.DataFrame, post: pd.DataFrame | None = None):
    """Speedup against skip fraction, one panel a mechanism, one line a draft length.

    Args:
        table: of `sweep_summary.summarise`.
        post: the post's published figures, drawn as hollow reference marks.
    """
    mechanisms, axes, figure = _panels(table, height=3.8)
    for ax, mechanism in zip(axes, mechanisms, strict=True):
        part = table[table["mechanism"] == mechanism]
        lengths = sorted(part["num_draft_tokens"].unique())
        for index, length in enumerate(lengths):
            line = part[part["num_draft_tokens"] == length].sort_values("skip_fraction")
            shift = (index - (len(lengths) - 1) / 2) * 0.4  # error bars side by side
            x = line["skip_fraction"] * 100 + shift
            colour = _colour(length, index)
            below, above = line["speedup"] - line["low"], line["high"] - line["speedup"]
            ax.errorbar(
                x,
                line["speedup"],
                yerr=np.vstack([below.fillna(0), above.fillna(0)]),
                color=colour,
                marker=MARKERS[index % len(MARKERS)],
                capsize=3,
                label=f"{length} draft tokens",
            )
            ax.plot(
                x, line["predicted_speedup"], color=colour, linestyle=":", linewidth=1.2
            )
        ax.axhline(1, **_BREAK_EVEN)
        if post is not None and mechanism == mechanisms[0]:
            ax.scatter(
                post["skip_fraction"] * 100,
                post["speedup"],
                marker="D",
                facecolors="none",
                edgecolors=REFERENCE_COLOUR,
                label="the post, on an M3",
                zorder=3,
            )
        ax.set(title=mechanism, xlabel="layers skipped (%)", ylabel="speedup S")
        ax.set_ylim(bottom=0)
    axes[0].plot([], [], color="black", linestyle=":", label="predicted")
    _legend(figure, axes[0])
    return figure


def acceptance(table: pd.DataFrame, post: pd.DataFrame | None = None):
    """Acceptance rate against skip fraction, one panel a mechanism."""
    mechanisms, axes, figure = _panels(table, height=3.6)
    for ax, mechanism in zip(axes, mechanisms, strict=True):
        part = table[table["mechanism"] == mechanism]
        for index, length in enumerate(sorted(part["num_draft_tokens"].unique())):
            line = part[part["num_draft_tokens"] == length].sort_values("skip_fraction")
            ax.plot(
                line["skip_fraction"] * 100,
                line["acceptance_rate"] * 100,
                color=_colour(length, index),
                marker=MARKERS[index % len(MARKERS)],
                label=f"{length} draft tokens",
            )
        if post is not None and mechanism == mechanisms[0]:
            known = post[post["acceptance_rate"].notna()]
            ax.scatter(
                known["skip_fraction"] * 100,
                known["acceptance_rate"] * 100,
                marker="D",
                facecolors="none",
                edgecolors=REFERENCE_COLOUR,
                label="the post, on an M3",
                zorder=3,
            )
        ax.set(
            title=mechanism,
            xlabel="layers skipped (%)",
            ylabel="acceptance rate (%)",
            ylim=(0, 100),
        )
    _legend(figure, axes[0])
    return figure


def plane(table: pd.DataFrame, post: pd.DataFrame | None = None):
    """The acceptance-cost plane: acceptance rate over cost ratio, and the diagonal.

    With v = 1 and o = 0 a draft pays above the diagonal and only there.

    Args:
        post: the post's figures with a `cost_ratio` column (from weight shares).
    """
    figure, ax = plt.subplots(figsize=(5.6, 5.2 + LEGEND_HEIGHT))
    ax.plot([0, 1], [0, 1], **_BREAK_EVEN)
    ax.fill_between([0, 1], [0, 1], 1, color="#009e73", alpha=0.07, linewidth=0)
    ax.text(0.03, 0.95, "a draft can pay", transform=ax.transAxes, va="top")
    ax.text(0.97, 0.05, "a draft loses", transform=ax.transAxes, ha="right")
    kinds = list(dict.fromkeys(table["mechanism"]))
    for kind, mechanism in enumerate(kinds):
        part = table[table["mechanism"] == mechanism]
        for index, length in enumerate(sorted(part["num_draft_tokens"].unique())):
            points = part[part["num_draft_tokens"] == length]
            ax.scatter(
                points["cost_ratio"],
                points["acceptance_rate"],
                color=_colour(length, index),
                marker=MARKERS[kind % len(MARKERS)],
                label=f"{mechanism}, {length} draft tokens",
                zorder=3,
            )
    if post is not None:
        known = post[post["acceptance_rate"].notna()]
        ax.scatter(
            known["cost_ratio"],
            known["acceptance_rate"],
            marker="D",
            facecolors="none",
            edgecolors=REFERENCE_COLOUR,
            label="the post, on an M3",
            zorder=3,
        )
    ax.set(
        xlim=(0, max(1.05, table["cost_ratio"].max() + 0.05)),
        ylim=(0, 1),
        xlabel="cost ratio c (draft step / plain step)",
        ylabel="acceptance rate A/D",
    )
    _legend(figure, ax)
    return figure


def describe_speedup(table: pd.DataFrame) -> str:
    """Alt text of `speedup`, from the same data."""
    best = table.loc[table["speedup"].idxmax()]
    worst = table.loc[table["speedup"].idxmin()]
    return (
        f"Speedup over plain decoding against the share of layers skipped, {len(table)} "
        f"configurations. Highest {best['speedup']:.2f} at "
        f"{best['skip_fraction']:.0%} skipped and {best['num_draft_tokens']} draft tokens "
        f"({best['mechanism']}), lowest {worst['speedup']:.2f} at "
        f"{worst['skip_fraction']:.0%} and {worst['num_draft_tokens']}. "
        f"{int((table['speedup'] > 1).sum())} of {len(table)} lie above 1."
    )


def describe_acceptance(table: pd.DataFrame) -> str:
    """Alt text of `acceptance`, from the same data."""
    rates = table.groupby("skip_fraction")["acceptance_rate"].agg(["min", "max"])
    parts = [
        f"{low:.0%} to {high:.0%} at {fraction:.0%} skipped"
        for fraction, low, high in rates.itertuples()
    ]
    return (
        "Acceptance rate against the share of layers skipped: " + ", ".join(parts) + "."
    )


def describe_plane(table: pd.DataFrame) -> str:
    """Alt text of `plane`, from the same data."""
    above = int((table["acceptance_rate"] > table["cost_ratio"]).sum())
    return (
        "Acceptance rate against cost ratio with the break-even diagonal. "
        f"{above} of {len(table)} configurations lie above it. Cost ratios run from "
        f"{table['cost_ratio'].min():.2f} to {table['cost_ratio'].max():.2f}, acceptance "
        f"rates from {table['acceptance_rate'].min():.0%} to "
        f"{table['acceptance_rate'].max():.0%}."
    )


def _panels(table: pd.DataFrame, height: float):
    mechanisms = list(dict.fromkeys(table["mechanism"]))
    figure, axes = plt.subplots(
        1,
        len(mechanisms),
        figsize=(max(5.6, 3.7 * len(mechanisms)), height + LEGEND_HEIGHT),
        sharey=True,
        squeeze=False,
    )
    return mechanisms, list(axes[0]), figure


def _colour(length: int, index: int) -> str:
    fallback: Sequence[str] = sns.color_palette("colorblind").as_hex()
    return DRAFT_LENGTH_COLOURS.get(int(length), fallback[(index + 3) % len(fallback)])


def _legend(figure, ax) -> None:
    """One legend below all panels, so that they keep the page's width."""
    handles, labels = ax.get_legend_handles_labels()
    columns = min(3, len(labels))
    share = LEGEND_HEIGHT / figure.get_figheight()
    figure.tight_layout(rect=(0, share, 1, 1))
    figure.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=columns,
        frameon=False,
        fontsize="small",
    )
