"""The identity against the figures that the sources print."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec.costs import round_remainder, speedup, weight_share_cost

ratio = st.floats(0.05, 3)


@given(drafted=st.integers(1, 16), share=st.floats(0, 1), c=ratio, v=ratio, o=ratio)
def test_speedup_is_baseline_steps_over_round_steps(drafted, share, c, v, o):
    accepted = share * drafted
    expected = (accepted + 1) / (drafted * c + v + o)
    measured = speedup(
        accepted=accepted,
        drafted=drafted,
        cost_ratio=c,
        verify_ratio=v,
        overhead_ratio=o,
    )
    assert measured == pytest.approx(expected)


@given(drafted=st.integers(1, 16), share=st.floats(0, 1), c=st.floats(0.05, 1.5))
def test_with_free_verification_a_draft_pays_exactly_above_the_diagonal(
    drafted, share, c
):
    s = speedup(accepted=share * drafted, drafted=drafted, cost_ratio=c, verify_ratio=1)
    if abs(share - c) > 1e-6:
        assert (s > 1) == (share > c)


@given(drafted=st.integers(1, 8), share=st.floats(0, 1), c=ratio, v=ratio)
def test_round_remainder_inverts_speedup(drafted, share, c, v):
    s = speedup(accepted=share * drafted, drafted=drafted, cost_ratio=c, verify_ratio=v)
    back = round_remainder(
        speedup=s, accepted=share * drafted, drafted=drafted, cost_ratio=c
    )
    assert back == pytest.approx(v, abs=1e-6)


def test_the_posts_worst_row_implies_three_steps_and_its_best_a_little_over_one():
    worst = round_remainder(speedup=0.22, accepted=0.3, drafted=5, cost_ratio=0.55)
    best = round_remainder(speedup=0.80, accepted=1.36, drafted=2, cost_ratio=0.90)
    assert worst == pytest.approx(3.2, abs=0.1)
    assert best == pytest.approx(1.15, abs=0.01)


def test_weight_share_counts_the_head_whatever_is_skipped():
    cost = weight_share_cost(
        num_layers=36, skipped_layers=18, layer_weights=3633.5, head_weights=389
    )
    assert cost == pytest.approx((389 + 3633.5 / 2) / (389 + 3633.5))
    every = dict(num_layers=36, layer_weights=3633.5, head_weights=389)
    assert weight_share_cost(skipped_layers=0, **every) == 1
    with pytest.raises(ValueError, match="skipped_layers"):
        weight_share_cost(skipped_layers=37, **every)


def test_speedup_takes_arrays():
    out = speedup(
        accepted=np.array([0, 2]), drafted=2, cost_ratio=0.5, verify_ratio=1.0
    )
    assert out == pytest.approx([0.5, 1.5])


@pytest.mark.parametrize("accepted", [-0.1, 2.1])
def test_impossible_acceptance_is_refused(accepted):
    with pytest.raises(ValueError, match="accepted"):
        speedup(accepted=accepted, drafted=2, cost_ratio=0.5, verify_ratio=1)


def test_a_round_that_costs_nothing_is_refused():
    with pytest.raises(ValueError, match="cost"):
        speedup(accepted=0, drafted=0, cost_ratio=0.5, verify_ratio=0)


def test_a_speedup_of_zero_has_no_remainder():
    with pytest.raises(ValueError, match="positive"):
        round_remainder(speedup=0, accepted=0, drafted=2, cost_ratio=0.5)
