"""Predicted S over lengths, its lower bound, and declining."""

import made
import numpy as np
import pytest

from selfspec.costs import best_draft_length
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


def test_with_one_agreement_everywhere_it_is_the_length_that_costs_knows():
    profile = made.profile(6)
    found = plan(HALF, [0.9], 10**9, profile, context=256, limit=10)
    known = profile.costs_of(HALF, 256)
    length = found.num_draft_tokens
    known["cost_ratio"] = profile.cost_ratio(HALF, 256, length)
    expected = best_draft_length(0.9, limit=10, **known)
    assert found.num_draft_tokens == pytest.approx(expected.num_draft_tokens, abs=1)
    assert found.speedup == pytest.approx(expected.speedup, rel=0.01)
    assert found.low == pytest.approx(found.speedup, rel=1e-3)


def test_a_good_draft_that_is_hardly_known_declines():
    sure, unsure = (
        plan(HALF, [1.0], count, made.profile(6), limit=8) for count in (10**9, 3)
    )
    assert choose([sure]).draft == HALF and sure.low > 1
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
