"""What a caller may do wrong, or in another order than expected.

Each of these once gave wrong text, a crash in the middle of a text, or silence.
"""

import gc
import weakref

import families
import mlx.core as mx
import numpy as np
import pytest
import reference
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_logits_processors
from running import adapter, noisy_copy, run

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
    self_test,
)
from selfspec.models.errors import UnsupportedModelError

SKIP = SkipDraft(attention={0, 2}, mlp={2, 4})
REUSING = SkipDraft(attention={3}, mlp={2, 3}, reuse_prefix=True)


@pytest.fixture(scope="module")
def case():
    model, prompt = families.build("llama"), families.prompt("llama", 10)
    return model, prompt, reference.greedy(model, prompt, 80)


class Plan:
    """A policy that answers from a list, again and again."""

    def __init__(self, *choices):
        self.choices, self.asked = choices, 0

    def choose(self):
        self.asked += 1
        return self.choices[(self.asked - 1) % len(self.choices)]

    def record(self, finished):
        pass


# Drafts that are made of others, or come late


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (SKIP, ExitDraft(4)),
        (REUSING, ExitDraft(4)),
        (ExitDraft(4), REUSING),
        (ExitDraft(3), ExitDraft(4)),
        (SKIP, REUSING),
        (SKIP, "adapter"),
        ("adapter", ExitDraft(4)),
    ],
    ids=str,
)
def test_a_first_draft_that_stops_at_once_leaves_nothing_to_the_second(
    case, first, second
):
    """It has run a row ahead on the shared cache; the second must not start there."""
    model, prompt, text = case
    first, second = (
        adapter(model, 4) if d == "adapter" else d for d in (first, second)
    )
    draft = FallbackDraft(first, second)
    tokens, trace = run(model, prompt, 60, draft=draft, min_confidence=0.6)
    assert tokens == text[:60]
    names = {type(first).__name__, type(second).__name__}
    assert {r.draft_source for r in trace.rounds} == names


@pytest.mark.parametrize(
    "choices",
    [
        [Choice(LookupDraft(), 3), Choice(SKIP, 3)],
        [Choice(None, 0), Choice(ExitDraft(4), 2)],
        [Choice(SKIP, 2), Choice(None, 3)],
    ],
    ids=["late skip", "late exit", "none with a length"],
)
def test_a_policy_may_begin_with_any_draft_or_none(case, choices):
    model, prompt, text = case
    policy = Plan(*choices)
    tokens, trace = run(model, prompt, 40, policy=policy)
    assert tokens == text[:40]
    assert {r.draft_source for r in trace.rounds} == {
        type(c.draft).__name__ for c in choices if c.draft is not None
    }


def test_a_policy_is_asked_once_a_round(case):
    model, prompt, _ = case
    policy = Plan(Choice(SKIP, 3))
    _, trace = run(model, prompt, 40, policy=policy)
    assert policy.asked == len(trace.rounds)


def test_a_policy_on_a_model_that_cannot_draft_is_refused_at_once():
    model = families.build("mamba")
    with pytest.raises(UnsupportedModelError, match="mamba: its cache ArraysCache"):
        generate_step([1, 2], model, policy=Plan(Choice(None, 0)))


# Generators in another order


def test_generators_made_before_either_runs_share_a_cache_in_turn(case):
    model, prompt, _ = case
    draft_model = noisy_copy(model)
    for draft in (SKIP, ModelDraft(draft_model)):
        texts = []
        for early in (False, True):
            entries = make_prompt_cache(model)
            if isinstance(draft, ModelDraft):
                entries += make_prompt_cache(draft_model)

            def steps(tokens, entries=entries, draft=draft):
                return generate_step(
                    tokens, model, draft=draft, max_tokens=12, prompt_cache=entries
                )

            first = steps(prompt)
            second = steps([7, 8]) if early else None
            text = [t for t, _, _ in first]
            texts.append(text + [t for t, _, _ in second or steps([7, 8])])
        assert texts[0] == texts[1]


