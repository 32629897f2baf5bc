"""The parts of a regret add up to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec.selection.gap import split

worth = st.floats(0.1, 3)
tables = st.lists(st.tuples(worth, worth, worth), min_size=1, max_size=6)


@given(tables, worth, worth)
def test_the_sum_is_exact(rows, with_overhead, measured):
    held_out, calibration, proxy = (
        {i: row[place] for i, row in enumerate(rows)} for place in range(3)
    )
    gap = split(
        0,
        held_out=held_out,
        calibration=calibration,
        proxy=proxy,
        with_overhead=with_overhead,
        measured=measured,
    )
    assert gap.total == pytest.approx(max(held_out.values()) - measured)
    assert gap.in_sample >= 0


def test_each_part_is_charged_to_the_step_that_lost_it():
    held_out = {"best": 1.3, "lucky": 1.2, "cosine": 1.1, "found": 1.0}
    calibration = {"best": 1.2, "lucky": 1.4, "cosine": 1.1, "found": 1.0}
    proxy = {"best": 0.1, "lucky": 0.2, "cosine": 0.9, "found": 0.8}
    gap = split(
        "found",
        held_out=held_out,
        calibration=calibration,
        proxy=proxy,
        with_overhead=0.97,
        measured=0.95,
    )
    parts = gap.in_sample, gap.proxy, gap.search, gap.overhead, gap.cost_model
    assert parts == pytest.approx((0.1, 0.1, 0.1, 0.03, 0.02))


def test_tables_of_different_drafts_are_refused():
    with pytest.raises(ValueError, match="same drafts"):
        split(
            "a",
            held_out={"a": 1.0},
            calibration={"b": 1.0},
            proxy={"a": 1.0},
            with_overhead=1.0,
            measured=1.0,
        )
