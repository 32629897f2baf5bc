"""What went wrong elsewhere, tried here: public reports that no other test tells of.

Each docstring names its report. Reports about servers, training, other frameworks' own
cache formats and published numbers have nothing to try in this library.
"""

import copy

import families
import mlx.core as mx
import mlx.nn as nn
import pytest
import reference
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache
from mlx_lm.sample_utils import make_sampler
from running import SKIP, cache_arrays, drafts_of, run

from selfspec.decoding import (
    Choice,
    ExitDraft,
    Round,
    SkipDraft,
    Trace,
    generate_step,
    lossless,
)
from selfspec.decoding.caches import Caches
from selfspec.decoding.prefix import Prefix
from selfspec.models.blocks import find_stack

MILD = SkipDraft(attention={2}, mlp={4})


@pytest.fixture(scope="module")
def case():
    model, prompt = families.build("llama"), families.prompt("llama", 10)
    return model, prompt, reference.greedy(model, prompt, 150)


# The loop


@pytest.mark.parametrize("k", [1, 2, 4])
def test_rejection_at_every_position_the_last_one_included(case, k):
    """openvino.genai 4190: a rejected last token was seen a step late, a word lost."""
    model, prompt, text = case
    tokens, trace = run(model, prompt, 150, draft=MILD, num_draft_tokens=k)
    assert tokens == text
    whole = {r.accepted for r in trace.rounds if r.drafted == k}
    assert whole == set(range(k + 1))


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_shapes_of_the_smallest_rounds(length, k):
    """LayerSkip 26: masks and positions of different sizes in the smallest cases."""
    model, prompt = families.build("llama"), families.prompt("llama", length)
    text = reference.greedy(model, prompt, 8)
    for draft in (SkipDraft(), SKIP, ExitDraft(1), ExitDraft(5)):
        tokens, _ = run(model, prompt, 8, draft=draft, num_draft_tokens=k)
        assert tokens == text


class Declining:
    """A policy with a draft that is never asked for a token."""

    def choose(self):
        return Choice(SKIP, 0)

    def record(self, finished):
        pass


@pytest.mark.parametrize(
    "options", [{}, {"draft": SKIP, "num_draft_tokens": 0}, {"policy": Declining()}]
)
def test_without_drafted_tokens_the_next_step_is_queued_first(options, monkeypatch):
    """mlx-lm 250: with 0 drafted tokens its loop read each token before going on."""
    model, events = families.build("llama"), []

    class Watching(type(model)):
        def __call__(self, *args, **kwargs):
            events.append("step")
            return super().__call__(*args, **kwargs)

    model.__class__ = Watching
    steps = generate_step([7], model, **options)
    events.clear()
    item = mx.array.item
    monkeypatch.setattr(mx.array, "item", lambda x: events.append("read") or item(x))
    for _ in range(6):
        next(steps)
    monkeypatch.undo()
    assert events == ["step", *["step", "read"] * 6]


def test_an_acceptance_of_none_is_0_and_rates_are_sums_over_sums():
    """LayerSkip c234965: a round without a kept token counted as -1 in a mean."""
    assert Trace([Round(3, 0, 4)]).acceptance_rate == 0
    assert Trace([Round(3, 0, 4)]).tokens_per_round == 1
    rounds = [Round(3, 0, 4), Round(0, 0, 1), Round(1, 1, 2)]
    assert Trace(rounds).acceptance_rate == 1 / 4  # not the mean of 0 and 1
    assert Trace(rounds).first_token_acceptance == 1 / 2


@pytest.mark.parametrize("precision", ["bfloat16", "4 bits"])
def test_texts_of_low_precision_are_the_targets_up_to_ties(precision):
    """mlx-lm 1470: passes of one row and of several round differently, and ties flip."""
    model, prompt = families.build("llama"), families.prompt("llama", 20)
    if precision == "bfloat16":
        model.set_dtype(mx.bfloat16)
    else:
        nn.quantize(model, group_size=32, bits=4)
    steps = mlx_lm_generate_step(mx.array(prompt), model, max_tokens=80)
    baseline = [token for token, _ in steps]
    bound = lossless.tie_bound(model, prompt)
    for draft in (SKIP, ExitDraft(4)):
        tokens, trace = run(model, prompt, 80, draft=draft)
        verdict = lossless.check(
            model, prompt, tokens, baseline=baseline, tie_bound=bound
        )
        assert verdict.lossless, verdict
        assert trace.accepted > 10


