"""The formulas against the worked tables of the literature notes, and brute force.

The tables are printed figures, so agreement is to their last printed digit.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec.costs import (
    best_draft_length,
    clairvoyant_bound,
    expected_accepted,
    expected_speedup,
    required_acceptance,
    round_cost,
    speedup,
    upper_bound,
    verify_at,
)

# (acceptance, c): S by draft length, at v = 1 and o = 0
NAIVE = {
    (0.68, 0.90): {1: 0.884, 2: 0.765, 3: 0.664, 4: 0.581, 8: 0.369},
    (0.68, 0.908): {1: 0.881, 2: 0.761, 4: 0.577},
    (0.68, 0.92): {1: 0.875},
    (0.30, 0.75): {1: 0.743, 2: 0.556, 3: 0.436, 4: 0.356, 8: 0.204},
    (0.06, 0.50): {1: 0.707, 2: 0.532, 3: 0.426, 4: 0.355, 8: 0.213},
    (0.06, 0.54): {1: 0.688, 2: 0.511, 4: 0.337},
    (0.06, 0.60): {1: 0.662},
}
# acceptance: best S over k <= 10 and that k, at each c
SURFACE_COSTS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
SURFACE = {
    0.60: ((0.84, 1), (0.89, 1), (0.94, 1), (1.00, 1), (1.07, 1), (1.14, 1)),
    0.70: ((0.89, 1), (0.94, 1), (1.00, 1), (1.06, 1), (1.13, 1), (1.22, 2)),
    0.80: ((0.95, 1), (1.00, 1), (1.06, 1), (1.12, 1), (1.22, 2), (1.36, 2)),
    0.90: ((1.00, 1), (1.06, 1), (1.13, 2), (1.23, 2), (1.38, 3), (1.58, 4)),
    0.95: ((1.03, 1), (1.10, 2), (1.20, 3), (1.33, 4), (1.51, 5), (1.77, 6)),
    0.97: ((1.04, 2), (1.12, 3), (1.24, 4), (1.39, 5), (1.60, 7), (1.90, 8)),
    0.99: ((1.07, 4), (1.17, 6), (1.31, 8), (1.50, 10), (1.74, 10), (2.09, 10)),
}
# target S: required acceptance at each c, k <= 10
REQUIRED = {
    1.2: {0.8: 0.996, 0.7: 0.952, 0.6: 0.875, 0.5: 0.785},
    1.4: {0.6: 0.972, 0.5: 0.912, 0.4: 0.828},
    1.5: {0.6: 0.991, 0.5: 0.946, 0.4: 0.873},
}


@pytest.mark.parametrize(("at", "row"), NAIVE.items())
def test_naive_outcomes_are_those_of_the_table(at, row):
    acceptance, cost_ratio = at
    for k, printed in row.items():
        s = expected_speedup(acceptance, k, cost_ratio=cost_ratio)
        assert s == pytest.approx(printed, abs=0.000501)


@pytest.mark.parametrize(("acceptance", "row"), SURFACE.items())
def test_the_surface_and_its_best_lengths_are_those_of_the_table(acceptance, row):
    for cost_ratio, (printed, length) in zip(SURFACE_COSTS, row, strict=True):
        # the table has no length 0, so the best of 1 to 10 is taken here
        s = {
            k: expected_speedup(acceptance, k, cost_ratio=cost_ratio)
            for k in range(1, 11)
        }
        assert max(s, key=s.get) == length
        assert s[length] == pytest.approx(printed, abs=0.00501)
        plan = best_draft_length(acceptance, cost_ratio=cost_ratio)
        assert plan == ((length, s[length]) if s[length] > 1 else (0, 1.0))


@pytest.mark.parametrize(("target", "row"), REQUIRED.items())
def test_required_acceptance_is_that_of_the_table(target, row):
    for cost_ratio, printed in row.items():
        needed = required_acceptance(target, cost_ratio=cost_ratio, limit=10)
        assert needed == pytest.approx(printed, abs=0.000501)


@pytest.mark.parametrize(
    ("acceptance", "cost_ratio", "free", "dear"),
    [(0.9, 0.7, 1.129, 1.086), (0.95, 0.6, 1.331, 1.258)],
)
def test_five_percent_a_row_costs_what_the_table_says(
    acceptance, cost_ratio, free, dear
):
    rising = {m: 1 + 0.05 * (m - 1) for m in range(1, 12)}
    for verify, printed in ((1.0, free), (rising, dear)):
        plan = best_draft_length(acceptance, cost_ratio=cost_ratio, verify_ratio=verify)
        assert plan.speedup == pytest.approx(printed, abs=0.000501)


def test_half_the_cost_is_capped_at_1_83_for_ten_tokens():
    assert upper_bound(10, cost_ratio=0.5) == pytest.approx(1.83, abs=0.00501)
    assert upper_bound(10, cost_ratio=0.5) < 1 / 0.5


@given(st.floats(0, 0.999), st.integers(0, 16))
def test_expected_accepted_is_the_geometric_closed_form(alpha, k):
    tokens = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert 1 + expected_accepted(alpha, k) == pytest.approx(tokens)


def test_expected_accepted_is_what_simulated_rounds_accept():
    rng = np.random.default_rng(5)
    kept = rng.random((100_000, 4)) < 0.7
    accepted = np.cumprod(kept, axis=1).sum(axis=1)
    # five standard errors: false alarm under one in a million
    margin = 5 * accepted.std() / math.sqrt(len(accepted))
    assert abs(accepted.mean() - expected_accepted(0.7, 4)) < margin


@given(st.floats(0, 1), st.integers(1, 12), st.floats(0.05, 1.5), st.floats(0, 0.3))
def test_it_is_the_identity_at_the_expected_accepted(alpha, k, c, o):
    verify = {2: 1.1, 8: 1.9}
    s = expected_speedup(alpha, k, cost_ratio=c, verify_ratio=verify, overhead_ratio=o)
    assert s == pytest.approx(
        speedup(
            accepted=expected_accepted(alpha, k),
            drafted=k,
            cost_ratio=c,
            verify_ratio=verify_at(verify, k + 1),
            overhead_ratio=o,
        )
    )


@given(st.floats(0, 1), st.floats(0.05, 1.2), st.floats(0, 0.2))
def test_some_length_wins_exactly_where_acceptance_exceeds_c_plus_a_rows_cost(
    alpha, c, row
):
    verify = {1: 1.0, 2: 1 + row}  # v(m) = 1 + row * (m - 1)
    plan = best_draft_length(alpha, cost_ratio=c, verify_ratio=verify, limit=12)
    if abs(alpha - c - row) > 1e-9:
        assert (plan.num_draft_tokens > 0) == (alpha > c + row)


@given(st.floats(1, 1.6), st.floats(0.1, 1), st.integers(1, 8))
def test_required_acceptance_inverts_the_speedup(target, c, k):
    needed = required_acceptance(target, cost_ratio=c, num_draft_tokens=k)
    if math.isinf(needed):
        assert upper_bound(k, cost_ratio=c) < target
    else:
        s = expected_speedup(needed, k, cost_ratio=c)
        assert s >= target
        assert s == pytest.approx(target, abs=1e-9) or needed == 0


def test_a_target_that_no_acceptance_reaches_needs_infinitely_much():
    assert required_acceptance(1.9, cost_ratio=0.6, limit=10) == math.inf


def test_clairvoyance_drafts_just_what_is_kept():
    assert clairvoyant_bound([3], cost_ratio=0.5) == pytest.approx(4 / (0.5 * 3 + 1))
    assert clairvoyant_bound([0], cost_ratio=0.5, verify_ratio=1.3) == 1
    mixed = clairvoyant_bound([0, 4], cost_ratio=0.5, verify_ratio={5: 1.4})
    assert mixed == pytest.approx((1 + 5) / (1 + 0.5 * 4 + 1.4))
    with pytest.raises(ValueError, match="accepted"):
        clairvoyant_bound([], cost_ratio=0.5)


def test_clairvoyance_beats_every_fixed_length_on_the_same_tokens():
    kept = np.random.default_rng(2).random(400) < 0.8
    runs = [len(list(g)) for value, g in itertools.groupby(kept) if value]
    for k in (1, 2, 3, 6):
        pieces = []  # each run of kept tokens, cut into rounds of at most k
        for run in runs:
            pieces += [k] * (run // k) + [run % k]
        fixed = sum(1 + a for a in pieces) / (len(pieces) * (0.6 * k + 1))
        assert clairvoyant_bound(runs, cost_ratio=0.6) > fixed


def test_verify_ratio_between_widths_is_on_the_line_and_goes_on_after_the_last():
    table = {2: 1.2, 4: 1.6}
    widths = [1, 2, 3, 4, 6]
    assert [verify_at(table, m) for m in widths] == pytest.approx(
        [1.0, 1.2, 1.4, 1.6, 2.0]
    )
    assert verify_at({1: 1.1}, 5) == 1.1
    assert verify_at(1.3, 9) == 1.3
    with pytest.raises(ValueError, match="widths"):
        verify_at({}, 2)


def test_drafting_nothing_costs_one_step_whatever_the_rest():
    assert round_cost(0, cost_ratio=9, verify_ratio=9, overhead_ratio=9) == 1
    assert expected_speedup(1.0, 0, cost_ratio=0.1) == 1


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: expected_accepted(1.1, 2), "acceptance"),
        (lambda: expected_accepted(0.5, -1), "num_draft_tokens"),
        (
            lambda: required_acceptance(1.2, cost_ratio=0.5, num_draft_tokens=0),
            "num_draft_tokens",
        ),
    ],
)
def test_values_out_of_range_are_refused_by_name(call, word):
    with pytest.raises(ValueError, match=word):
        call()
