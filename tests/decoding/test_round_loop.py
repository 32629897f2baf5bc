"""The loop of rounds against the judge: what is drafted, kept, emitted, rolled back."""

from itertools import islice

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import make_prompt_cache
from running import (
    DRAFTS,
    ON_THE_TARGETS_CACHE,
    SKIP,
    adapter,
    assert_same_cache,
    drafts_of,
    noisy_copy,
    replay,
    run,
)

from selfspec.decoding import (
    Choice,
    ExitDraft,
    LookupDraft,
    ModelDraft,
    SkipDraft,
    Trace,
    generate_step,
)
from selfspec.decoding.caches import Caches
from selfspec.models.blocks import find_stack


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def case(request):
    model = families.build(request.param)
    prompt = families.prompt(request.param, 10)
    return model, prompt, reference.greedy(model, prompt, 120)


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
    """LayerSkip 26: an exit of -1 dropped the last layer in silence."""
    from selfspec.decoding.prefix import Prefix

    model = families.build("llama")
    caches = Caches(make_prompt_cache(model))
    ids = mx.array(families.prompt("llama", 12))
    prefix = Prefix(find_stack(model), families.num_layers(model))
    early = prefix.read(ids, caches)
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


@pytest.mark.parametrize(
    ("name", "early", "late"),
    [
        ("skip", [1, 1, 3], [1, 1, 3]),
        ("skip, prefix kept", [1, 1, 1], [1, 1, 3]),
        ("exit", [1, 1, 1], [3]),
        ("exit, nothing kept", [1, 1, 3], [3]),
    ],
)
def test_the_prompt_is_read_once_and_kept_rows_are_not_run_again(name, early, late):
    """Rows that the first and the last layer run: prefill, two draft steps, verify."""
    model, seen = families.build("llama"), {0: [], 5: []}
    for index, rows in seen.items():

        class Watching(type(model.layers[index])):
            counted = rows

            def __call__(self, x, *args, **kwargs):
                self.counted.append(x.shape[1])
                return super().__call__(x, *args, **kwargs)

        model.layers[index].__class__ = Watching
    options = {"draft": ON_THE_TARGETS_CACHE[name], "num_draft_tokens": 2}
    steps = generate_step(families.prompt("llama", 40), model, **options)
    for rows in seen.values():
        rows.clear()  # the self-test's
    next(steps)
    assert seen == {0: [39, *early], 5: [39, *late]}


def test_binding_a_draft_leaves_the_model_alone():
    """transformers PR 34240 changed the model's own configuration while it drafted."""
    model = families.build("llama")
    layers = [(id(x), id(x.self_attn), id(x.mlp), type(x)) for x in model.layers]
    for draft in drafts_of(model).values():
        run(model, [1, 2, 3], 8, draft=draft)
    assert layers == [
        (id(x), id(x.self_attn), id(x.mlp), type(x)) for x in model.layers
    ]


# What is emitted


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 3, 4, 6, 11])
def test_max_tokens_at_any_place_in_a_round(case, max_tokens):
    """One token after a prompt of several broke LayerSkip's own loop."""
    model, prompt, text = case
    for name, draft in drafts_of(model).items():
        tokens, trace = run(model, prompt, max_tokens, draft=draft, window_cache="full")
        assert tokens == text[:max_tokens], name
        assert trace.emitted == max_tokens


def test_no_limit_goes_on(case):
    """mlx-lm 0.32.2 promises -1 for its speculative loop too, and raises."""
    model, prompt, text = case
    for name, draft in {"plain": None, **drafts_of(model)}.items():
        steps = generate_step(
            prompt, model, max_tokens=-1, draft=draft, window_cache="full"
        )
        assert [t for t, _, _ in islice(steps, 40)] == text[:40], name
        steps.close()


def test_prompt_of_one_token():
    model = families.build("llama")
    text = reference.greedy(model, [7], 40)
    for name, draft in {"plain": None, **drafts_of(model)}.items():
        assert run(model, [7], 40, draft=draft)[0] == text, name


def test_long_prompt_in_pieces_is_split_as_mlx_lm_splits_it():
    """mlx-lm PR 1109: another split of the prompt can flip the first token."""
    model = families.build("llama")
    prompt = families.prompt("llama", 70)
    text = [
        t
        for t, _ in mlx_lm_generate_step(
            mx.array(prompt), model, max_tokens=30, prefill_step_size=16
        )
    ]
    seen = []
    for name, draft in {"plain": None, **drafts_of(model)}.items():
        seen.clear()
        tokens, trace = run(
            model,
            prompt,
            30,
            draft=draft,
            prefill_step_size=16,
            prompt_progress_callback=lambda done, total: seen.append((done, total)),
        )
        assert tokens == text, name
        assert seen == [(n, 70) for n in (0, 16, 32, 48, 64, 69, 70)]
        assert trace.prompt_tokens == 70


def test_logprobs_are_the_targets():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    for draft in [None, *drafts_of(model).values()]:
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


@pytest.mark.parametrize("name", DRAFTS)
def test_rejected_token_leaves_no_trace_in_the_cache(case, name):
    """After every round: a one-row replay's keys and values, and offsets.

    llama.cpp PR 3565 left blocks out while it read the prompt too; aprender PR 2014 threw
    the whole cache away where it had to roll back.
    """
    model, prompt, text = case
    draft = drafts_of(model)[name]
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
    for name, draft in drafts_of(model).items():
        entries = make_prompt_cache(model)
        options = {"draft": draft, "prompt_cache": entries, "window_cache": "full"}
        trace = Trace()
        steps = generate_step(prompt, model, max_tokens=50, trace=trace, **options)
        tokens = [t for t, _, _ in islice(steps, stop)]
        steps.close()
        offsets = {e.offset for e in entries[: families.num_layers(model)]}
        assert offsets == {len(prompt) + stop - 1} == {trace.cached_tokens}
        # the same text goes on from that very cache
        more, _ = run(model, tokens[-1:], 50, **options)
        assert tokens + more == text[: stop + 50], name


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
    """mlx-lm 0.32.2 fails with an IndexError where only the target's are given."""
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
    """mlxcel 994: a draft cache rolled back one row too many decays as the text grows."""
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
            Choice(adapter(model, 4), 3),
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
        "AdapterDraft",
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
    for draft in [*list(ON_THE_TARGETS_CACHE.values())[1:], adapter(model, 4)]:
        tokens, _ = run(
            model, prompt, 60, draft=draft, min_confidence=0.6, window_cache="full"
        )
        assert tokens == text[:60]
