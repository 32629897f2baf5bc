"""Rows of any experiment as a table, read back from its CSV. Needs no MLX.

rows = load_rows(folder / "machine.csv", run_id)
read_rounds(rows["drafted_accepted_per_round"].iloc[0])     # ((2, 1), (2, 2), ...)
"""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from selfspec.study.results import read_csv, unreadable

AUTO = "auto"  # the draft length of a rule that chooses it anew every round
LOSSLESS = ("equal", "tie")
SAMPLED = "sampled"  # in their place: two sampled texts cannot be compared
TEXT = {
    "run_id",
    "size",
    "mechanism",
    "draft",
    "prompt_id",
    "domain",
    "order",
    "drafted_accepted_per_round",
    "lossless",
    "device",
}


def typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as read from CSV, with numbers as numbers.

    Raises:
        ValueError: text where a number belongs.
    """
    numbers = [name for name in rows.columns if name not in TEXT | {"num_draft_tokens"}]
    rows = rows.assign(**{name: pd.to_numeric(rows[name]) for name in numbers})
    if "num_draft_tokens" not in rows:
        return rows
    lengths = [n if n == AUTO else int(n) for n in rows["num_draft_tokens"]]
    return rows.assign(num_draft_tokens=lengths)


def load_rows(path: Path, run_id: str) -> pd.DataFrame:
    """The rows of one run; runs and machines are never pooled.

    Raises:
        ResultsError: the file cannot be read, or has text where a number belongs.
    """
    rows = [row for row in read_csv(path) if row["run_id"] == run_id]
    try:
        return typed(pd.DataFrame(rows)) if rows else pd.DataFrame()
    except ValueError as error:
        raise unreadable(path, f"run {run_id}: {error}") from None


def write_rounds(rounds: Iterable[tuple[int, int]]) -> str:
    """'2:1 2:2': drafted and accepted of every round, as a cell holds them."""
    return " ".join(f"{drafted}:{accepted}" for drafted, accepted in rounds)


def read_rounds(cell: str) -> tuple[tuple[int, int], ...]:
    """(drafted, accepted) of every round, from such a cell."""
    return tuple(tuple(map(int, part.split(":"))) for part in str(cell).split())
