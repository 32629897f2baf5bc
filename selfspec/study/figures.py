"""The study's figures: one function each, data in, matplotlib figure out.

Colours mean the same thing in every figure. A figure is shown with the words a reader
needs who cannot see it, computed from the same data; the page builder carries them to
the built page. Needs no MLX.

    show(figures.speedup(table, post), name="speedup", alt=..., caption=..., csv=...)
"""

import io

import matplotlib

matplotlib.use("svg", force=False)
import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402
import seaborn as sns  # noqa: E402

from selfspec.study.sweep_summary import MECHANISMS  # noqa: E402

DRAFT_LENGTH_COLOURS = {2: "#0072b2", 3: "#d55e00", 5: "#009e73"}  # Okabe-Ito
REFERENCE_COLOUR = "#555555"
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
        palette = _palette(part["num_draft_tokens"])
        lengths = sorted(palette)
        # side by side, so that intervals of different lengths can be told apart
        shift = {
            length: 0.4 * (i - len(lengths) // 2) for i, length in enumerate(lengths)
        }
        shown = part.assign(
            percent=part["skip_fraction"] * 100 + part["num_draft_tokens"].map(shift)
        )
        common = dict(data=shown, x="percent", hue="num_draft_tokens", palette=palette)
        sns.lineplot(**common, y="speedup", marker="o", ax=ax, errorbar=None)
        sns.lineplot(
            **common,
            y="predicted_speedup",
            linestyle=":",
            linewidth=1.2,
            legend=False,
            errorbar=None,
            ax=ax,
        )
        for line in shown[shown["low"].notna()].itertuples():
            ax.vlines(line.percent, line.low, line.high, palette[line.num_draft_tokens])
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
        sns.lineplot(
            data=part.assign(
                percent=part["skip_fraction"] * 100, rate=part["acceptance_rate"] * 100
            ),
            x="percent",
            y="rate",
            hue="num_draft_tokens",
            palette=_palette(part["num_draft_tokens"]),
            marker="o",
            errorbar=None,
            ax=ax,
        )
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
    if not table.empty:
        sns.scatterplot(
            data=table,
            x="cost_ratio",
            y="acceptance_rate",
            hue="num_draft_tokens",
            palette=_palette(table["num_draft_tokens"]),
            style="mechanism" if table["mechanism"].nunique() > 1 else None,
            s=60,
            zorder=3,
            ax=ax,
        )
        _name_plane(ax)
    legend(figure)
    return figure


def plane_frame(cost_ratios: pd.Series, post: pd.DataFrame | None = None):
    """The empty plane, wide enough for these costs, with the post's marks."""
    figure, ax = plt.subplots(figsize=(5.6, 5.0 + LEGEND_HEIGHT))
    ax.plot([0, 2], [0, 2], **BREAK_EVEN)
    ax.fill_between([0, 1], [0, 1], 1, color="#009e73", alpha=0.07, linewidth=0)
    ax.text(0.03, 0.96, "a draft can pay", transform=ax.transAxes, va="top")
    ax.text(0.97, 0.04, "a draft loses", transform=ax.transAxes, ha="right")
    ax.set(xlim=(0, max(1.05, *(cost_ratios + 0.05), 0)), ylim=(0, 1))
    _name_plane(ax)
    if post is not None:
        post_marks(ax, post["cost_ratio"], post["acceptance_rate"])
    return figure, ax


def _name_plane(ax) -> None:
    """Seaborn puts the columns' names in the place of these."""
    ax.set(
        xlabel="cost ratio c (draft step / plain step)",
        ylabel="acceptance rate A/D",
    )


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


def _palette(lengths: pd.Series) -> dict[int, str]:
    """Draft length -> colour; the study's own lengths keep theirs in every figure."""
    spare = iter(sns.color_palette("colorblind", 10).as_hex()[3:])
    return {
        int(length): DRAFT_LENGTH_COLOURS.get(int(length)) or next(spare)
        for length in sorted(lengths.unique())
    }


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


def legend(figure) -> None:
    """One legend below all panels, so that they keep the page's width."""
    entries: dict[str, object] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            if label in ("num_draft_tokens", "mechanism"):  # seaborn's own headings
                continue
            label = f"{label} draft tokens" if label.isdigit() else label
            entries.setdefault(label, handle)
        if ax.get_legend():
            ax.get_legend().remove()
    share = LEGEND_HEIGHT / figure.get_figheight()
    figure.tight_layout(rect=(0, share, 1, 1))
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=min(3, len(entries)),
        frameon=False,
        fontsize="small",
    )
