"""The study's figures: one function each, data in, matplotlib figure out.

Colours mean the same thing in every figure. A figure is shown with the words a reader
needs who cannot see it, computed from the same data; the page builder carries them to
the built page. Needs no MLX.

    show(figures.speedup(table, post), name="speedup", alt=..., caption=..., csv=...)
"""

import io
import math
from collections.abc import Container
from itertools import cycle

import matplotlib

matplotlib.use("svg", force=False)
import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402
import seaborn as sns  # noqa: E402

from selfspec.study import palette  # noqa: E402
from selfspec.study.sweep_summary import MECHANISMS  # noqa: E402

REFERENCE_COLOUR = palette.REFERENCE
LEGEND_HEIGHT = 0.7  # inches below the panels
BREAK_EVEN = {"color": "black", "linewidth": 1, "linestyle": "--"}


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


def svg(figure) -> str:
    """The figure as SVG text, the same for the same data; closes it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return text.getvalue()


def show(figure, *, name: str, alt: str, caption: str, csv: str = "") -> None:
    """Display a figure as SVG, with the words that the page needs beside it.

    Args:
        name: short label, unique within the notebook; the page makes it unique.
        alt: what the figure shows, for those who cannot see it.
        caption: one or two sentences under the figure.
        csv: file name of the data, for the link under the figure.
    """
    from IPython.display import display

    words = {"name": name, "alt": alt, "caption": caption, "csv": csv}
    display(
        {"image/svg+xml": svg(figure), "text/plain": alt},
        raw=True,
        metadata={"selfspec": words},
    )


def speedup(table: pd.DataFrame, post: pd.DataFrame | None = None):
    """Speedup against skip fraction, one panel a mechanism, one line a draft length.

    Args:
        table: of `sweep_summary.summarise`.
        post: the post's published figures, drawn as hollow reference marks.
    """
    panels, figure = _panels(table, height=3.8)
    theirs = _posts_own(panels)
    for ax, (mechanism, part) in panels.items():
        names = []
        for place, (look, length, line) in enumerate(_lines(mechanism, part)):
            # side by side, so that intervals of different lengths can be told apart
            percent = 100 * line["skip_fraction"] + 0.4 * (place - 1)
            ax.plot(percent, line["speedup"], color=look.colour, marker=look.marker)
            ax.plot(percent, line["predicted_speedup"], ":", color=look.colour, lw=1.2)
            known = line["low"].notna()
            if known.any():
                spans = (percent[known], line["low"][known], line["high"][known])
                ax.vlines(*spans, look.colour)
            names.append((line["speedup"].iloc[0], percent.iloc[0], length, look))
        _name_lines(ax, names, apart=0.05)
        ax.axhline(1, **BREAK_EVEN)
        ax.plot([], [], color="black", linestyle=":", label="predicted")
        if post is not None and mechanism == theirs:
            post_marks(ax, post["skip_fraction"] * 100, post["speedup"])
        ax.set(title=mechanism, xlabel="layers skipped (%)", ylabel="speedup S")
        ax.set_ylim(bottom=0)
    legend(figure)
    return figure


def acceptance(table: pd.DataFrame, post: pd.DataFrame | None = None):
    """Acceptance rate against skip fraction, one panel a mechanism."""
    panels, figure = _panels(table, height=3.6)
    theirs = _posts_own(panels)
    for ax, (mechanism, part) in panels.items():
        names = []
        for place, (look, length, line) in enumerate(_lines(mechanism, part)):
            percent = 100 * line["skip_fraction"] + 0.4 * (place - 1)
            rate = 100 * line["acceptance_rate"]
            ax.plot(percent, rate, color=look.colour, marker=look.marker)
            acceptance_intervals(ax, percent, line, look.colour, scale=100)
            names.append((rate.iloc[0], percent.iloc[0], length, look))
        _name_lines(ax, names, apart=5)
        if post is not None and mechanism == theirs:
            post_marks(ax, post["skip_fraction"] * 100, post["acceptance_rate"] * 100)
        ax.set(
            title=mechanism,
            xlabel="layers skipped (%)",
            ylabel="acceptance rate (%)",
            ylim=(0, 100),
        )
    legend(figure)
    return figure


def plane(table: pd.DataFrame, post: pd.DataFrame | None = None):
    """The acceptance-cost plane: acceptance rate over cost ratio, and the diagonal.

    With v = 1 and o = 0 a draft pays above the diagonal and only there.

    Args:
        table: of `sweep_summary.summarise`; may be empty.
        post: the post's figures with a `cost_ratio` column (from weight shares).
    """
    figure, ax = plane_frame(table["cost_ratio"], post)
    for mechanism, part in table.groupby("mechanism", sort=False):
        for look, length, line in _lines(mechanism, part):
            acceptance_intervals(ax, line["cost_ratio"], line, look.colour, alpha=0.5)
            ax.scatter(
                line["cost_ratio"],
                line["acceptance_rate"],
                color=look.colour,
                marker=look.marker,
                s=50,
                zorder=3,
                label=f"{mechanism}, {length} tokens",
            )
    legend(figure)
    return figure


def acceptance_intervals(ax, x, table: pd.DataFrame, colour, scale=1.0, alpha=0.6):
    """The intervals of acceptance rates, where the table has them."""
    if "acceptance_low" not in table:
        return
    known = table["acceptance_low"].notna()
    if known.any():
        low, high = (scale * table[f"acceptance_{end}"] for end in ("low", "high"))
        ax.vlines(x[known], low[known], high[known], colour, alpha=alpha, linewidth=1)


def _lines(mechanism: str, part: pd.DataFrame):
    """(look, length, its lines) of each draft length: the mechanism's hue, its own mark."""
    lengths = sorted(part["num_draft_tokens"].unique())
    hue = palette.look(f"skip, {mechanism}").colour
    shades = palette.shades(hue, len(lengths))
    for length, shade, marker in zip(
        lengths, shades, cycle(palette.MARKERS), strict=False
    ):
        own = part[part["num_draft_tokens"] == length].sort_values("skip_fraction")
        yield palette.Look(shade, marker), int(length), own


