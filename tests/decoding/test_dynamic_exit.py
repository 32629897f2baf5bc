"""An exit chosen for each token: lossless, on one cache, and at the exit that it says.

The judge of where a token leaves is slow and obvious: the model cut off after each exit
reads the whole text without a cache, and the rule is applied to what it says. That is
right only if a token that goes deeper finds the keys and values of the rows before it.
"""

import families
import mlx.core as mx
import numpy as np
import pytest
import reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache
from running import assert_same_cache, replay, run
from scipy import stats

from selfspec.decoding import (
    DynamicExitDraft,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ShortlistDraft,
    generate_step,
)
from selfspec.models.blocks import find_stack
from selfspec.models.surgery import with_call

EXITS, LENGTH = (1, 3, 4, 5), 60
RULES = {
    "confidence": DynamicExitDraft(EXITS, confidence=0.5),
    "agreeing": DynamicExitDraft(EXITS, agreeing=2),
}
CASES = {}


def case(family):
    if family not in CASES:
        model, prompt = families.build(family), families.prompt(family, 7)
        CASES[family] = model, prompt, reference.greedy(model, prompt, LENGTH + 20)
    return CASES[family]


def cut_off(model, num_layers):
    """The model with the layers after the first ones missing."""
    stack = find_stack(model)
    return stack.with_layers(stack.layers[:num_layers])


def slow_exit(model, draft, context):
    """(exit, token) that the rule chooses for the token after `context`."""
    seen = []
    for layers in draft.exits:
        logits = reference.all_logits(cut_off(model, layers), context)[-1]
        seen.append(logits.argmax().item())
        sure = draft.confidence and mx.softmax(logits).max().item() >= draft.confidence
        last = seen[-draft.agreeing :] if draft.agreeing else [0, 1]
        if sure or (len(last) == draft.agreeing and len(set(last)) == 1):
            break
    return layers, seen[-1]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_each_token_leaves_where_a_slow_judge_says(family, rule):
    """`gemma2` scales its embedding and caps its logits: its own forward must do it."""
    model, prompt, text = case(family)
    sure = {"llama": 0.5, "gemma2": 0.999}[family]  # random models are of two minds
    draft = RULES["agreeing"]
    if rule == "confidence":
        draft = DynamicExitDraft(EXITS, confidence=sure)
    left_at = set()

    def propose(context, num_drafted):
        drafted = []
        while len(drafted) < num_drafted:
            layers, token = slow_exit(model, draft, [*context, *drafted])
            left_at.add(layers)
            drafted.append(token)
        return drafted

    expected = reference.rounds_of(text[:30], propose, prompt, 30, 4)
    tokens, trace = run(model, prompt, 30, draft=draft, num_draft_tokens=4)
    assert tokens == text[:30]
    assert trace.accepted_per_round == [r.accepted for r in expected]
    assert len(left_at) > 1  # or nothing was chosen


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "family", ["llama", "llama_sliding", "qwen3", "gemma3_text", "cohere2"]
)
def test_the_text_is_the_targets_and_so_is_the_cache(family, rule):
    model, prompt, text = case(family)
    entries = make_prompt_cache(model)
    tokens, trace = run(
        model,
        prompt,
        LENGTH,
        draft=RULES[rule],
        num_draft_tokens=3,
        window_cache="full",
        prompt_cache=entries,
    )
    assert tokens == text[:LENGTH]
    assert 0 < trace.accepted < trace.drafted
    assert {r.draft_source for r in trace.rounds} == {"DynamicExitDraft"}
    if not families.has_window(family):
        length = len(prompt) + LENGTH - 1
        replayed = replay(model, [*prompt, *tokens][:length])
        assert_same_cache(entries, replayed, length, tolerance=1e-4)
    more, _ = run(model, tokens[-1:], 20, prompt_cache=entries)
    assert more == text[LENGTH:]


@pytest.mark.parametrize(
    "draft, fixed",
    [
        (DynamicExitDraft((2, 4), confidence=1e-9), ExitDraft(2)),
        (DynamicExitDraft((2, 4), confidence=1.0), ExitDraft(4)),
        (DynamicExitDraft((4,), confidence=0.5), ExitDraft(4)),
    ],
)
def test_a_rule_that_always_says_the_same_is_a_fixed_exit(draft, fixed):
    model, prompt, text = case("llama")
    ours, theirs = (
        run(model, prompt, LENGTH, draft=d, num_draft_tokens=3) for d in (draft, fixed)
    )
    assert ours[0] == theirs[0] == text[:LENGTH]
    assert ours[1].accepted_per_round == theirs[1].accepted_per_round


def test_no_layer_runs_a_row_twice():
    """Rows that wait are taken along once; the verification runs only what is left."""
    model, prompt, text = case("llama")
    rows = [0] * len(model.layers)
    stack = find_stack(model)

    def counting(index):
        def call(self, x, *args, **kwargs):
            rows[index] += x.shape[1]
            return type(stack.layers[index]).__call__(self, x, *args, **kwargs)

        return call

    counted = stack.with_layers(
        [with_call(layer, counting(i)) for i, layer in enumerate(stack.layers)]
    )
    draft = DynamicExitDraft((1, 3, 5), confidence=0.5)
    run(counted, prompt, 2, draft=draft)  # the engine checks a new model first
    rows[:] = [0] * len(rows)
    tokens, trace = run(counted, prompt, 40, draft=draft, num_draft_tokens=3)
    assert tokens == text[:40]
    once = len(prompt) - 1 + trace.rows_verified
    assert rows == [once] * len(rows)


