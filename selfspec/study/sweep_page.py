"""What the naive-sweep page says in words and tables, computed from the sweep's table.

say(sentence_on_speed(table))
display(readable(table))
"""

import pandas as pd

from selfspec.study import sweep_summary
from selfspec.study.markdown import configurations

_WHICH = {
    "mechanism": "mechanism",
    "skip_fraction": "layers skipped",
    "num_draft_tokens": "draft tokens",
}
SPEED = {
    "speedup": "speedup S",
    "interval": "95 % interval",
    "verdict": "verdict",
    "predicted_speedup": "predicted S",
    "lossless": "lossless",
    "ties": "ties",
}
DRAFTS = {
    "acceptance_rate": "acceptance rate",
    "first_token_acceptance": "first-token acceptance",
    "tokens_per_round": "tokens per round",
    "cost_ratio": "c",
    "verify_ratio": "v",
    "peak_memory_ratio": "peak memory / plain",
}


def readable(table: pd.DataFrame, columns: dict[str, str] = SPEED) -> pd.DataFrame:
    """The summary with the columns and the precision that a reader wants.

    Args:
        columns: SPEED (what came out) or DRAFTS (what went in).
    """
    shown = table.copy()
    shown["interval"] = [
        "-" if pd.isna(low) else f"{low:.2f} to {high:.2f}"
        for low, high in zip(table["low"], table["high"], strict=True)
    ]
    shown["lossless"] = [
        f"{count} of {pairs}"
        for count, pairs in zip(table["lossless"], table["pairs"], strict=True)
    ]
    for name in ("skip_fraction", "acceptance_rate", "first_token_acceptance"):
        shown[name] = [f"{value:.0%}" for value in table[name]]
    ratios = ("speedup", "predicted_speedup", "cost_ratio", "verify_ratio")
    for name in (*ratios, "tokens_per_round", "peak_memory_ratio"):
        shown[name] = [f"{value:.2f}" for value in table[name]]
    wanted = {**_WHICH, **columns}
    return shown[list(wanted)].rename(columns=wanted)


def sentence_on_speed(table: pd.DataFrame) -> str:
    """How many configurations won, and which came nearest."""
    parts = []
    for mechanism, part in table.groupby("mechanism", sort=False):
        best, worst = sweep_summary.best(part), sweep_summary.worst(part)
        counts = part["verdict"].value_counts()
        verdicts = ", ".join(
            f"{count} with {verdict}" if " " in verdict else f"{count} {verdict}"
            for verdict, count in counts.items()
        )
        parts.append(
            f"With {mechanism}, of {configurations(len(part))}: {verdicts}. "
            f"The best gives S = {_with_interval(best)} at {best['skip_fraction']:.0%} "
            f"skipped and {best['num_draft_tokens']} draft tokens, the worst "
            f"{_with_interval(worst)} at {worst['skip_fraction']:.0%} and "
            f"{worst['num_draft_tokens']}."
        )
    return "\n".join(parts)


def sentence_on_prediction(table: pd.DataFrame) -> str:
    """How far the identity's predictions lie from what was measured."""
    error = (table["predicted_speedup"] / table["speedup"] - 1).abs()
    furthest = table.loc[error.idxmax()]
    return (
        f"The identity, fed with costs measured beforehand, misses the measured speedup "
        f"by {error.median():.0%} in the median; the furthest miss is {error.max():.0%}, "
        f"at {furthest['skip_fraction']:.0%} skipped and "
        f"{furthest['num_draft_tokens']} draft tokens ({furthest['mechanism']})."
    )


def sentence_on_plane(table: pd.DataFrame) -> str:
    """Whether any draft clears its own cost."""
    clear = table[table["acceptance_rate"] > table["cost_ratio"]]
    if clear.empty:
        return (
            "No configuration lies above the diagonal: no draft is accepted more often "
            "than it costs, so none could win even if verification were free."
        )
    return (
        f"{len(clear)} of {len(table)} configurations lie above the diagonal: they would "
        "win if verification cost no more than one step."
    )


