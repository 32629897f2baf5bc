"""From paired timings to one figure with its interval.

The unit that varies independently is the prompt: repeats are averaged within a prompt
first, and the bootstrap resamples prompts. Pure: numbers in, numbers out.

    estimate = median_ratio([0.71, 0.69, 0.74, 0.70, 0.72, 0.69])
    estimate.value, estimate.low, estimate.high, estimate.verdict   # ... "slower"
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 9999
FEWEST_PROMPTS = 6  # below this a percentile interval means nothing, so none is given
BOOTSTRAP_SEED = 20260618


@dataclass(frozen=True)
class Estimate:
    """A median with its 95 % interval; low and high are NaN below six prompts."""

    value: float
    low: float
    high: float
    count: int

    @property
    def verdict(self) -> str:
        """'faster', 'slower', 'no difference', or 'too few prompts'."""
        if not np.isfinite(self.low):
            return "too few prompts"
        if self.low > 1:
            return "faster"
        if self.high < 1:
            return "slower"
        return "no difference"


def median_ratio(ratios: Sequence[float]) -> Estimate:
    """Median of one ratio per prompt with a percentile bootstrap interval.

    Args:
        ratios: one value per prompt, repeats already averaged; dimensionless.

    Raises:
        ValueError: no value, or a value that is not a positive finite number.
    """
    values = np.asarray(list(ratios), float)
    if values.size == 0 or not np.all(np.isfinite(values)) or np.any(values <= 0):
        raise ValueError(f"ratios must be positive finite numbers, got {values}")
    return _median(values)


def median_difference(differences: Sequence[float]) -> Estimate:
    """Median of one difference per seed with the same interval; any sign, any unit.

    Its verdict is of no use: it compares with 1, which only a ratio is compared with.

    Raises:
        ValueError: no value, or one that is not finite.
    """
    values = np.asarray(list(differences), float)
    if values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError(f"differences must be finite numbers, got {values}")
    return _median(values)


def rate_interval(
    parts: Sequence[float], wholes: Sequence[float]
) -> tuple[float, float]:
    """The 95 % interval of sum(parts) / sum(wholes), bootstrapped over prompts.

    NaN below six prompts, and where there is nothing to divide by.
    """
    part, whole = np.asarray(parts, float), np.asarray(wholes, float)
    if part.size < FEWEST_PROMPTS or not whole.sum():
        return float("nan"), float("nan")
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    picked = rng.integers(0, part.size, (RESAMPLES, part.size))
    below = whole[picked].sum(axis=1)
    rates = part[picked].sum(axis=1)[below > 0] / below[below > 0]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(rates, [tail, 100 - tail])
    return float(low), float(high)


def _median(values: np.ndarray) -> Estimate:
    middle = float(np.median(values))
    if values.size < FEWEST_PROMPTS:
        return Estimate(middle, float("nan"), float("nan"), values.size)
    if np.ptp(values) == 0:  # nothing to resample
        return Estimate(middle, middle, middle, values.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        interval = stats.bootstrap(
            (values,),
            np.median,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",  # BCa answers NaN on constant data
            rng=np.random.default_rng(BOOTSTRAP_SEED),
        ).confidence_interval
    return Estimate(middle, float(interval.low), float(interval.high), values.size)


def repeated_ngram_share(tokens: Sequence[int], n: int = 4) -> float:
    """Share of n-grams that occurred before in the same text, 0 to 1.

    Small models under greedy decoding loop, and a loop is easy to draft: this share says
    how much of an acceptance rate may be owed to that. 0 for texts shorter than n + 1.
    """
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if len(grams) > 1 else 0.0