def test_a_trace_used_again_does_not_stop_the_next_draft():
    model = families.build("llama_sliding")
    prompt = families.prompt("llama_sliding", 5)
    trace = Trace()
    run(model, prompt, 40, draft=SKIP, trace=trace)
    assert trace.draft_stopped
    before = len(trace.rounds)
    run(model, prompt, 5, draft=SKIP, trace=trace)
    assert len(trace.rounds) > before and not trace.draft_stopped


def test_no_tokens_asked_reads_the_whole_prompt_as_mlx_lm_does(case):
    """How mlx-lm fills a cache with a prompt."""
    model, prompt, text = case
    theirs, mine = make_prompt_cache(model), make_prompt_cache(model)
    steps = mlx_lm_generate_step(
        mx.array(prompt), model, max_tokens=0, prompt_cache=theirs
    )
    assert list(steps) == [] == run(model, prompt, 0, prompt_cache=mine)[0]
    assert [e.offset for e in mine] == [e.offset for e in theirs]
    assert run(model, text[:1], 20, draft=SKIP, prompt_cache=mine)[0] == text[1:21]


@pytest.mark.parametrize(
    "draft",
    [SKIP, REUSING, ExitDraft(4), ShortlistDraft(ExitDraft(3), range(50)), "adapter"],
    ids=["skip", "reusing", "exit", "shortlist", "adapter"],
)
def test_nothing_holds_caches_or_weights_afterwards(draft):
    """Not even until Python's collector of cycles comes round."""
    model = families.build("llama")
    entries = make_prompt_cache(model)
    draft = adapter(model, 3) if draft == "adapter" else draft
    gc.collect()
    gc.disable()
    try:
        run(model, [1, 2, 3], 12, draft=draft, prompt_cache=entries)
        held = [weakref.ref(x) for x in (*entries, model.layers[5], model.model)]
        del entries, model
        assert [h() for h in held] == [None] * len(held)
    finally:
        gc.enable()


# Draft models of another size, quantised caches


@pytest.mark.parametrize("vocab_size", [64, 90, 120])
def test_shortlist_on_a_draft_model_with_a_head_of_another_size(case, vocab_size):
    """q must be as wide as p; 64 is the width of the model too."""
    model, prompt, _ = case
    other = families.build("llama", 3, vocab_size=vocab_size)
    draft = ShortlistDraft(ModelDraft(other), range(60))
    tokens, trace = run(model, prompt, 30, draft=draft, temperature=2.0, seed=1)
    assert len(tokens) == 30 and trace.drafted > 20

    def penalty():
        return make_logits_processors(repetition_penalty=1.3)

    expected = run(model, prompt, 30, logits_processors=penalty())[0]
    assert run(model, prompt, 30, draft=draft, logits_processors=penalty())[0] == (
        expected
    )


def test_a_draft_model_never_looks_up_a_token_that_it_has_not(case):
    model, prompt, text = case
    assert max([*prompt, *text]) >= 40
    other = families.build("llama", 3, vocab_size=40)
    seen = []
    embed = other.model.embed_tokens

    class Watching(type(embed)):
        def __call__(self, ids):
            seen.append(ids)
            return super().__call__(ids)

    embed.__class__ = Watching
    assert run(model, prompt, 40, draft=ModelDraft(other))[0] == text[:40]
    assert 0 < max(ids.max().item() for ids in seen) < 40


def test_windows_of_a_draft_model_are_not_quantised(case):
    model, prompt, _ = case
    options = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 15}
    draft = ModelDraft(families.build("llama_sliding"))
    tokens, trace = run(model, prompt, 40, draft=draft, window_cache="full", **options)
    assert tokens == run(model, prompt, 40, **options)[0]
    assert trace.drafted > 20


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("gemma2", {"kv_bits": 8, "kv_group_size": 32}),  # mlx-lm's gemma2 cannot
        ("llama", {"kv_bits": 7}),
        ("llama", {"kv_bits": 8, "kv_group_size": 64}),  # heads of 32
    ],
)
def test_kv_bits_that_would_fail_in_the_middle_of_a_text_are_refused(family, options):
    model = families.build(family)
    with pytest.raises(ValueError, match=f"quantise the cache of {family}"):
        generate_step([1, 2, 3], model, **options)


