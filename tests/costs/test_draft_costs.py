"""What each kind of draft costs: predicted, free, timed once, or the dearer of two."""

import pytest

from selfspec.costs import draft_costs, timing
from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
)
from selfspec.models import UnsupportedModelError
from selfspec.models.remembered import Remembered
from tests.costs.synthetic import profile
from tests.decoding import families

KNOWN = profile()


def costs_of(model, draft, told=lambda what: None):
    return draft_costs.costs_of_draft(draft, model, KNOWN, 200, told=told)


@pytest.mark.parametrize(
    "draft",
    [
        SkipDraft.middle(6, 0.5),
        ExitDraft(2),
        ShortlistDraft(SkipDraft({1}), range(40)),
    ],
    ids=lambda draft: type(draft).__name__,
)
def test_parts_of_the_target_cost_what_the_profile_predicts(tiny, draft):
    found = costs_of(tiny, draft)
    assert found.pop("catch_up_ratio") == 0
    assert found == KNOWN.costs_of(draft, 200)


def test_a_lookup_is_free_and_verified_by_the_whole_model(tiny):
    found = costs_of(tiny, LookupDraft())
    assert found["cost_ratio"] == 0
    assert found["verify_ratio"][5] == KNOWN.verify_ratio(5, 200)
    assert found["overhead_ratio"] == KNOWN.overhead_ratio(200)


def test_a_fallback_costs_what_its_dearer_part_does(tiny):
    exits = costs_of(tiny, ExitDraft(4))
    lookup = costs_of(tiny, LookupDraft())
    both = costs_of(tiny, FallbackDraft(LookupDraft(), ExitDraft(4)))
    assert both["cost_ratio"] == exits["cost_ratio"] > 0
    assert exits["verify_ratio"][8] < lookup["verify_ratio"][8]  # it keeps rows
    assert both["verify_ratio"] == lookup["verify_ratio"]


@pytest.fixture
def timed(monkeypatch):
    """The models that were timed; a clock under which c is 0.5 and v_draft(16) is 4."""
    models = []

    def measure(model, *, context, rows=(), drafts=None, repeats=1):
        models.append(model)
        return timing.Costs(
            step_seconds=1.0,
            verify_ratio=dict.fromkeys(rows, 4.0),
            cost_ratio=dict.fromkeys(drafts or {}, 0.5),
            context_length=len(context),
            blas_threads=1,
        )

    monkeypatch.setattr(timing, "measure", measure)
    monkeypatch.setattr(draft_costs, "_timed", Remembered())
    return models


def test_a_draft_model_is_timed_once_and_reads_what_it_missed(tiny, timed):
    other, said = families.build("llama"), []
    for draft in (ModelDraft(other), ModelDraft(other)):
        found = costs_of(tiny, draft, said.append)
        assert found["cost_ratio"] == 0.5
        assert found["catch_up_ratio"] == 0.5 * 4 / 16
        assert found["verify_ratio"][3] == KNOWN.verify_ratio(3, 200)
    assert [id(model) for model in timed] == [id(tiny), id(other)]
    assert len(said) == 1 and "draft model" in said[0]


def test_another_draft_model_target_or_shortlist_is_timed_for_itself(tiny, timed):
    other = families.build("llama")
    costs_of(tiny, ModelDraft(other))
    costs_of(tiny, ModelDraft(families.build("llama")))
    costs_of(families.build("llama"), ModelDraft(other))
    costs_of(tiny, ShortlistDraft(ModelDraft(other), range(40)))
    assert len(timed) == 8


def test_draft_models_are_really_timed(tiny, monkeypatch):
    monkeypatch.setattr(draft_costs, "_timed", Remembered())
    measure = timing.measure
    monkeypatch.setattr(timing, "measure", lambda m, **o: measure(m, **o, repeats=1))
    other = families.build("llama")
    for draft in (ModelDraft(other), ShortlistDraft(ModelDraft(other), range(40))):
        found = costs_of(tiny, draft)
        assert found["cost_ratio"] > 0 and found["catch_up_ratio"] > 0


def test_a_window_too_short_to_time_is_refused(tiny, timed):
    other = families.build("llama_sliding")
    with pytest.raises(UnsupportedModelError, match="too short.*Way out: a fixed"):
        costs_of(tiny, ModelDraft(other))
    assert not timed
