"""From rows and facts of a layerskip run to the tables that its page reads. No MLX.

table = draft_summary.summarise(run.rows)
speed_grid(table)                     # exit layer by draft length: S
counted(run.provenance)               # layer evaluations a token, hardware-free
reuse(run.rows)                       # kept rows against nothing kept, pair by pair
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.study.layerskip_words import NOTHING_KEPT
from selfspec.study.row_table import AUTO
from selfspec.study.statistics import median_ratio

GOAL = 2.0  # what the best configuration's interval should lie above
_EXIT = re.compile(r"exit (\d+)")


def exit_layer(draft: str) -> int | None:
    """The layer of a plain exit, 'exit 3'; None for any other label."""
    found = _EXIT.fullmatch(draft)
    return int(found[1]) if found else None


def fixed(table: pd.DataFrame) -> pd.DataFrame:
    """Lines of greedy drafts of a fixed length."""
    lengths = table["num_draft_tokens"]
    return table[(table["temperature"] == 0) & (lengths != AUTO)]


def sampled(table: pd.DataFrame) -> pd.DataFrame:
    """Lines of drafts at a temperature."""
    return table[table["temperature"] > 0]


def ruled(table: pd.DataFrame) -> pd.DataFrame:
    """Lines whose draft length a rule chose."""
    return table[table["num_draft_tokens"] == AUTO]


def exits(table: pd.DataFrame) -> pd.DataFrame:
    """Greedy lines of plain exits, with their exit_layer."""
    own = fixed(table)
    layers = own["draft"].map(exit_layer)
    own = own[layers.notna()]
    return own.assign(exit_layer=layers.dropna().astype(int))


def best(table: pd.DataFrame) -> pd.Series:
    """The plain exit with the highest median speedup."""
    own = exits(table)
    return own.loc[own["speedup"].idxmax()]


def speed_grid(table: pd.DataFrame, column: str = "speedup") -> pd.DataFrame:
    """Exit layers down, draft lengths across."""
    own = exits(table).astype({"num_draft_tokens": int})
    return own.pivot(index="exit_layer", columns="num_draft_tokens", values=column)


def counted(facts: Mapping[str, Any]) -> pd.DataFrame:
    """One line a case: what it did on many texts, by the numbers alone.

    Columns: draft, num_draft_tokens, texts, tokens_per_round, acceptance_rate,
    evaluations (of layers a token), rows (that layers ran, a token), speedup (layers of
    a plain step over evaluations), lossless, ties, exact_match (NaN without answers).
    """
    lines = []
    for found in facts["counts"]:
        evaluations = found["evaluations"] / found["tokens"]
        drafted, exact = found["drafted"], found["exact"]
        lines.append(
            {
                "draft": found["draft"],
                "num_draft_tokens": found["num_draft_tokens"],
                "texts": found["texts"],
                "tokens_per_round": found["tokens"] / found["rounds"],
                "acceptance_rate": found["accepted"] / drafted if drafted else math.nan,
                "evaluations": evaluations,
                "rows": found["rows"] / found["tokens"],
                "speedup": found["layers"] / evaluations,
                "lossless": found["texts"],  # one that is not ends the run
                "ties": found["ties"],
                "exact_match": math.nan if exact is None else exact / found["texts"],
            }
        )
    return pd.DataFrame(lines)


def counted_grid(facts: Mapping[str, Any], column: str = "speedup") -> pd.DataFrame:
    """Exit layers down, draft lengths across, of what was counted."""
    lines = counted(facts)
    lines = lines.assign(exit_layer=lines["draft"].map(exit_layer))
    lines = lines[lines["exit_layer"].notna()].astype({"exit_layer": int})
    return lines.pivot(index="exit_layer", columns="num_draft_tokens", values=column)


def scores(facts: Mapping[str, Any]) -> pd.DataFrame:
    """One line an exit layer: exact_match, perplexity, agreement on scored texts."""
    sums = pd.DataFrame(facts["exits"])
    mean = (sums["surprise"] / sums["positions"]).clip(upper=700)
    return sums[["exit_layer", "texts", "positions"]].assign(
        exact_match=sums["exact"] / sums["texts"],
        perplexity=mean.map(math.exp),
        agreement=sums["agreed"] / sums["positions"],
    )


def alone(facts: Mapping[str, Any]) -> pd.DataFrame:
    """Early exit without verification: speed beside what its text is worth.

    Columns: exit_layer, speedup, low, high (NaN where there is none), exact_match,
    agreement.
    """
    timed = [line for line in facts["alone"] if "speedup" in line]
    columns = ["exit_layer", "speedup", "low", "high"]
    table = pd.DataFrame(timed, columns=columns).astype({"low": float, "high": float})
    known = scores(facts)[["exit_layer", "exact_match", "agreement"]]
    return table.merge(known, on="exit_layer", how="left")


def reuse(rows: pd.DataFrame) -> pd.DataFrame:
    """Keeping the early layers' rows against running them again, pair by pair.

    Both ran in one block beside the same plain text. Columns: draft, num_draft_tokens,
    ratio (seconds with nothing kept over seconds with rows kept), low, high, verdict,
    prompts.
    """
    ending = f", {NOTHING_KEPT}"
    greedy = rows[rows["temperature"].fillna(0) == 0]
    again = greedy[greedy["draft"].str.endswith(ending)]
    again = again.assign(draft=again["draft"].str.removesuffix(ending))
    keys = ["draft", "num_draft_tokens", "prompt_id", "repeat"]
    both = greedy.set_index(keys)[["speedup"]].join(
        again.set_index(keys)[["speedup"]], rsuffix="_again", how="inner"
    )
    both = both.assign(ratio=both["speedup"] / both["speedup_again"])
    lines = []
    for key, part in both[both["ratio"].notna()].groupby(level=keys[:2], sort=True):
        found = median_ratio(part.groupby(level="prompt_id")["ratio"].mean())
        lines.append(
            {
                **dict(zip(keys[:2], key, strict=True)),
                "ratio": found.value,
                "low": found.low,
                "high": found.high,
                "verdict": found.verdict,
                "prompts": found.count,
            }
        )
    columns = [*keys[:2], "ratio", "low", "high", "verdict", "prompts"]
    return pd.DataFrame(lines, columns=columns)
