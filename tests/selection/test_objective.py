"""Predicted S over lengths, its lower bound, and declining."""

import made
import numpy as np
import pytest

from selfspec.costs import expected_speedup
from selfspec.decoding.drafts import SkipDraft
from selfspec.selection import objective
from selfspec.selection.objective import (
    DECLINE,
    choose,
    expected_accepted,
    lower_bound,
    plan,
)

HALF = SkipDraft(range(3, 6), range(3, 6))
THIN = SkipDraft(range(1, 6), range(1, 6))


def test_accepted_tokens_are_products_of_the_agreements():
    assert expected_accepted([0.9, 0.8], 2) == pytest.approx(0.9 + 0.9 * 0.8)
    # beyond the last measured position the last one counts
    assert expected_accepted([0.9, 0.8], 3) == pytest.approx(0.9 + 0.72 + 0.72 * 0.8)
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        expected_accepted([1.2], 1)
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        expected_accepted([], 1)


def test_the_lower_bound_holds_19_times_of_20():
    rng = np.random.default_rng(0)
    for share in (0.5, 0.9):
        seen = rng.binomial(200, share, 4000) / 200
        held = np.mean([lower_bound(float(s), 200) <= share for s in seen])
        # 4000 trials: a standard error of 0.0034 around 0.95
        assert held == pytest.approx(0.95, abs=0.02)


def test_the_lower_bound_knows_small_counts():
    assert lower_bound(1.0, 0) == 0
    assert 0 < lower_bound(1.0, 5) < lower_bound(1.0, 500) < 1
    assert lower_bound(0.0, 100) == 0


def test_with_one_agreement_everywhere_it_is_the_identity_at_its_best_length():
    profile = made.profile(6)

    def speedup(length):
        known = profile.costs_of(HALF, 256)
        known["cost_ratio"] = profile.cost_ratio(HALF, 256, length)
        return expected_speedup(0.9, length, **known)

    found = plan(HALF, [0.9], 10**9, profile, context=256, limit=10)
    assert found.num_draft_tokens == max(range(1, 11), key=speedup)
    assert found.speedup == pytest.approx(speedup(found.num_draft_tokens))
    assert found.low == pytest.approx(found.speedup, rel=1e-3)


def test_a_good_draft_that_is_hardly_known_declines():
    sure, unsure = (
        plan(THIN, [1.0], count, made.profile(6), limit=8) for count in (10**9, 3)
    )
    assert choose([sure]).draft == THIN and sure.low > 1
    assert unsure.speedup > 1 > unsure.low
    assert choose([unsure]) is DECLINE


def test_the_best_lower_bound_wins_and_nothing_declines():
    plans = [
        objective.Plan("risky", 4, 1.4, 1.01),
        objective.Plan("safe", 1, 1.1, 1.05),
    ]
    assert choose(plans).draft == "safe"
    assert choose([objective.Plan("poor", 1, 1.2, 0.99)]) is DECLINE
    assert choose([]) is DECLINE