def sentence_on_loops(table: pd.DataFrame) -> str:
    """How much of the acceptance may be owed to repetitive text."""
    best = sweep_summary.best(table)
    calm = best["speedup_without_loops"]
    without = "no such prompt is left" if pd.isna(calm) else f"it is {calm:.2f}"
    return (
        f"On average {table['repeated_ngram_share'].mean():.0%} of the 4-grams of a text "
        f"repeat an earlier one. Without the prompts whose text loops, the best "
        f"configuration's speedup of {best['speedup']:.2f} has this value: {without}."
    )


def mechanisms_readable(comparison: pd.DataFrame) -> pd.DataFrame:
    """`compare_mechanisms` for readers; how much faster one cache is than two."""
    shown = pd.DataFrame(
        {
            "layers skipped": [f"{f:.0%}" for f in comparison["skip_fraction"]],
            "draft tokens": comparison["num_draft_tokens"],
        }
    )
    for name, title in (("decode", "decoding"), ("first_token", "to the first token")):
        shown[title] = [
            f"{value:.2f}" + ("" if pd.isna(low) else f" ({low:.2f} to {high:.2f})")
            for value, low, high in zip(
                comparison[name],
                comparison[f"{name}_low"],
                comparison[f"{name}_high"],
                strict=True,
            )
        ]
    return shown


def sentence_on_mechanisms(comparison: pd.DataFrame, refused: dict[str, str]) -> str:
    """What the mechanism alone costs.

    Args:
        comparison: of `compare_mechanisms`.
        refused: mechanism -> why it was left out, from the run's provenance.
    """
    if refused:
        return (
            "The post's mechanism is left out: with a shorter list of layers this "
            "architecture drafts wrong, as its self-test found."
        )
    if comparison.empty:
        return (
            "This run timed no prompt with both mechanisms, so it cannot compare them."
        )
    decode, first = comparison["decode"], comparison["first_token"]
    return (
        f"With the same layers skipped, one cache decodes {decode.median():.2f} times as "
        f"fast as two in the median over configurations ({decode.min():.2f} to "
        f"{decode.max():.2f}) and has its first token {first.median():.2f} times as fast "
        f"({first.min():.2f} to {first.max():.2f}), because nothing is prefilled twice."
    )


def post_implied(post: pd.DataFrame) -> pd.DataFrame:
    """What the post's figures imply about its machine, as a table."""
    rows = [
        {
            "model": row["model"],
            "layers skipped": f"{row['skip_fraction']:.0%}",
            "draft tokens": _whole(row["num_draft_tokens"]),
            "acceptance rate": _percent(row["acceptance_rate"]),
            "speedup S": f"{row['speedup']:.2f}",
            "c from weights": f"{row['cost_ratio']:.2f}",
            "v + o implied": _two(row["round_remainder"]),
            "configuration": "inferred" if row["inferred"] == "yes" else "published",
        }
        for _, row in post.iterrows()
    ]
    return pd.DataFrame(rows)


def sentence_on_post(post: pd.DataFrame) -> str:
    """The reading of `post_implied`."""
    implied = post[post["round_remainder"].notna()].sort_values("round_remainder")
    low, high = implied.iloc[0], implied.iloc[-1]
    return (
        f"By the identity the post's best figure ({low['speedup']:.2f}x) implies that a "
        f"round spent {low['round_remainder']:.1f} plain steps beyond drafting, and its "
        f"worst ({high['speedup']:.2f}x) {high['round_remainder']:.1f}. A pass over six "
        "rows that costs that much is far from free: on that machine draft cost times "
        "acceptance is not the whole story."
    )


def say(text: str) -> None:
    """Show a computed sentence as prose."""
    from IPython.display import Markdown, display

    display(Markdown(text))


def show_table(table: pd.DataFrame, run_id: str = "") -> None:
    """Show a table without its index; `run_id` tells the page which run it is of."""
    from IPython.display import HTML, display

    html = table.to_html(index=False, border=0, escape=True, classes=["table"])
    display(HTML(html), metadata={"selfspec": {"run_id": run_id}} if run_id else None)


def _with_interval(row: pd.Series) -> str:
    if pd.isna(row["low"]):
        return f"{row['speedup']:.2f} (too few prompts for an interval)"
    return f"{row['speedup']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def _whole(value) -> str:
    return "-" if pd.isna(value) else str(int(value))


def _percent(value) -> str:
    return "-" if pd.isna(value) else f"{value:.0%}"


def _two(value) -> str:
    return "-" if pd.isna(value) else f"{value:.2f}"
