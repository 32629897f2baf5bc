"""Margins over windows, Holm's correction, ranks, reliability."""

import math

import numpy as np
import pytest
from scipy import stats

from selfspec.study.set_statistics import holm, margin, rank_correlation, reliability


def test_a_clear_margin_excludes_0_and_no_margin_does_not():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.4, 0.6, 12)
    clear = margin(base + rng.uniform(0.05, 0.15, 12), base)
    none = margin(base + rng.normal(0, 0.05, 12), base)
    assert clear.low > 0 and clear.p == pytest.approx(1 / 2**12)
    assert none.low < 0 < none.high and none.p > 0.05


def test_the_p_value_is_that_of_every_change_of_signs():
    one, other = [0.5, 0.7, 0.6, 0.9, 0.4, 0.8], [0.4, 0.5, 0.65, 0.6, 0.35, 0.7]
    found = stats.permutation_test(
        (one, other),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
    )
    assert margin(one, other).p == pytest.approx(found.pvalue)


def test_a_true_null_is_rejected_one_time_in_twenty():
    rng = np.random.default_rng(1)
    p = [margin(rng.normal(size=8), rng.normal(size=8)).p for _ in range(400)]
    # 400 trials: a standard error of 0.011 around 0.05
    assert np.mean(np.array(p) <= 0.05) < 0.09


def test_few_windows_give_no_interval():
    found = margin([0.5] * 5, [0.4] * 5)
    assert found.value == pytest.approx(0.1)
    assert all(math.isnan(x) for x in (found.low, found.high, found.p))
    with pytest.raises(ValueError, match="one value a window"):
        margin([0.1], [0.1, 0.2])


def test_many_windows_are_sampled():
    rng = np.random.default_rng(2)
    assert margin(rng.uniform(0.1, 0.2, 30), np.zeros(30)).p < 0.01


def test_holm_by_hand():
    # 0.01 * 4, 0.02 * 3, 0.03 * 2, and never below the one before
    assert holm([0.02, 0.01, 0.9, 0.03]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
    one, unknown = holm([0.01, math.nan])
    assert one == pytest.approx(0.01) and math.isnan(unknown)


def test_rank_correlation_knows_order_and_when_there_is_none():
    values = np.linspace(0, 1, 20)
    rho, low, high = rank_correlation(values, values**3)
    assert rho == pytest.approx(1) and low == pytest.approx(1) == high
    rng = np.random.default_rng(3)
    rho, low, high = rank_correlation(rng.normal(size=40), rng.normal(size=40))
    assert low < 0 < high and low < rho < high
    assert all(math.isnan(x) for x in rank_correlation([1.0] * 9, values[:9]))
    assert all(math.isnan(x) for x in rank_correlation([1.0, 2.0], [1.0, 2.0]))


def test_reliability_bins_hold_equally_many():
    found = reliability([0.1, 0.9, 0.5, 0.7], [False, True, True, False], bins=2)
    assert [b["count"] for b in found] == [2, 2]
    assert found[0] == {"low": 0.1, "high": 0.5, "agreement": 0.5, "count": 2}
    assert found[1]["agreement"] == 0.5
    assert len(reliability([0.3], [True], bins=8)) == 1
