"""Choosing again while decoding: lossless, paid for, and right about what it reads."""

import math
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

import selfspec
from selfspec.decoding import ShortlistDraft, SkipDraft, Trace, generate_step
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.decoding.trace import Round
from selfspec.models.blocks import find_stack
from selfspec.models.errors import UnsupportedModelError
from selfspec.selection import online
from selfspec.selection.online import (
    EveryTokens,
    Known,
    OnCost,
    OnDrift,
    OnlinePolicy,
    RecentText,
    Since,
)
from selfspec.selection.passes import TargetText
from selfspec.selection.scores import agreed_rows
from selfspec.selection.windows import Window
from tests.costs import synthetic
from tests.selection.made import profile
from tests.tiny import save_tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
GOOD, BAD = SkipDraft({3}, {3}), SkipDraft({0, 1, 2, 3, 4}, {0, 1, 2, 3, 4})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("online") / "tiny-online")
    return selfspec.load(folder).model


def pool(good=0.9, bad=0.2):
    return [Known(GOOD, good, good, 100), Known(BAD, bad, bad, 100)]


def cheap(**changes):
    """A machine on which drafting pays: verification costs one step at any width."""
    step = synthetic.whole(1, 256)
    return profile(6, pass_seconds={m: step for m in range(1, 17)}, **changes)


def text_of(model, count, **options):
    trace = Trace()
    steps = generate_step(PROMPT, model, max_tokens=count, trace=trace, **options)
    return [int(token) for token, *_ in steps], trace


def live(model, tokens):
    """A target that has read all of the text but its last token."""
    target = Target(model, Caches(make_prompt_cache(model)))
    mx.eval(target.logits(mx.array(tokens[:-1], mx.uint32)))
    return target


@pytest.mark.parametrize("may_decline", [True, False])
def test_the_text_is_the_targets_own_whatever_is_chosen(model, may_decline):
    plain, _ = text_of(model, 40)
    policy = OnlinePolicy(
        pool(),
        cheap(),
        when=[EveryTokens(4), OnDrift(fewest=2)],
        budget=math.inf,
        may_decline=may_decline,
    )
    drafted, trace = text_of(model, 40, policy=policy)
    assert drafted == plain
    assert policy.selections >= 5 and policy.passes >= policy.selections
    assert trace.seconds_choosing >= 0.9 * policy.seconds > 0


@pytest.mark.parametrize(
    "draft", [GOOD, BAD, SkipDraft({1}, set()), ShortlistDraft(GOOD, range(100))]
)
def test_scoring_the_live_text_is_scoring_it_offline(model, draft):
    plain, _ = text_of(model, 24)
    tokens = [*PROMPT, *plain]
    offline = TargetText(find_stack(model), Window(tuple(tokens), len(PROMPT)))
    expected = np.array(agreed_rows(offline, draft))
    target = live(model, tokens)
    for rows in (24, 10, 1):
        found = np.array(agreed_rows(RecentText(target, tokens, rows), draft))
        assert found.tolist() == expected[-rows:].tolist()


def test_a_draft_that_leaves_nothing_out_is_always_right_about_the_live_text(model):
    plain, _ = text_of(model, 16)
    tokens = [*PROMPT, *plain]
    recent = RecentText(live(model, tokens), tokens, 16)
    assert bool(agreed_rows(recent, SkipDraft()).all())


def test_scoring_leaves_the_cache_as_it_was_even_when_it_is_interrupted(
    model, monkeypatch
):
    plain, _ = text_of(model, 20)
    tokens = [*PROMPT, *plain]
    target = live(model, tokens)
    before = [
        (entry.offset, np.array(entry.keys), np.array(entry.values))
        for entry in target.caches.entries
    ]
    policy = OnlinePolicy(pool(), cheap(), when=[EveryTokens(1)], budget=math.inf)
    policy.begin(target, tokens[:9])
    policy._tokens = tokens
    policy.choose()
    assert policy.passes == 2

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(online, "agreed_rows", interrupt)
    policy._chosen_at = 0
    with pytest.raises(KeyboardInterrupt):
        policy.choose()
    for (offset, keys, values), entry in zip(
        before, target.caches.entries, strict=True
    ):
        assert entry.offset == offset
        assert np.array_equal(keys, np.array(entry.keys))
        assert np.array_equal(values, np.array(entry.values))
    after, _ = text_of(model, 20)
    assert after == plain


def test_it_leaves_a_draft_that_the_text_proves_wrong(model):
    """The bad draft comes with a good name; its own rounds say otherwise."""
    wrong = SkipDraft({0}, {0})  # as cheap as the good one, and hardly ever right
    policy = OnlinePolicy(
        [Known(GOOD, 0.8, 0.8, 100), Known(wrong, 0.99, 0.99, 100)],
        cheap(),
        when=[OnDrift(deviations=1, fewest=4)],
        budget=math.inf,
        may_decline=False,
    )
    assert policy.choose().draft == wrong
    text_of(model, 80, policy=policy)
    assert policy.choose().draft == GOOD


def test_it_declines_where_no_draft_surely_pays_and_drafts_where_one_does():
    dear = OnlinePolicy(pool(good=0.6), profile(6))
    assert dear.choose() == (None, 0)
    paying = OnlinePolicy(pool(good=0.99), cheap())
    assert paying.choose().draft == GOOD and paying.choose().num_draft_tokens >= 1
    forced = OnlinePolicy(pool(good=0.6), profile(6), may_decline=False)
    assert forced.choose().draft is not None


