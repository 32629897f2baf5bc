"""The loop of rounds against the judge: what is drafted, kept, emitted, rolled back."""

from itertools import islice

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import make_prompt_cache
from running import assert_same_cache, noisy_copy, replay, run

from selfspec.decoding import (
    Choice,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
    generate_step,
)
from selfspec.decoding.caches import Caches
from selfspec.models.blocks import find_stack

SKIP = SkipDraft(attention={0, 2}, mlp={2, 4})
ON_THE_TARGETS_CACHE = [
    SKIP,
    SkipDraft(attention={3}, mlp={2, 3}, reuse_prefix=True),
    ExitDraft(4),
    ExitDraft(4, reuse=False),
]


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def case(request):
    model = families.build(request.param)
    prompt = families.prompt(request.param, 10)
    return model, prompt, reference.greedy(model, prompt, 120)


def drafts_of(model):
    return [
        *ON_THE_TARGETS_CACHE,
        ModelDraft(noisy_copy(model)),
        LookupDraft(),
        FallbackDraft(LookupDraft(), ShortlistDraft(SKIP, range(50))),
    ]


def names(draft):
    return type(draft).__name__


# What is drafted


@pytest.mark.parametrize("k", [1, 3, 5])
def test_skip_draft_drafts_and_keeps_what_the_judge_does(case, k):
    model, prompt, text = case
    expected = reference.speculative_trace(
        model, SKIP.attention, SKIP.mlp, prompt, 40, k, text=text[:40]
    )
    _, trace = run(
        model, prompt, 40, draft=SKIP, num_draft_tokens=k, window_cache="full"
    )
    assert [(r.drafted, r.accepted) for r in trace.rounds] == [
        (len(r.drafted), r.accepted) for r in expected
    ]


@pytest.mark.parametrize("reuse", [True, False])
def test_exit_draft_drafts_and_keeps_what_the_judge_does(case, reuse):
    model, prompt, text = case
    expected = reference.exit_trace(model, 3, prompt, 40, 3, text=text[:40])
    draft = ExitDraft(3, reuse=reuse)
    _, trace = run(
        model, prompt, 40, draft=draft, num_draft_tokens=3, window_cache="full"
    )
    assert [(r.drafted, r.accepted) for r in trace.rounds] == [
        (len(r.drafted), r.accepted) for r in expected
    ]


def test_prefix_reuse_changes_no_proposal(case):
    model, prompt, _ = case
    rounds = []
    for reuse in (False, True):
        draft = SkipDraft(attention={3, 4}, mlp={2}, reuse_prefix=reuse)
        _, trace = run(model, prompt, 60, draft=draft, window_cache="full")
        rounds.append([(r.drafted, r.accepted) for r in trace.rounds])
    assert rounds[0] == rounds[1]


def test_draft_that_leaves_nothing_out_is_always_accepted(case):
    model, prompt, text = case
    tokens, trace = run(
        model, prompt, 100, draft=SkipDraft(), num_draft_tokens=4, window_cache="full"
    )
    assert tokens == text[:100]
    assert trace.acceptance_rate == 1
    assert trace.tokens_per_round == 5


def test_exit_at_the_last_layer_is_the_target_and_users_may_not_ask_for_it():
    from selfspec.decoding.prefix import Prefix

    model = families.build("llama")
    caches = Caches(make_prompt_cache(model))
    ids = mx.array(families.prompt("llama", 12))
    prefix = Prefix(find_stack(model), families.num_layers(model))
    prefix.start(caches)
    early = prefix.step(ids)
    assert mx.abs(early - model(ids[None])[0]).max().item() < 1e-4
    for layer in (6, 7):
        with pytest.raises(ValueError, match="exit_layer must be from 1 to 5"):
            run(model, [1, 2], 4, draft=ExitDraft(layer))
    for layer in (0, -1, 2.5):
        with pytest.raises(ValueError, match="exit_layer"):
            ExitDraft(layer)


def test_weights_of_skipped_blocks_are_never_read():
    """NaN in a block that is left out must not reach the draft's logits."""
    from selfspec.decoding.skip import skipping_layers

    model = families.build("llama")
    ids = mx.array([families.prompt("llama", 12)])
    draft = SkipDraft(attention={1, 3}, mlp={1, 4})
    stack = find_stack(model)
    before = stack.with_layers(skipping_layers(stack, draft))(ids)
    for index in draft.attention:
        weight = stack.attention_of(index).q_proj.weight
        stack.attention_of(index).q_proj.weight = mx.full(weight.shape, mx.nan)
    for index in draft.mlp:
        weight = stack.mlp_of(index).up_proj.weight
        stack.mlp_of(index).up_proj.weight = mx.full(weight.shape, mx.nan)
    after = stack.with_layers(skipping_layers(stack, draft))(ids)
    assert mx.array_equal(before, after).item()
    assert mx.isnan(model(ids)).any().item()


