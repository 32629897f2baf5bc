"""Costs known beforehand: of every kind of draft, and the speedup that they promise."""

import math

import pytest

from selfspec.costs import costs_of_draft, speedup
from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ShortlistDraft,
    SkipDraft,
)
from selfspec.study import known_costs
from selfspec.study.errors import StudyError
from selfspec.study.known_costs import DraftCosts
from tests.costs.synthetic import profile

SKIP = SkipDraft.middle(6, 0.5)
TWO = FallbackDraft(LookupDraft(), SKIP)


@pytest.mark.parametrize("draft", [SKIP, ExitDraft(3), ShortlistDraft(SKIP, range(9))])
def test_parts_of_the_target_are_predicted_by_the_profile(draft):
    known, machine = DraftCosts(profile(), draft), profile()
    assert known.predictable()
    assert known.cost_ratio(300, 2) == machine.cost_ratio(draft, 300, 2)
    assert known.verify_ratio(3, 300) == machine.draft_verify_ratio(draft, 3, 300)


def test_a_lookup_drafts_for_nothing_and_verifies_like_the_target():
    known = DraftCosts(profile(), LookupDraft())
    assert known.predictable() and known.cost_ratio(300) == 0
    assert known.verify_ratio(5, 300) == profile().verify_ratio(5, 300)


def test_what_a_profile_cannot_predict_is_timed(tiny_loaded, monkeypatch):
    assert not DraftCosts(profile(), TWO).predictable()
    drafts = {"two": TWO, "skip": SKIP, "lookup": LookupDraft()}
    timed = known_costs.timed_costs(tiny_loaded.model, profile(), drafts)
    assert set(timed) == {"two"}
    expected = costs_of_draft(TWO, tiny_loaded.model, profile())["cost_ratio"]
    assert timed["two"] == expected
    assert DraftCosts(profile(), TWO, 0.8).cost_ratio(300) == 0.8


def test_a_draft_of_another_model_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        DraftCosts(profile(), SkipDraft(frozenset({9}))).predictable()


def test_equal_rounds_give_the_identity():
    """Ten rounds of three tokens with two kept are one round of the formula."""
    known = DraftCosts(profile(), SKIP)
    value = known.speedup([(3, 2)] * 10, tokens=30, context=300)
    assert value == pytest.approx(
        speedup(
            accepted=2,
            drafted=3,
            cost_ratio=known.cost_ratio(300, 3),
            verify_ratio=known.verify_ratio(4, 300),
            overhead_ratio=known.overhead_ratio(300),
        )
    )


def test_a_step_that_a_rule_left_plain_costs_one_and_an_empty_round_a_pass():
    known = DraftCosts(profile(), LookupDraft())
    assert known.speedup([(0, 0)] * 8, 8, 300, plain=8) == 1
    empty = known.verify_ratio(1, 300) + known.overhead_ratio(300)
    assert known.speedup([(0, 0)] * 8, 8, 300) == pytest.approx(1 / empty)
    mixed = known.speedup([(0, 0)] * 8, 8, 300, plain=6)
    assert mixed == pytest.approx(8 / (6 + 2 * empty))
    assert math.isnan(known.speedup([], 0, 300))


def test_a_profile_is_measured_once_and_kept_apart_from_a_shorter_one(
    tiny_loaded, tmp_path, monkeypatch
):
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path))
    asked = []

    def measured(model, *, budget):
        asked.append(budget)
        return profile(measured_seconds=budget)

    monkeypatch.setattr(known_costs.costs, "measure_profile", measured, raising=False)
    monkeypatch.setattr(
        known_costs.costs, "choose_threads", lambda *a, **k: 1, raising=False
    )
    reasons = []
    first = known_costs.machine_profile(tiny_loaded, budget=2.0, told=reasons.append)
    again = known_costs.machine_profile(tiny_loaded, budget=2.0, told=reasons.append)
    assert first == again and asked == [2.0] and len(reasons) == 1
    known_costs.machine_profile(tiny_loaded)
    assert asked == [2.0, known_costs.BUDGET]


def test_a_window_too_short_to_profile_is_one_line(tiny_loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path))

    def too_short(model, *, budget):
        raise ValueError("tiny: a window of 1 tokens is too short to profile")

    monkeypatch.setattr(known_costs.costs, "measure_profile", too_short, raising=False)
    with pytest.raises(StudyError, match="too short to profile. Way out"):
        known_costs.machine_profile(tiny_loaded)