def test_rounds_are_counted_for_the_draft_that_drafted():
    policy = OnlinePolicy(pool(), cheap(), may_decline=False)
    asked = policy.choose().draft
    for drafted, accepted in ((3, 0), (3, 1), (3, 3), (1, 1), (0, 0)):
        policy.record(Round(drafted, accepted, drafted + 1))
    seen = policy.seen[asked]
    assert (seen.first.kept, seen.first.tried) == (3, 4)
    assert (seen.later.kept, seen.later.tried) == (2, 3)
    other = policy.seen[BAD if asked == GOOD else GOOD]
    assert other.first.tried == 0


def since(**changes):
    given = dict(tokens=10, expected=0.9, rounds=20, kept=18, step_ratio=1.0)
    return Since(**{**given, **changes})


def test_each_rule_is_due_when_it_says():
    assert not EveryTokens(11).due(since()) and EveryTokens(10).due(since())
    assert not OnCost(0.05).due(since(step_ratio=1.04))
    assert OnCost(0.05).due(since(step_ratio=1.05))
    # 20 rounds at 0.9: a deviation is 0.067, so two of them end at 0.766
    assert not OnDrift(2).due(since(kept=16))
    assert OnDrift(2).due(since(kept=15))
    assert not OnDrift(2, fewest=21).due(since(kept=0))
    assert not OnDrift().due(since(rounds=0, kept=0))
    assert not OnCost().scores and EveryTokens().scores and OnDrift().scores


def test_a_longer_context_makes_it_choose_again_without_a_pass(model):
    steep = cheap(
        context=8,
        blocks={
            **synthetic.BLOCKS,
            "attention": synthetic.BlockSeconds(5e-4, 1e-4, 5e-5, context=1e-4),
        },
    )
    policy = OnlinePolicy(pool(), steep, when=[OnCost(0.05)], budget=math.inf)
    text_of(model, 40, policy=policy)
    assert policy.selections > 0 and policy.passes == 0


def test_scoring_is_put_off_until_the_budget_allows_it(model, monkeypatch):
    scored = []
    monkeypatch.setattr(
        online.OnlinePolicy,
        "_score",
        lambda self, rows: scored.append(len(self._tokens)),
    )
    monkeypatch.setattr(online, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    slow = profile(6)
    step, expected = slow.step(256), 2 * slow.step(256) * slow.verify_ratio(16)
    budget = 0.5
    policy = OnlinePolicy(pool(), slow, when=[EveryTokens(1)], budget=budget)
    text_of(model, 100, policy=policy)
    # a budget of half a step a token, a first scoring of about two passes of 16 rows
    fewest = expected / (budget * step)
    assert scored and scored[0] - len(PROMPT) >= fewest - 1
    assert policy.selections > len(scored)
    never = OnlinePolicy(pool(), slow, when=[EveryTokens(1)], budget=1e-9)
    scored.clear()
    text_of(model, 30, policy=never)
    assert scored == [] and never.selections > 0


def test_old_sightings_fade_and_the_prior_stays():
    seen = online._Seen(Known(GOOD, 0.5, 0.5, 10))
    seen.first.add(kept=90, tried=90)
    sure = seen.first.share
    seen.fade(0.5)
    assert 0.5 < seen.first.share < sure and seen.first.count == 55
    for _ in range(40):
        seen.fade(0.5)
    assert seen.first.share == pytest.approx(0.5)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"pool": []}, "pool must hold"),
        ({"pool": [*pool(), *pool()]}, "each of them once"),
        ({"recent": 0}, "recent"),
        ({"tries": 0}, "tries"),
        ({"limit": 0}, "limit"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_arguments_are_refused(change, words):
    given = {"pool": pool(), "profile": profile(6), **change}
    with pytest.raises(ValueError, match=words):
        OnlinePolicy(given.pop("pool"), given.pop("profile"), **given)


def test_bad_values_of_the_parts_are_refused():
    for bad in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="shares"):
            Known(GOOD, bad, 0.5, 10)
    with pytest.raises(ValueError, match="positions"):
        Known(GOOD, 0.5, 0.5, 0)
    with pytest.raises(ValueError, match="interval"):
        EveryTokens(0)
    with pytest.raises(ValueError, match="share"):
        OnCost(0)


def test_a_ring_or_a_cache_to_be_quantised_is_refused_by_name(model):
    target = live(model, PROMPT)
    target.caches.entries[0] = RotatingKVCache(max_size=16)
    with pytest.raises(UnsupportedModelError, match=r"RotatingKVCache.*Way out"):
        OnlinePolicy(pool(), profile(6)).begin(target, PROMPT)
    quantised = Target(model, Caches(make_prompt_cache(model), kv_bits=4))
    with pytest.raises(UnsupportedModelError, match=r"quantised.*Way out"):
        OnlinePolicy(pool(), profile(6)).begin(quantised, PROMPT)


def test_an_existing_cache_and_a_prompt_of_one_token_are_fine(model):
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([PROMPT]), cache=cache))
    expected, _ = text_of(model, 12, prompt_cache=_copy(model, PROMPT))
    policy = OnlinePolicy(pool(), cheap(), when=[EveryTokens(2)], budget=math.inf)
    found, _ = text_of(model, 12, prompt_cache=cache, policy=policy)
    assert found == expected and policy.passes > 0
    policy = OnlinePolicy(pool(), cheap(), when=[EveryTokens(1)], budget=math.inf)
    one = [int(t) for t, *_ in generate_step([7], model, max_tokens=9, policy=policy)]
    assert one == [int(t) for t, *_ in generate_step([7], model, max_tokens=9)]


def _copy(model, tokens):
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([tokens]), cache=cache))
    return cache
