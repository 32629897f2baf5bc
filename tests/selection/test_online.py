"""Choosing again while decoding: the text stays right, the scores are the engine's."""

from dataclasses import replace

import families
import made
import pytest
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding import ShortlistDraft, SkipDraft, Trace, generate_step
from selfspec.models import UnsupportedModelError
from selfspec.selection import OnlinePolicy, Scorer, Window
from selfspec.selection.online import COST, DRIFT

GOOD, BAD = SkipDraft(mlp={5}), SkipDraft(range(1, 6), range(1, 6))
LIST = ShortlistDraft(SkipDraft(attention={2}), range(0, 96, 2))
TOKENS = 120


@pytest.fixture(scope="module")
def model():
    return families.build("llama")


@pytest.fixture(scope="module")
def plain(model):
    prompt = families.prompt("llama", 10)
    return [t for t, *_ in generate_step(prompt, model, max_tokens=TOKENS)]


def decode(model, candidates, prompt=None, cache=None, profile=None, **options):
    """Text, policy and trace of a generation under the policy."""
    cache = cache or make_prompt_cache(model)
    profile = profile or made.profile(6)
    policy = OnlinePolicy(candidates, model, cache, profile, **options)
    trace = Trace()
    steps = generate_step(
        prompt or families.prompt("llama", 10),
        model,
        policy=policy,
        prompt_cache=cache,
        max_tokens=TOKENS,
        trace=trace,
    )
    return [token for token, *_ in steps], policy, trace


@pytest.mark.parametrize("trigger", ["interval", COST, DRIFT])
@pytest.mark.parametrize("declines", [True, False])
def test_the_text_is_the_targets_whatever_is_chosen(model, plain, trigger, declines):
    text, policy, trace = decode(
        model, [BAD, GOOD, LIST], trigger=trigger, interval=8, declines=declines
    )
    assert text == plain
    if trigger == "interval":
        assert len(policy.choices) > 5
    if not declines:
        assert trace.rounds and not trace.plain_tokens


@pytest.mark.parametrize("declines", [True, False])
def test_a_score_is_that_of_the_scorer_on_the_same_rows(model, declines):
    """While decoding plainly the cache is a token ahead of the text; both ways count."""
    cache = make_prompt_cache(model)
    policy = OnlinePolicy(
        [GOOD, BAD, LIST],
        model,
        cache,
        made.profile(6),
        interval=0,
        rows=12,
        declines=declines,
        agreements=[0.0] * 3 if declines else [0.9] * 3,
    )
    seen = []

    class Looking:
        """Scores everything at a few points of the text, and draws the same choices."""

        begin, record = policy.begin, policy.record

        def choose(self):
            if len(policy.text) in (30, 45, 46, 47, 60):
                seen.append((list(policy.text), [policy.score(i) for i in range(3)]))
            return policy.choose()

    prompt = families.prompt("llama", 10)
    list(
        generate_step(
            prompt, model, policy=Looking(), prompt_cache=cache, max_tokens=60
        )
    )
    assert seen
    for text, scores in seen:
        rows = min(12, len(text) - 2)
        window = Window(tuple(text), len(text) - rows)
        scorer = Scorer(model, [window])
        for draft, agreed in zip((GOOD, BAD, LIST), scores, strict=True):
            assert agreed == scorer.score(draft).agreed.tolist()


def test_it_changes_to_the_draft_that_agrees(model):
    # both thought equally good beforehand, and the bad one cheaper
    _, policy, _ = decode(
        model,
        [BAD, GOOD],
        interval=8,
        per_choice=2,
        declines=False,
        agreements=[0.9, 0.9],
    )
    assert policy.choices[0].chosen == 0
    assert policy.choices[-1].chosen == 1
    assert policy.rates[1].mean > policy.rates[0].mean


def test_it_declines_where_nothing_pays(model):
    _, policy, trace = decode(model, [BAD], interval=16, agreements=[0.05])
    assert policy.choices[-1].num_draft_tokens == 0
    assert trace.plain_tokens > TOKENS / 2


def test_interval_0_never_chooses_again(model):
    _, policy, _ = decode(model, [GOOD, BAD], interval=0, declines=False)
    assert len(policy.choices) == 1


def test_costs_are_looked_at_again_when_the_context_has_grown(model):
    flat = made.profile(6)
    attention = replace(flat.blocks["attention"], context=4e-5)
    steep = made.profile(6, blocks={**flat.blocks, "attention": attention})
    chosen = []
    for profile in (flat, steep):
        _, policy, _ = decode(
            model, [GOOD], trigger=COST, interval=1, profile=profile, declines=False
        )
        chosen.append(len(policy.choices))
    assert chosen[0] == 1 < chosen[1] < TOKENS / 4


def test_drift_is_noticed_and_its_absence_is_not(model):
    _, wrong, _ = decode(
        model, [BAD, GOOD], trigger=DRIFT, interval=4, declines=False,
        agreements=[0.99, 0.5],
    )  # fmt: skip
    assert len(wrong.choices) > 1


def test_its_seconds_are_told(model):
    _, policy, _ = decode(model, [GOOD, BAD], interval=8, declines=False)
    assert policy.seconds == pytest.approx(sum(c.seconds for c in policy.choices))
    assert policy.seconds > 0


def test_a_conversation_goes_on_in_the_same_cache(model):
    cache = make_prompt_cache(model)
    first, _, _ = decode(model, [GOOD, BAD], cache=cache, interval=8, declines=False)
    again = [7, 11, 13]
    second, _, _ = decode(
        model, [GOOD, BAD], prompt=[first[-1], *again], cache=cache, interval=8,
        declines=False,
    )  # fmt: skip
    whole = [*families.prompt("llama", 10), *first, *again]
    expected = [t for t, *_ in generate_step(whole, model, max_tokens=TOKENS)]
    assert second == expected


def test_refusals(model):
    cache, profile = make_prompt_cache(model), made.profile(6)
    with pytest.raises(ValueError, match="candidates"):
        OnlinePolicy([], model, cache, profile)
    with pytest.raises(ValueError, match="trigger must be one of"):
        OnlinePolicy([GOOD], model, cache, profile, trigger="moon")
    with pytest.raises(ValueError, match="interval must be 0 or more"):
        OnlinePolicy([GOOD], model, cache, profile, interval=-1)
    gemma = families.build("gemma3_text")
    with pytest.raises(UnsupportedModelError, match="RotatingKVCache.*Way out"):
        OnlinePolicy([GOOD], gemma, make_prompt_cache(gemma), profile)