def test_binding_a_draft_leaves_the_model_alone():
    model = families.build("llama")
    layers = [(id(x), id(x.self_attn), id(x.mlp), type(x)) for x in model.layers]
    for draft in drafts_of(model):
        run(model, [1, 2, 3], 8, draft=draft)
    assert layers == [
        (id(x), id(x.self_attn), id(x.mlp), type(x)) for x in model.layers
    ]


# What is emitted


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3, 4, 6, 11])
def test_max_tokens_at_any_place_in_a_round(case, max_tokens):
    model, prompt, text = case
    for draft in drafts_of(model):
        tokens, trace = run(model, prompt, max_tokens, draft=draft, window_cache="full")
        assert tokens == text[:max_tokens], names(draft)
        assert trace.emitted == max_tokens


def test_no_limit_goes_on(case):
    model, prompt, text = case
    for draft in (SKIP, None):
        steps = generate_step(
            prompt, model, max_tokens=-1, draft=draft, window_cache="full"
        )
        assert [t for t, _, _ in islice(steps, 90)] == text[:90]
        steps.close()


def test_prompt_of_one_token():
    model = families.build("llama")
    text = reference.greedy(model, [7], 40)
    for draft in [None, *drafts_of(model)]:
        assert run(model, [7], 40, draft=draft)[0] == text, names(draft)


def test_long_prompt_in_pieces_is_split_as_mlx_lm_splits_it():
    model = families.build("llama")
    prompt = families.prompt("llama", 70)
    text = [
        t
        for t, _ in mlx_lm_generate_step(
            mx.array(prompt), model, max_tokens=30, prefill_step_size=16
        )
    ]
    seen = []
    for draft in [None, *drafts_of(model)]:
        seen.clear()
        tokens, trace = run(
            model,
            prompt,
            30,
            draft=draft,
            prefill_step_size=16,
            prompt_progress_callback=lambda done, total: seen.append((done, total)),
        )
        assert tokens == text, names(draft)
        assert seen == [(n, 70) for n in (0, 16, 32, 48, 64, 69, 70)]
        assert trace.prompt_tokens == 70


def test_logprobs_are_the_targets():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    for draft in [None, *drafts_of(model)]:
        text = list(prompt)
        for token, logprobs, _ in generate_step(
            prompt, model, draft=draft, max_tokens=12
        ):
            logits = reference.all_logits(model, text)[-1]
            expected = logits - mx.logsumexp(logits)
            assert logprobs.shape == expected.shape
            assert mx.abs(logprobs - expected).max().item() < 1e-3
            assert mx.argmax(logprobs).item() == token
            text.append(token)


def test_from_draft_marks_accepted_tokens_only(case):
    model, prompt, _ = case
    trace = Trace()
    steps = generate_step(
        prompt, model, draft=SKIP, max_tokens=60, trace=trace, window_cache="full"
    )
    marks = [from_draft for _, _, from_draft in steps]
    expected = []
    for r in trace.rounds:
        expected += [True] * r.accepted + [False]
    assert marks == expected
    assert sum(marks) == trace.accepted


# What is left in the cache


@pytest.mark.parametrize("draft", ON_THE_TARGETS_CACHE, ids=str)
def test_rejected_token_leaves_no_trace_in_the_cache(case, draft):
    """After every round: a one-row replay's keys and values, and offsets."""
    model, prompt, text = case
    entries = make_prompt_cache(model)
    trace, emitted, checked = Trace(), 0, 0
    fresh = Caches(make_prompt_cache(model))
    fresh.widen()
    replay(model, prompt[:-1], fresh.entries)
    steps = generate_step(
        prompt,
        model,
        draft=draft,
        max_tokens=30,
        prompt_cache=entries,
        trace=trace,
        window_cache="full",
    )
    for _ in steps:
        emitted += 1
        if emitted == trace.emitted and emitted == sum(
            1 + r.accepted for r in trace.rounds
        ):
            length = len(prompt) + emitted - 1
            replay(model, [*prompt, *text][fresh.length : length], fresh.entries)
            assert_same_cache(entries, fresh.entries, length)
            checked += 1
    assert checked == len(trace.rounds) > 5