def test_rejection_sampling_keeps_more_than_matching(case):
    """mlxcel PR 992: both are exact; the sum of p*q is below that of min(p, q)."""
    model, prompt, _ = case
    options = {"draft": MILD, "num_draft_tokens": 1}
    _, kept = run(model, prompt, 200, temperature=3.0, seed=1, **options)
    mx.random.seed(1)
    _, matched = run(model, prompt, 200, sampler=make_sampler(3.0), **options)
    assert 0 < matched.acceptance_rate < kept.acceptance_rate - 0.1


# Layers


def test_every_exit_layer_drafts_something_else():
    """LayerSkip 15: every exit scored the same, because none was taken."""
    model = families.build("llama")
    ids, stack = mx.array(families.prompt("llama", 12)), find_stack(model)
    logits = [
        Prefix(stack, depth).read(ids, Caches(make_prompt_cache(model)))
        for depth in range(1, 7)
    ]
    for index, one in enumerate(logits):
        for other in logits[index + 1 :]:
            assert mx.abs(one - other).max().item() > 0.1


def test_layers_that_take_other_arguments_draft_too():
    """LayerSkip 22: its own copy of the loop broke when layers took one more."""
    model = families.build("llama")

    class Layer(type(model.layers[0])):
        def __call__(self, x, scale, *, mask, cache, note):
            return x + scale * (super().__call__(x, mask=mask, cache=cache) - x)

    class Inner(type(model.model)):
        def __call__(self, inputs, cache=None, input_embeddings=None):
            h = self.embed_tokens(inputs)
            mask = "causal" if h.shape[1] > 1 else None
            for layer, c in zip(self.layers, cache or [None] * 6, strict=True):
                h = layer(h, 0.9, mask=mask, cache=c, note="unused")
            return self.norm(h)

    model.model.__class__ = Inner
    for layer in model.layers:
        layer.__class__ = Layer
    text = reference.greedy(model, [3, 5], 30)
    for name, draft in drafts_of(model).items():
        tokens, trace = run(model, [3, 5], 30, draft=draft)
        assert tokens == text, name


# Caches


@pytest.mark.parametrize("window_cache", ["ring", "full"])
def test_a_sliding_window_model_beside_another_corrupts_neither_cached_prompt(
    window_cache,
):
    """mlx-lm 1776: served in turn, one model's windows ruined the other's prompts."""
    names = ("gpt_oss", "llama", "llama_sliding")
    models = [families.build(name) for name in names]
    prompts = [families.prompt(name, 9) for name in names]
    expected, stored = [], []
    for model, prompt in zip(models, prompts, strict=True):
        expected.append(reference.greedy(model, prompt, 40))
        stored.append(make_prompt_cache(model))
        run(model, prompt[:-1], 0, prompt_cache=stored[-1])
    kept = [cache_arrays(e, 8) for cache in stored for e in cache]
    for _ in range(2):  # each prompt is taken up again
        streams = [
            generate_step(
                prompt[-1:],
                model,
                draft=SKIP,
                max_tokens=40,
                prompt_cache=copy.deepcopy(cache),
                window_cache=window_cache,
            )
            for model, prompt, cache in zip(models, prompts, stored, strict=True)
        ]
        texts = [[], [], []]
        for _ in range(40):  # token by token
            for text, steps in zip(texts, streams, strict=True):
                text.append(next(steps)[0])
        assert texts == expected
    for entry, arrays in zip((e for c in stored for e in c), kept, strict=True):
        assert entry.offset == 8
        for now, before in zip(cache_arrays(entry, 8), arrays, strict=True):
            assert mx.array_equal(now, before).item()


@pytest.mark.parametrize("window_cache", ["ring", "full"])
def test_positions_stay_plain_numbers(window_cache):
    """mlx-lm 1871: lazy positions that nothing evaluates grow until memory ends."""
    model = families.build("llama_sliding")
    for name, draft in drafts_of(model).items():
        entries = make_prompt_cache(model)
        run(
            model,
            families.prompt("llama_sliding", 5),
            20,
            draft=draft,
            prompt_cache=entries,
            window_cache=window_cache,
        )
        for entry in entries:
            assert type(entry.offset) is int, name
            if isinstance(entry, RotatingKVCache):
                assert type(entry._idx) is int, name