# The self-test


def test_a_model_patched_after_the_test_is_tested_again():
    model = families.build("llama")
    self_test.check(model)

    class Doubling(type(model.layers[0])):
        def __call__(self, x, mask=None, cache=None):
            return 2 * super().__call__(x, mask, cache)  # leaving all out is not x

    for layer in model.layers:
        layer.__class__ = Doubling
    with pytest.raises(UnsupportedModelError, match="llama: .*adds zero"):
        self_test.check(model)


def test_the_self_test_uses_tokens_of_the_vocabulary():
    model = families.build("llama", vocab_size=11)
    seen = []

    class Watching(type(model.model.embed_tokens)):
        def __call__(self, ids):
            seen.append(ids)
            return super().__call__(ids)

    model.model.embed_tokens.__class__ = Watching
    self_test.check(model)
    assert 0 < max(ids.max().item() for ids in seen) < 11


# Arguments: one clear line, before the first token


@pytest.mark.parametrize(
    "prompt",
    [[[1, 2]], mx.array([[1, 2]]), mx.array(3), None, "12", [1.5], [-1], [2**40]],
    ids=str,
)
def test_a_prompt_that_is_not_one_row_of_ids_is_refused(case, prompt):
    with pytest.raises(ValueError, match=r"^prompt [^\n]*$"):
        generate_step(prompt, case[0])


def test_prompts_of_any_kind_of_row(case):
    model, prompt, text = case
    for kind in (
        tuple,
        np.array,
        mx.array,
        lambda p: mx.array(p, mx.int64),
        lambda p: np.array(p, np.uint16),
    ):
        assert run(model, kind(prompt), 8, draft=SKIP)[0] == text[:8]


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": 2.0},
        {"max_tokens": None},
        {"num_draft_tokens": None},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"top_p": None},
        {"top_k": 2.5},
        {"seed": -1},
        {"seed": "a"},
        {"sampler": 3},
        {"logits_processors": len},
        {"logits_processors": [3]},
        {"min_confidence": None},
        {"prefill_step_size": 0},
        {"prefill_step_size": -1},
        {"quantized_kv_start": None},
        {"max_kv_size": 0},
        {"policy": 3},
        {"trace": 3},
        {"prompt_progress_callback": 3},
    ],
    ids=str,
)
def test_options_of_another_kind_are_refused_by_name(case, options):
    with pytest.raises(ValueError, match=rf"{next(iter(options))} [^\n]*must "):
        try:
            generate_step([1, 2], case[0], **{"draft": SKIP, **options})
        except ValueError as error:  # some names are plural: "each of ..."
            raise ValueError(f"{next(iter(options))} {error}") from None


def test_whole_numbers_of_any_kind_make_drafts():
    layers = np.array([1, 3])
    assert SkipDraft(layers, layers) == SkipDraft({1, 3}, {1, 3})
    assert ExitDraft(np.int64(4)) == ExitDraft(4)
    assert ShortlistDraft(SKIP, mx.array([1, 2])).tokens == (1, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SkipDraft(3),
        lambda: SkipDraft({"a", 1}),
        lambda: LookupDraft("a"),
        lambda: LookupDraft(2.5),
        lambda: ModelDraft(3),
        lambda: ShortlistDraft(SKIP, 5),
        lambda: ShortlistDraft(SKIP, [1.5]),
        lambda: ShortlistDraft("a", [1]),
        lambda: FallbackDraft(LookupDraft(), "a"),
    ],
)
def test_drafts_of_nonsense_are_refused_when_made(make):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        make()
