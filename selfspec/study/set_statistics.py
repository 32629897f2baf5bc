"""Statistics of choosing: held-out margins over windows, Holm's correction, ranks.

Pure: numbers in, numbers out.

    margin(best, middle).low > 0         # agreement by window of two sets
    holm([0.01, 0.04, 0.2])              # adjusted p-values
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats

from selfspec.study.statistics import (
    BOOTSTRAP_SEED,
    CONFIDENCE,
    FEWEST_PROMPTS,
    RESAMPLES,
)

EXACT = 12  # windows up to which every change of signs is tried


@dataclass(frozen=True)
class Margin:
    """Mean difference over windows with its 95 % interval, and a one-sided p-value.

    NaN below six windows.
    """

    value: float
    low: float
    high: float
    p: float


def margin(one: Sequence[float], other: Sequence[float]) -> Margin:
    """How much `one` exceeds `other`, paired by window.

    The interval is a percentile bootstrap over windows; p is the share of all changes of
    signs of the differences whose mean is as large (an exact paired permutation test,
    sampled with a fixed seed beyond 12 windows).

    Raises:
        ValueError: different numbers of windows, or none.
    """
    first, second = np.asarray(one, float), np.asarray(other, float)
    if first.shape != second.shape or first.size == 0:
        raise ValueError(
            f"one value a window for both, got {first.size} and {second.size}"
        )
    differences = first - second
    value = float(differences.mean())
    if differences.size < FEWEST_PROMPTS:
        return Margin(value, float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    picked = rng.integers(0, differences.size, (RESAMPLES, differences.size))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(differences[picked].mean(axis=1), [tail, 100 - tail])
    if differences.size <= EXACT:
        signs = np.array(list(product((1, -1), repeat=differences.size)))
    else:
        signs = rng.choice((1, -1), (RESAMPLES, differences.size))
        signs[0] = 1  # what was seen is one of them
    means = (signs * differences).mean(axis=1)
    return Margin(
        value, float(low), float(high), float(np.mean(means >= value - 1e-12))
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979), in the order given; NaN stays NaN.

    Reject those at or below the level and the chance of one false rejection among all
    is at most the level.
    """
    values = np.asarray(p_values, float)
    known = np.flatnonzero(np.isfinite(values))
    adjusted = np.full(values.size, np.nan)
    highest = 0.0
    for place, index in enumerate(known[np.argsort(values[known], kind="stable")]):
        highest = max(highest, min(1.0, (known.size - place) * values[index]))
        adjusted[index] = highest
    return adjusted.tolist()


def rank_correlation(
    one: Sequence[float], other: Sequence[float]
) -> tuple[float, float, float]:
    """Spearman's rho with a 95 % percentile bootstrap interval over the pairs.

    NaN below six pairs, or where one of the two is constant.
    """
    first, second = np.asarray(one, float), np.asarray(other, float)
    nothing = (float("nan"),) * 3
    if first.size < FEWEST_PROMPTS or np.ptp(first) == 0 or np.ptp(second) == 0:
        return nothing
    rho = float(stats.spearmanr(first, second).statistic)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    found = []
    for _ in range(999):
        picked = rng.integers(0, first.size, first.size)
        if np.ptp(first[picked]) and np.ptp(second[picked]):
            found.append(stats.spearmanr(first[picked], second[picked]).statistic)
    low, high = np.percentile(found, [2.5, 97.5])
    return rho, float(low), float(high)


def reliability(
    cosines: Sequence[float], agreed: Sequence[bool], bins: int = 8
) -> list[dict[str, float]]:
    """Share of tokens that agreed among those of like cosine, equally many a bin.

    Returns:
        One dict a bin: low and high cosine, agreement, count.
    """
    values, right = np.asarray(cosines, float), np.asarray(agreed, bool)
    order = np.argsort(values, kind="stable")
    parts = [p for p in np.array_split(order, min(bins, values.size)) if p.size]
    return [
        {
            "low": float(values[part].min()),
            "high": float(values[part].max()),
            "agreement": float(right[part].mean()),
            "count": int(part.size),
        }
        for part in parts
    ]