def _name_lines(ax, names, apart: float) -> None:
    """The draft length where each line begins, no two closer than `apart`.

    Args:
        names: (height, x, draft length, look) of each line.
    """
    below = -math.inf
    for height, x, length, look in sorted(names, key=lambda name: name[0]):
        below = max(height, below + apart)
        ax.annotate(
            f"{length} tokens",
            (x, below),
            xytext=(-7, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize="x-small",
            color=look.colour,
        )
    ax.set_xlim(left=min(-4.0, ax.get_xlim()[0]))


def plane_frame(cost_ratios: pd.Series, post: pd.DataFrame | None = None):
    """The empty plane, wide enough for these costs, with the post's marks."""
    figure, ax = plt.subplots(figsize=(5.6, 5.0 + LEGEND_HEIGHT))
    ax.plot([0, 2], [0, 2], **BREAK_EVEN)
    ax.fill_between([0, 1], [0, 1], 1, color=palette.QUIET, alpha=0.12, linewidth=0)
    ax.text(0.03, 0.96, "a draft can pay", transform=ax.transAxes, va="top")
    ax.text(0.97, 0.04, "a draft loses", transform=ax.transAxes, ha="right")
    ax.set(xlim=(0, max(1.05, *(cost_ratios + 0.05), 0)), ylim=(0, 1))
    ax.set(
        xlabel="cost ratio c (draft step / plain step)",
        ylabel="acceptance rate A/D",
    )
    if post is not None:
        post_marks(ax, post["cost_ratio"], post["acceptance_rate"])
    return figure, ax


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
    if table.empty:
        return (
            "The plane of acceptance rate and cost ratio with the break-even diagonal; "
            "no configuration of this study is measured yet."
        )
    above = int((table["acceptance_rate"] > table["cost_ratio"]).sum())
    return (
        "Acceptance rate against cost ratio with the break-even diagonal. "
        f"{above} of {len(table)} configurations lie above it. Cost ratios run from "
        f"{table['cost_ratio'].min():.2f} to {table['cost_ratio'].max():.2f}, acceptance "
        f"rates from {table['acceptance_rate'].min():.0%} to "
        f"{table['acceptance_rate'].max():.0%}."
    )


def _panels(table: pd.DataFrame, height: float):
    """Axes -> (mechanism, its lines), and the figure they stand in."""
    parts = list(table.groupby("mechanism", sort=False))
    figure, axes = plt.subplots(
        1,
        len(parts),
        figsize=(max(5.6, 3.7 * len(parts)), height + LEGEND_HEIGHT),
        sharey=True,
        squeeze=False,
    )
    return dict(zip(axes[0], parts, strict=True)), figure


def _posts_own(panels: dict) -> str:
    """The panel of the post's mechanism; the first one where that was left out."""
    names = [mechanism for mechanism, _ in panels.values()]
    return MECHANISMS[0] if MECHANISMS[0] in names else names[0]


def post_marks(ax, x: pd.Series, y: pd.Series) -> None:
    ax.scatter(
        x,
        y,
        marker="D",
        facecolors="none",
        edgecolors=REFERENCE_COLOUR,
        label="the post, on an M3",
        zorder=5,
    )


def legend(figure, named: Container[str] = ()) -> None:
    """One legend below all panels, so that they keep the page's width.

    Args:
        named: what has its name beside it already.
    """
    entries: dict[str, object] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            if label not in named:
                entries.setdefault(label, handle)
        if ax.get_legend():
            ax.get_legend().remove()
    share = LEGEND_HEIGHT / figure.get_figheight()
    figure.tight_layout(rect=(0, share, 1, 1))
    if not entries:
        return
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=min(3, len(entries)),
        frameon=False,
        fontsize="small",
    )
