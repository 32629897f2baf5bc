"""Measuring leaves the caches alone and answers for every width and draft asked for."""

import math

import mlx.core as mx
import pytest

import selfspec
from selfspec import blas, costs
from selfspec.decoding import SkipDraft, shorter_list_model
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny")).model


def test_every_ratio_asked_for_is_measured(tiny):
    draft = shorter_list_model(tiny, SkipDraft.middle(6, 0.5))
    found = costs.measure(
        tiny,
        context=list(range(1, 30)),
        rows=(1, 3, 6),
        drafts={"half": draft},
        repeats=3,
    )
    assert set(found.verify_ratio) == {1, 3, 6}
    assert set(found.cost_ratio) == {"half"}
    values = [
        found.step_seconds,
        *found.verify_ratio.values(),
        *found.cost_ratio.values(),
    ]
    assert all(math.isfinite(value) and value > 0 for value in values)
    assert found.context_length == 29
    assert found.to_json()["verify_ratio"].keys() == {"1", "3", "6"}


def test_every_timing_starts_from_the_same_context(tiny, monkeypatch):
    """A cache that grew from repeat to repeat would make later timings slower."""
    from selfspec.costs import timing as module

    caches = []
    fill = module._filled_cache

    def remembered(model, context):
        caches.append(fill(model, context))
        return caches[-1]

    monkeypatch.setattr(module, "_filled_cache", remembered)
    draft = shorter_list_model(tiny, SkipDraft.middle(6, 0.5))
    costs.measure(
        tiny, context=list(range(20)), rows=(2, 5), drafts={"d": draft}, repeats=2
    )
    assert len(caches) == 2
    assert {layer.offset for cache in caches for layer in cache} == {19}


def test_choose_threads_sets_what_it_returns(tiny):
    before = blas.threads()
    try:
        chosen = costs.choose_threads(tiny, context=list(range(20)), repeats=1)
        assert chosen == blas.threads()
    finally:
        blas.set_threads(max(1, before))


def test_a_context_of_one_token_is_refused(tiny):
    with pytest.raises(ValueError, match="2 tokens"):
        costs.measure(tiny, context=[1])


def test_plain_step_replays_nothing_into_the_cache(tiny):
    from selfspec.costs import timing as module

    cache = module._filled_cache(tiny, list(range(20)))
    keys = mx.array(cache[0].keys[..., :19, :])
    module.plain_step_seconds(tiny, cache, 19)
    assert mx.array_equal(cache[0].keys[..., :19, :], keys)