@pytest.mark.parametrize("stop", [1, 4])
def test_abandoned_generator_leaves_a_cache_that_goes_on(case, stop):
    model, prompt, text = case
    for draft in drafts_of(model):
        entries = make_prompt_cache(model)
        options = {"draft": draft, "prompt_cache": entries, "window_cache": "full"}
        trace = Trace()
        steps = generate_step(prompt, model, max_tokens=50, trace=trace, **options)
        tokens = [t for t, _, _ in islice(steps, stop)]
        steps.close()
        offsets = {e.offset for e in entries[: families.num_layers(model)]}
        assert offsets == {len(prompt) + stop - 1} == {trace.cached_tokens}
        # the same text goes on from that very cache
        count = 50 if draft in ON_THE_TARGETS_CACHE[:3] else 12
        more, _ = run(model, tokens[-1:], count, **options)
        assert tokens + more == text[: stop + count], names(draft)


def test_plain_decoding_goes_on_from_a_speculated_cache():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 80)
    entries = make_prompt_cache(model)
    tokens, _ = run(model, prompt, 30, draft=SKIP, prompt_cache=entries)
    steps = mlx_lm_generate_step(
        mx.array(tokens[-1:]), model, max_tokens=50, prompt_cache=entries
    )
    assert tokens + [t for t, _ in steps] == text


def test_without_a_draft_the_cache_ends_as_mlx_lms_does():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    for taken in (3, 20):
        offsets = []
        for steps, entries in (
            (
                lambda c: mlx_lm_generate_step(
                    mx.array(prompt), model, max_tokens=20, prompt_cache=c
                ),
                make_prompt_cache(model),
            ),
            (
                lambda c: generate_step(prompt, model, max_tokens=20, prompt_cache=c),
                make_prompt_cache(model),
            ),
        ):
            steps = steps(entries)
            for _ in range(taken):
                next(steps)
            if taken == 20:
                assert next(steps, None) is None
            steps.close()
            offsets.append({e.offset for e in entries})
        assert offsets[0] == offsets[1]


def test_caches_of_both_models_in_one_list_as_mlx_lm_takes_them():
    model = families.build("llama")
    draft_model = noisy_copy(model)
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 60)
    entries = make_prompt_cache(model) + make_prompt_cache(draft_model)
    options = {"draft": ModelDraft(draft_model), "prompt_cache": entries}
    tokens, first = run(model, prompt, 30, **options)
    assert entries[0].offset == entries[-1].offset == len(prompt) + 29
    more, second = run(model, tokens[-1:], 30, **options)
    assert tokens + more == text
    # only the target's entries: the draft model begins with what it is given
    entries = make_prompt_cache(model)
    tokens, _ = run(
        model, prompt, 30, draft=ModelDraft(draft_model), prompt_cache=entries
    )
    assert tokens == text[:30]
    with pytest.raises(ValueError, match="prompt_cache has 1 entries"):
        run(model, prompt, 5, draft=SKIP, prompt_cache=entries[:1])


def test_acceptance_does_not_fall_with_length():
    """A draft cache that is rolled back one row too many decays as the text grows."""
    model = families.build("llama")
    _, trace = run(model, [5], 300, draft=ModelDraft(model), num_draft_tokens=3)
    assert trace.acceptance_rate == 1


# Changing drafts between rounds


def test_the_draft_may_change_from_round_to_round(case):
    model, prompt, text = case

    class Rotating:
        plan = [
            Choice(SKIP, 3),
            Choice(ExitDraft(4), 2),
            Choice(SKIP, 0),
            Choice(LookupDraft(), 4),
            Choice(ModelDraft(noisy_copy(model)), 2),
            Choice(SkipDraft(mlp={1}), 5),
            Choice(SKIP, 0),
        ]

        def __init__(self):
            self.asked = 0

        def choose(self):
            self.asked += 1
            return self.plan[self.asked % len(self.plan)]

        def record(self, finished):
            pass

    tokens, trace = run(model, prompt, 120, policy=Rotating(), window_cache="full")
    assert tokens == text
    assert {r.draft_source for r in trace.rounds} == {
        "SkipDraft",
        "ExitDraft",
        "LookupDraft",
        "ModelDraft",
    }
    assert trace.plain_tokens > 10


def test_confidence_stop_drops_the_token_before_it_is_spent(case):
    model, prompt, text = case
    _, unlimited = run(model, prompt, 60, draft=SKIP, window_cache="full")
    drafted = []
    for threshold in (0.4, 0.9):
        tokens, trace = run(
            model, prompt, 60, draft=SKIP, min_confidence=threshold, window_cache="full"
        )
        assert tokens == text[:60]
        assert trace.drafted < unlimited.drafted
        drafted += [r.drafted for r in trace.rounds]
    assert 0 in drafted, "no draft was stopped before its first token"
    assert {1, 2} & set(drafted), "no draft was stopped in its middle"
    for draft in ON_THE_TARGETS_CACHE[1:]:
        tokens, _ = run(
            model, prompt, 60, draft=draft, min_confidence=0.6, window_cache="full"
        )
        assert tokens == text[:60]
