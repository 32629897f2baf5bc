"""From the sweep's rows to one line a configuration. Needs no MLX: pages use it too.

table = summarise(load_rows(folder / "naive-sweep.csv", run_id))
best(table)             # the configuration with the highest median speedup
"""

from pathlib import Path

import pandas as pd

from selfspec.study.results import read_csv, unreadable
from selfspec.study.statistics import median_ratio

# Above this share of repeated 4-grams a text is called looping: half of it is repeats.
LOOPING = 0.5
LOSSLESS = ("equal", "tie")
MECHANISMS = ("two caches", "one cache")  # as naive_sweep names them, the post's first
CONFIGURATION = ["mechanism", "skip_fraction", "num_draft_tokens"]
_TEXT = {
    "run_id",
    "size",
    "mechanism",
    "prompt_id",
    "domain",
    "order",
    "drafted_accepted_per_round",
    "lossless",
    "device",
}


def typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows as read from CSV, with numbers as numbers."""
    numbers = [name for name in rows.columns if name not in _TEXT]
    return rows.assign(**{name: pd.to_numeric(rows[name]) for name in numbers})


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


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a configuration, in reading order, the post's mechanism first.

    Speedup is the median over prompts of the per-pair ratio (repeats averaged within a
    prompt) with its 95 % interval; rates are sums over sums. Columns: mechanism,
    skip_fraction, num_draft_tokens, speedup, low, high, verdict, predicted_speedup,
    speedup_without_loops, acceptance_rate, first_token_acceptance, tokens_per_round,
    cost_ratio, verify_ratio, repeated_ngram_share, lossless (pairs), ties, pairs,
    prompts, peak_memory_ratio.
    """
    lines = []
    for key, group in rows.groupby(CONFIGURATION, sort=True):
        timed = group[group["speedup"].notna()]
        if timed.empty:
            continue
        by_prompt = timed.groupby("prompt_id")[["speedup", "predicted_speedup"]].mean()
        estimate = median_ratio(by_prompt["speedup"])
        calm = timed[timed["repeated_ngram_share"] <= LOOPING]
        calm_speedups = calm.groupby("prompt_id")["speedup"].mean()
        rounds = group["rounds"].sum()
        lines.append(
            {
                **dict(zip(CONFIGURATION, key, strict=True)),
                "speedup": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "verdict": estimate.verdict,
                "predicted_speedup": float(by_prompt["predicted_speedup"].median()),
                "speedup_without_loops": float(calm_speedups.median()),
                "acceptance_rate": group["accepted"].sum() / group["drafted"].sum(),
                "first_token_acceptance": group["first_accepted"].sum()
                / group["first_drafted"].sum(),
                "tokens_per_round": group["tokens"].sum() / rounds,
                "cost_ratio": group["cost_ratio"].iloc[0],
                "verify_ratio": group["verify_ratio"].iloc[0],
                "repeated_ngram_share": group["repeated_ngram_share"].mean(),
                "lossless": int(group["lossless"].isin(LOSSLESS).sum()),
                "ties": int(group["ties"].sum()),
                "pairs": len(group),
                "prompts": group["prompt_id"].nunique(),
                "peak_memory_ratio": (
                    group["peak_bytes"] / group["baseline_peak_bytes"]
                ).median(),
            }
        )
    known = [*MECHANISMS, *(line["mechanism"] for line in lines)]
    lines.sort(key=lambda line: known.index(line["mechanism"]))  # stable
    return pd.DataFrame(lines)


def compare_mechanisms(rows: pd.DataFrame) -> pd.DataFrame:
    """What the mechanism alone changes: the same skip set and draft length in each.

    For every configuration that both mechanisms ran, the two-cache arm's decode seconds
    a token over the one-cache arm's, and the same of the time to the first token, each
    a median over prompts of ratios timed in one block, with its 95 % interval. Empty
    when only one mechanism ran.
    """
    keys = [*CONFIGURATION[1:], "prompt_id", "repeat"]
    two = rows[rows["mechanism"] == "two caches"].set_index(keys)
    one = rows[rows["mechanism"] == "one cache"].set_index(keys)
    both = two.join(one, lsuffix="_two", rsuffix="_one", how="inner")
    if both.empty:
        return pd.DataFrame()
    both["decode"] = both["speedup_one"] / both["speedup_two"]
    both["first_token"] = both["prefill_seconds_two"] / both["prefill_seconds_one"]
    lines = []
    for key, group in both[both["decode"].notna()].groupby(level=[0, 1], sort=True):
        by_prompt = group.groupby(level="prompt_id")[["decode", "first_token"]].mean()
        line = dict(zip(CONFIGURATION[1:], key, strict=True))
        for name in ("decode", "first_token"):
            estimate = median_ratio(by_prompt[name])
            line |= {
                name: estimate.value,
                f"{name}_low": estimate.low,
                f"{name}_high": estimate.high,
            }
        lines.append(line)
    return pd.DataFrame(lines)


def best(table: pd.DataFrame) -> pd.Series:
    """The configuration with the highest median speedup."""
    return table.loc[table["speedup"].idxmax()]


def worst(table: pd.DataFrame) -> pd.Series:
    """The configuration with the lowest median speedup."""
    return table.loc[table["speedup"].idxmin()]
