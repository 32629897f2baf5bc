"""Intervals: seeded, honest about few prompts, right on data with a known answer."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec.study.statistics import (
    median_ratio,
    rate_interval,
    repeated_ngram_share,
)


def test_interval_covers_the_median_and_is_the_same_every_time():
    ratios = [0.7, 0.72, 0.68, 0.71, 0.75, 0.69, 0.74, 0.73]
    first, again = median_ratio(ratios), median_ratio(ratios)
    assert first == again
    assert first.low <= first.value <= first.high
    assert first.value == pytest.approx(np.median(ratios))
    assert first.verdict == "slower"


def test_order_of_prompts_changes_nothing_but_the_draw():
    ratios = [0.9, 0.95, 1.02, 1.05, 1.1, 0.98, 1.0, 1.01]
    shuffled = random.Random(1).sample(ratios, len(ratios))
    assert median_ratio(ratios).value == median_ratio(shuffled).value


@pytest.mark.parametrize(
    "ratios, verdict",
    [
        ([1.2, 1.3, 1.25, 1.22, 1.28, 1.31], "faster"),
        ([0.8, 1.3, 1.05, 0.92, 1.18, 0.99, 1.01], "no difference"),
        ([1.2] * 8, "faster"),
        ([1.0] * 8, "no difference"),
        ([1.2, 1.3, 1.25, 1.22, 1.28], "too few prompts"),
    ],
)
def test_verdict(ratios, verdict):
    assert median_ratio(ratios).verdict == verdict


def test_no_interval_below_six_prompts():
    estimate = median_ratio([0.7, 0.8, 0.9, 1.0, 1.1])
    assert estimate.value == pytest.approx(0.9)
    assert math.isnan(estimate.low) and math.isnan(estimate.high)


@pytest.mark.parametrize("ratios", [[], [0.5, float("nan")], [0.5, 0], [-1, 1]])
def test_ratios_that_are_none_are_refused(ratios):
    with pytest.raises(ValueError, match="positive finite"):
        median_ratio(ratios)


def test_interval_covers_a_known_median_as_often_as_it_says():
    """200 samples of 8 log-normal ratios; a percentile interval of the median at n = 8
    covers about 93 to 96 %. Fewer than 85 % by chance: p < 1e-6; the seed is fixed."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        estimate = median_ratio(np.exp(rng.normal(0.1, 0.2, size=8)))
        hits += estimate.low <= math.exp(0.1) <= estimate.high
    assert hits >= 170


def test_repeated_ngram_share_of_known_texts():
    assert repeated_ngram_share([1, 2, 3, 4, 5, 6, 7, 8]) == 0
    assert repeated_ngram_share([1, 2] * 20) == pytest.approx(1 - 2 / 37)
    assert repeated_ngram_share([1, 2, 3]) == 0
    assert repeated_ngram_share([]) == 0


@given(st.lists(st.integers(0, 3), max_size=60))
def test_repeated_ngram_share_lies_between_0_and_1(tokens):
    assert 0 <= repeated_ngram_share(tokens) < 1


def test_interval_of_a_rate_holds_the_rate_and_is_the_same_every_time():
    accepted, drafted = [3, 5, 4, 6, 2, 5, 4, 4], [10, 10, 8, 12, 9, 11, 8, 10]
    low, high = rate_interval(accepted, drafted)
    assert (low, high) == rate_interval(accepted, drafted)
    assert low < sum(accepted) / sum(drafted) < high
    # a prompt that drafted nothing weighs nothing, and all alike leave no spread
    assert rate_interval([1] * 7 + [0], [2] * 7 + [0]) == (0.5, 0.5)


def test_no_interval_of_a_rate_from_few_prompts_or_from_nothing():
    assert all(map(math.isnan, rate_interval([1] * 5, [2] * 5)))
    assert all(map(math.isnan, rate_interval([0] * 8, [0] * 8)))