drafts = st.builds(
    lambda exits, rule, depth: (
        DynamicExitDraft(sorted(exits), confidence=rule)
        if rule or len(exits) < 2
        else DynamicExitDraft(sorted(exits), agreeing=min(depth, len(exits)))
    ),
    st.sets(st.integers(1, 5), min_size=2),
    st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    st.integers(2, 4),
)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    draft=drafts | st.builds(FallbackDraft, st.just(LookupDraft()), drafts),
    k=st.integers(0, 6),
    max_tokens=st.integers(0, LENGTH),
    window_cache=st.sampled_from(["ring", "full"]),
    confidence=st.sampled_from([0.0, 0.4]),
)
def test_any_exits_and_any_rule(family, draft, k, max_tokens, window_cache, confidence):
    model, prompt, text = case(family)
    tokens, trace = run(
        model,
        prompt,
        max_tokens,
        draft=draft,
        num_draft_tokens=k,
        window_cache=window_cache,
        min_confidence=confidence,
    )
    assert tokens == text[:max_tokens]
    assert all(0 <= r.accepted <= r.drafted <= k for r in trace.rounds)


@pytest.mark.parametrize("stop", [1, 2, 5, 13])
def test_abandoned_anywhere_the_cache_goes_on(stop):
    model, prompt, text = case("llama")
    entries = make_prompt_cache(model)
    steps = generate_step(
        prompt,
        model,
        draft=RULES["agreeing"],
        num_draft_tokens=5,
        max_tokens=-1,
        prompt_cache=entries,
    )
    tokens = [next(steps)[0] for _ in range(stop)]
    steps.close()
    assert {entry.offset for entry in entries} == {len(prompt) + stop - 1}
    assert run(model, tokens[-1:], 9, prompt_cache=entries)[0] == text[stop : stop + 9]


def test_sampled_tokens_keep_the_targets_distribution():
    """2,400 tokens, against the sum of p over the prefixes that were written.

    Observed minus expected counts are a sum of martingale differences; over their
    covariance they are chi-squared, V - 1. A false alarm has a chance of 1 in 10,000.
    """
    vocabulary = 12
    model = families.build("llama", vocab_size=vocabulary, num_hidden_layers=4)
    draft = DynamicExitDraft((1, 2, 3), confidence=0.5)
    difference = np.zeros(vocabulary)
    covariance = np.zeros((vocabulary, vocabulary))
    accepted = drafted = 0
    for seed in range(12):
        prompt = [seed % vocabulary]
        options = dict(draft=draft, num_draft_tokens=2, temperature=4.0, seed=seed)
        tokens, trace = run(model, prompt, 200, **options)
        accepted, drafted = accepted + trace.accepted, drafted + trace.drafted
        logits = reference.all_logits(model, [*prompt, *tokens[:-1]])
        probs = np.array(mx.softmax(logits / 4.0, axis=-1), dtype=float)
        difference += (np.eye(vocabulary)[tokens] - probs).sum(0)
        covariance += np.diag(probs.sum(0)) - probs.T @ probs
    assert 0 < accepted < drafted
    inverse = np.linalg.pinv(covariance, rcond=1e-9)
    distance = difference @ inverse @ difference
    assert stats.chi2.sf(distance, vocabulary - 1) > 1e-4


@pytest.mark.parametrize(
    "choice, message",
    [
        (dict(exits=(), confidence=0.5), "exits must be ascending"),
        (dict(exits=(3, 2), confidence=0.5), "exits must be ascending"),
        (dict(exits=(2, 2), confidence=0.5), "exits must be ascending"),
        (dict(exits=3, confidence=0.5), "exits must be ascending"),
        (dict(exits=(0, 2), confidence=0.5), "exits must be a whole number from 1"),
        (dict(exits=(1, 2)), "has one rule"),
        (dict(exits=(1, 2), confidence=0.5, agreeing=2), "has one rule"),
        (dict(exits=(1, 2), confidence=1.5), "confidence must be between 0 and 1"),
        (dict(exits=(1, 2), agreeing=1), "agreeing must be from 2 to the 2 exits"),
        (dict(exits=(1, 2), agreeing=3), "agreeing must be from 2 to the 2 exits"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        DynamicExitDraft(**choice)


def test_an_exit_beyond_the_model_is_refused_before_the_first_token():
    model, prompt, _ = case("llama")
    draft = DynamicExitDraft((2, 6), confidence=0.5)
    with pytest.raises(ValueError, match="exits must be from 1 to 5 for 6 layers"):
        generate_step(prompt, model, draft=draft)


def test_no_shortlist_on_an_exit_that_is_chosen():
    with pytest.raises(ValueError, match="put the shortlist on a skip, exit or model"):
        ShortlistDraft(RULES["agreeing"], (1, 2))
