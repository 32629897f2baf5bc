"""From the rows of a run of drafts to one line a case. Needs no MLX: pages use it too.

table = summarise(row_table.load_rows(folder / "auto.csv", run_id))
prediction_error(table).median()
"""

import pandas as pd

from selfspec.study.sweep_summary import rate, summarise_pairs

CONFIGURATION = ["draft", "num_draft_tokens", "temperature"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a case, in the order of the rows' drafts and then of their lengths.

    Columns: draft, num_draft_tokens, temperature, those of `sweep_summary.summarise_pairs`,
    predicted_held_out, held_out_acceptance_rate, cost_ratio, verify_ratio (NaN for
    "auto"), overhead_ratio, tokens (the shortest text's) and plain_share (of all
    tokens, those of plain steps that a rule chose).
    """
    lines = []
    if "temperature" not in rows:  # a run from before there was one is greedy
        rows = rows.assign(temperature=0.0)
    rows = rows.assign(temperature=rows["temperature"].fillna(0.0))
    for key, group in rows.groupby(CONFIGURATION, sort=False):
        if line := summarise_pairs(group):
            by_prompt = group.groupby("prompt_id")[_MEANS].mean()
            lines.append(
                {
                    **dict(zip(CONFIGURATION, key, strict=True)),
                    **line,
                    **by_prompt.median().to_dict(),
                    "tokens": int(group["tokens"].min()),
                    "plain_share": rate(group, "plain_tokens", "tokens"),
                }
            )
    # the order in which groups happened to be drawn is no order to read in
    lines.sort(
        key=lambda line: (
            line["temperature"],
            _reading_order(line["draft"]),
            _length(line),
        )
    )
    return pd.DataFrame(lines)


_MEANS = [
    "predicted_held_out",
    "held_out_acceptance_rate",
    "cost_ratio",
    "verify_ratio",
    "overhead_ratio",
]
METHODS = ("skip", "exit", "fitted", "shortlist", "lookup", "dynamic", "small")


def method(draft: str) -> str:
    """The kind of draft that a label names: its first word."""
    return draft.split()[0].rstrip(",")


def prediction_error(table: pd.DataFrame, column: str = "predicted_speedup"):
    """|predicted / measured - 1| of every line.

    Args:
        column: predicted_speedup, or predicted_held_out.
    """
    return (table[column] / table["speedup"] - 1).abs()


def _reading_order(draft: str) -> tuple:
    """Kinds in the order of METHODS, then by the first number in the label."""
    words = draft.replace(",", "").split()
    numbers = [int(word) for word in words if word.isdigit()]
    kind = method(draft)
    place = METHODS.index(kind) if kind in METHODS else len(METHODS)
    return (place, kind, numbers[:1] or [0], draft)


def _length(line: dict) -> int:
    length = line["num_draft_tokens"]
    return 0 if isinstance(length, str) else int(length)
