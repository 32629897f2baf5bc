"""From rows and facts of a run with a fitted exit to the tables of its page. No MLX.

curve(run.provenance)                    # one line a look at held-out text
tokens_needed(run.provenance)            # what a straight line in log tokens asks for
by_domain(run.rows)                      # S of the fitted exit, domain by domain
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from selfspec.study.layerskip_summary import fixed
from selfspec.study.statistics import Estimate, median_ratio
from selfspec.study.sweep_summary import LOOPING

FITTED = re.compile(r"fitted exit \d+")  # the label of a fitted exit alone
GOAL_LOW = 1.15  # what the interval of the best length should lie above
FARTHEST = 1e12  # tokens; beyond, an extrapolation says "never"
Facts = Mapping[str, Any]


class Needed(NamedTuple):
    """Training tokens that the curve, prolonged, asks for; infinite for never.

    `level` is the per-token acceptance that is asked for; low and high are where the
    edges of the line's 95 % band reach it. All None where the curve is too short.
    """

    level: float | None
    tokens: float | None
    low: float | None
    high: float | None


def curve(facts: Facts) -> pd.DataFrame:
    """step, tokens, minutes, held_out_loss, agreed (per-token acceptance), acceptance."""
    table = pd.DataFrame(facts["bridge"]["curve"])
    return table.assign(minutes=table["seconds"] / 60)


def is_fitted(label: str) -> bool:
    """Whether it is the fitted exit itself, and nothing else with it."""
    return FITTED.fullmatch(label) is not None


def own(table: pd.DataFrame) -> pd.DataFrame:
    """Lines of the fitted exit at a fixed length."""
    lines = fixed(table)
    return lines[lines["draft"].map(is_fitted)]


def best(table: pd.DataFrame) -> pd.Series:
    """The fitted exit at its best length."""
    lines = own(table)
    return lines.loc[lines["speedup"].idxmax()]


def ruled(table: pd.DataFrame) -> pd.DataFrame:
    """The fitted exit under the rule that declines: no line or one."""
    lines = table[table["draft"].map(is_fitted)]
    return lines.drop(own(table).index)


def beside(table: pd.DataFrame) -> pd.DataFrame:
    """The best length of every other draft, best first."""
    lines = fixed(table)
    lines = lines[~lines["draft"].map(is_fitted)]
    found = lines.loc[lines.groupby("draft")["speedup"].idxmax()]
    return found.sort_values("speedup", ascending=False)


def without_loops(rows: pd.DataFrame, line: Mapping[str, Any]) -> Estimate:
    """Median and interval of one configuration over the prompts whose text is calm."""
    part = rows_of(rows, line)
    calm = part[part["repeated_ngram_share"] <= LOOPING]
    if calm.empty:
        return Estimate(math.nan, math.nan, math.nan, 0)
    return median_ratio(calm.groupby("prompt_id")["speedup"].mean())


def by_domain(rows: pd.DataFrame, line: Mapping[str, Any]) -> pd.DataFrame:
    """domain, prompts, speedup (median), acceptance_rate, looping of a configuration."""
    part = rows_of(rows, line)
    lines = []
    for domain, group in part.groupby("domain", sort=False):
        drafted = group["drafted"].sum()
        lines.append(
            {
                "domain": domain,
                "prompts": group["prompt_id"].nunique(),
                "speedup": group.groupby("prompt_id")["speedup"].mean().median(),
                "acceptance_rate": group["accepted"].sum() / drafted
                if drafted
                else math.nan,
                "looping": int((group["repeated_ngram_share"] > LOOPING).sum()),
            }
        )
    return pd.DataFrame(lines)


def tokens_needed(facts: Facts, level: float | None = None) -> Needed:
    """Where per-token acceptance, a straight line in log tokens, reaches a level.

    The line goes through the later half of the curve; the band is that of the fitted
    mean, from the scatter around it. A rough guide: nothing says that a line goes on.

    Args:
        level: default, what GOAL needs on this machine.
    """
    level = facts["needs"]["needed"] if level is None else level
    table = curve(facts)
    table = table[table["tokens"] > 0]
    table = table.iloc[len(table) // 2 :]
    if level is None or len(table) < 4 or table["tokens"].nunique() < 3:
        return Needed(level, None, None, None)
    x, y = np.log(table["tokens"]), table["agreed"]
    line = stats.linregress(x, y)
    spread = stats.t.ppf(0.975, len(x) - 2) * line.stderr
    at = float(x.mean())

    def reached(slope: float) -> float:
        ahead = level - float(y.mean())
        if ahead <= 0:
            return float(np.exp(at))
        if slope <= 0 or ahead / slope + at > math.log(FARTHEST):
            return math.inf
        return math.exp(at + ahead / slope)

    slopes = (line.slope, line.slope + spread, line.slope - spread)
    return Needed(level, *map(reached, slopes))


def needed_in_words(needed: Needed) -> str:
    """'3.1 million tokens (2.2 million to 9.0 million)', or what there is instead."""
    if needed.level is None:
        return "no number of tokens: on this machine no acceptance is enough"
    if needed.tokens is None:
        return "nothing that so short a curve could tell"
    low, high = sorted((needed.low, needed.high))
    if math.isinf(needed.tokens):
        text = "no number of tokens, because the curve has stopped rising"
        return text + ("" if math.isinf(low) else f" (at best {_millions(low)})")
    return f"{_millions(needed.tokens)} tokens ({_millions(low)} to {_millions(high)})"


def _millions(tokens: float) -> str:
    if math.isinf(tokens):
        return "never"
    if tokens >= 1e9:
        return f"{tokens / 1e9:.2g} billion"
    return f"{tokens / 1e6:.2g} million"


def rows_of(rows: pd.DataFrame, line: Mapping[str, Any]) -> pd.DataFrame:
    """The timed rows of one configuration."""
    same = (rows["draft"] == line["draft"]) & (
        rows["num_draft_tokens"].astype(str) == str(line["num_draft_tokens"])
    )
    return rows[same & rows["speedup"].notna()]
