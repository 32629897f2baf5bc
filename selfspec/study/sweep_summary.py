"""From the sweep's rows to one line a configuration. Needs no MLX: pages use it too.

table = summarise(row_table.load_rows(folder / "naive-sweep.csv", run_id))
best(table)             # the configuration with the highest median speedup
"""

from typing import Any

import pandas as pd

from selfspec.study.row_table import LOSSLESS
from selfspec.study.statistics import median_ratio, rate_interval

# Above this share of repeated 4-grams a text is called looping: half of it is repeats.
LOOPING = 0.5
MECHANISMS = ("two caches", "one cache")  # as naive_sweep names them, the post's first
CONFIGURATION = ["mechanism", "skip_fraction", "num_draft_tokens"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a configuration, in reading order, the post's mechanism first.

    Columns: mechanism, skip_fraction, num_draft_tokens, those of `summarise_pairs`,
    and cost_ratio and verify_ratio.
    """
    lines = []
    for key, group in rows.groupby(CONFIGURATION, sort=True):
        if line := summarise_pairs(group):
            lines.append(
                {
                    **dict(zip(CONFIGURATION, key, strict=True)),
                    **line,
                    "cost_ratio": group["cost_ratio"].iloc[0],
                    "verify_ratio": group["verify_ratio"].iloc[0],
                }
            )
    known = [*MECHANISMS, *(line["mechanism"] for line in lines)]
    lines.sort(key=lambda line: known.index(line["mechanism"]))  # stable
    return pd.DataFrame(lines)


def summarise_pairs(group: pd.DataFrame) -> dict[str, Any]:
    """What the pairs of one configuration say; {} when none of them could be timed.

    Speedup is the median over prompts of the per-pair ratio (repeats averaged within a
    prompt) with its 95 % interval; rates are sums over sums. Keys: speedup, low, high,
    verdict, predicted_speedup, speedup_without_loops, acceptance_rate, acceptance_low,
    acceptance_high (its interval over prompts), first_token_acceptance,
    tokens_per_round, repeated_ngram_share, lossless (pairs), ties, pairs, prompts,
    peak_memory_ratio.
    """
    timed = group[group["speedup"].notna()]
    if timed.empty:
        return {}
    by_prompt = timed.groupby("prompt_id")[["speedup", "predicted_speedup"]].mean()
    estimate = median_ratio(by_prompt["speedup"])
    calm = timed[timed["repeated_ngram_share"] <= LOOPING]
    calm_speedups = calm.groupby("prompt_id")["speedup"].mean()
    counts = group.groupby("prompt_id")[["accepted", "drafted"]].sum()
    low, high = rate_interval(counts["accepted"], counts["drafted"])
    return {
        "speedup": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "verdict": estimate.verdict,
        "predicted_speedup": float(by_prompt["predicted_speedup"].median()),
        "speedup_without_loops": float(calm_speedups.median()),
        "acceptance_rate": rate(group, "accepted", "drafted"),
        "acceptance_low": low,
        "acceptance_high": high,
        "first_token_acceptance": rate(group, "first_accepted", "first_drafted"),
        "tokens_per_round": rate(group, "tokens", "rounds"),
        "repeated_ngram_share": group["repeated_ngram_share"].mean(),
        "lossless": int(group["lossless"].isin(LOSSLESS).sum()),
        "ties": int(group["ties"].sum()),
        "pairs": len(group),
        "prompts": group["prompt_id"].nunique(),
        "peak_memory_ratio": (
            group["peak_bytes"] / group["baseline_peak_bytes"]
        ).median(),
    }


def rate(group: pd.DataFrame, part: str, whole: str) -> float:
    """Sum over sum; NaN where the whole is nothing (a rule that never drafted)."""
    total = group[whole].sum()
    return float(group[part].sum() / total) if total else float("nan")


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
