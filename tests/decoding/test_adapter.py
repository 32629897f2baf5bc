"""A bridge between an early layer and the head: lossless, and it reads the text it says.

The judge of what it drafts is slow and obvious: the first layers, the bridge in the
place of the last layer and nothing between them read the whole text without a cache.
That is right only if the bridge's own cache has followed every rollback, every plain
step and every other draft.
"""

import families
import mlx.core as mx
import numpy as np
import pytest
import reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache
from running import adapter, run

from selfspec.costs.profile import left_out
from selfspec.decoding import (
    AdapterDraft,
    Bridge,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ShortlistDraft,
    SkipDraft,
    generate_step,
)
from selfspec.decoding.policy import Choice
from selfspec.models.blocks import find_stack
from selfspec.models.surgery import pass_through, with_call

LENGTH = 60
CASES = {}


def case(family):
    if family not in CASES:
        model, prompt = families.build(family), families.prompt(family, 7)
        CASES[family] = model, prompt, reference.greedy(model, prompt, LENGTH + 20)
    return CASES[family]


def slow_rounds(family, draft, max_tokens, k):
    """The rounds of a model that runs the first layers and the bridge, uncached."""
    model, prompt, text = case(family)
    stack = find_stack(model)
    layers = list(map(pass_through, stack.layers))
    layers[: draft.exit_layer] = stack.layers[: draft.exit_layer]
    layers[-1] = draft.bridge.module(stack)
    short = stack.with_layers(layers)

    def propose(context, num_drafted):
        drafted = []
        while len(drafted) < num_drafted:
            logits = reference.all_logits(short, [*context, *drafted])[-1]
            drafted.append(logits.argmax().item())
        return drafted

    return reference.rounds_of(text[:max_tokens], propose, prompt, max_tokens, k)


@pytest.mark.parametrize("kind", ["layer", "mlp"])
@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma2", "llama_sliding"])
def test_it_drafts_what_a_slow_judge_drafts(family, kind):
    """`gemma2` scales its embedding and caps its logits: its own forward must do it."""
    model, prompt, text = case(family)
    exit_layer, noise = (5, 0.2) if family == "gemma2" else (3, 0)
    draft = adapter(model, exit_layer, kind, noise)
    expected = slow_rounds(family, draft, 40, 3)
    tokens, trace = run(
        model, prompt, 40, draft=draft, num_draft_tokens=3, window_cache="full"
    )
    assert tokens == text[:40]
    accepted = [r.accepted for r in expected]
    assert trace.accepted_per_round == accepted
    assert len({*accepted}) > 1  # or nothing was rolled back, or all of it
    assert {r.draft_source for r in trace.rounds} == {"AdapterDraft"}


class Rotating:
    """Adapter, plainly, lookup, skip, adapter ...: what the bridge reads comes by all."""

    def __init__(self, draft, others):
        self.plan = [Choice(draft, 3), Choice(None, 0), *others, Choice(draft, 2)]
        self.asked = 0

    def choose(self):
        self.asked += 1
        return self.plan[(self.asked - 1) % len(self.plan)]

    def record(self, finished):
        pass


def test_other_drafts_and_plain_steps_leave_no_hole_in_what_the_bridge_reads():
    """Its rounds among others accept what they would accept alone, at the same place."""
    model, prompt, text = case("llama")
    draft = adapter(model, 3)
    others = [Choice(LookupDraft(max_ngram=1), 4), Choice(SkipDraft({1}, {1}), 3)]
    tokens, trace = run(model, prompt, LENGTH, policy=Rotating(draft, others))
    assert tokens == text[:LENGTH]
    stack = find_stack(model)
    layers = list(map(pass_through, stack.layers))
    layers[:3], layers[-1] = stack.layers[:3], draft.bridge.module(stack)
    short = stack.with_layers(layers)
    agreed = reference.all_logits(short, [*prompt, *text]).argmax(-1).tolist()
    agreed = [a == b for a, b in zip(agreed[len(prompt) - 1 :], text, strict=False)]
    # plain steps stand between rounds, so a round is looked up by what it accepted
    mine = [r for r in trace.rounds if r.draft_source == "AdapterDraft" and r.drafted]
    assert sum(r.accepted for r in mine) > 5
    possible = {
        (r.drafted, r.accepted)
        for r in mine
        for at in range(LENGTH)
        if all(agreed[at : at + r.accepted])
        and (r.accepted == r.drafted or not agreed[at + r.accepted])
    }
    assert {(r.drafted, r.accepted) for r in mine} == possible


def test_a_draft_that_comes_late_or_on_a_known_conversation_is_lossless():
    """The bridge has not read what came before, and goes on from there."""
    model, prompt, text = case("llama")
    draft = adapter(model, 4)

    class Late(Rotating):
        def __init__(self):
            super().__init__(draft, [])
            self.plan = [Choice(ExitDraft(3), 2), Choice(draft, 3)]

    tokens, trace = run(model, prompt, LENGTH, policy=Late())
    assert tokens == text[:LENGTH]
    assert {r.draft_source for r in trace.rounds} == {"AdapterDraft", "ExitDraft"}
    entries = make_prompt_cache(model)
    first, _ = run(model, prompt, 20, draft=draft, prompt_cache=entries)
    more, trace = run(model, first[-1:], 30, draft=draft, prompt_cache=entries)
    assert [*first, *more] == text[:50]
    assert trace.accepted > 0


def test_no_layer_of_the_target_runs_a_row_twice():
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
    draft = AdapterDraft(2, Bridge.like(stack))
    run(counted, prompt, 2, draft=draft)  # the engine checks a new model first
    rows[:] = [0] * len(rows)
    tokens, trace = run(counted, prompt, 40, draft=draft, num_draft_tokens=3)
    assert tokens == text[:40]
    # the bridge is a copy of the last one, and counts there
    once = len(prompt) - 1 + trace.rows_verified
    assert rows[:-1] == [once] * (len(rows) - 1) and rows[-1] > once


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    exit_layer=st.integers(1, 5),
    kind=st.sampled_from(["layer", "mlp"]),
    wrapped=st.sampled_from(["alone", "shortlist", "fallback"]),
    k=st.integers(0, 6),
    stop=st.integers(1, LENGTH),
    window_cache=st.sampled_from(["ring", "full"]),
    confidence=st.sampled_from([0.0, 0.4]),
    step=st.sampled_from([2, 2048]),
)
def test_any_bridge_at_any_exit_abandoned_anywhere(
    family, exit_layer, kind, wrapped, k, stop, window_cache, confidence, step
):
    model, prompt, text = case(family)
    draft = adapter(model, exit_layer, kind)
    if wrapped == "shortlist":
        draft = ShortlistDraft(draft, range(70))
    if wrapped == "fallback":
        draft = FallbackDraft(LookupDraft(), draft)
    entries = make_prompt_cache(model)
    steps = generate_step(
        prompt,
        model,
        draft=draft,
        num_draft_tokens=k,
        max_tokens=-1,
        window_cache=window_cache,
        min_confidence=confidence,
        prefill_step_size=step,
        prompt_cache=entries,
    )
    tokens = [next(steps)[0] for _ in range(stop)]
    steps.close()
    assert tokens == text[:stop]
    # without a draft the last token is read too, and past a ring's end it may be
    ahead = {0, 1} if k == 0 or window_cache == "ring" else {0}
    assert {e.offset - len(prompt) - stop + 1 for e in entries} <= ahead


def test_a_quantised_model_gets_a_bridge_that_is_not():
    """Only the bridge is trained, which quantised weights cannot be."""
    import mlx.nn as nn

    model = families.build("llama")
    nn.quantize(model, group_size=32, bits=8)
    before = [np.array(x) for x in model.layers[-1].self_attn.q_proj.weight]
    draft = adapter(model, 3)
    assert {w.dtype for w in draft.bridge.weights.values()} == {mx.float32}
    prompt = families.prompt("llama", 7)
    plain, _ = run(model, prompt, 30)
    assert run(model, prompt, 30, draft=draft)[0] == plain
    after = [np.array(x) for x in model.layers[-1].self_attn.q_proj.weight]
    assert np.array_equal(before, after)


def test_a_bridge_costs_what_a_layer_costs():
    layer, mlp = (
        adapter(families.build("llama"), 2, kind) for kind in ("layer", "mlp")
    )
    assert left_out(layer, 6, 96) == ({2, 3, 4}, {2, 3, 4}, 1.0, 2)
    assert left_out(mlp, 6, 96) == ({2, 3, 4, 5}, {2, 3, 4}, 1.0, 2)
    assert mlp.bridge.num_parameters < layer.bridge.num_parameters
    assert layer.bridge.nbytes == 4 * layer.bridge.num_parameters


def test_what_does_not_fit_is_refused_before_the_first_token():
    model, prompt, _ = case("llama")
    with pytest.raises(ValueError, match="exit_layer must be from 1 to 5 for 6 layers"):
        generate_step(prompt, model, draft=adapter(model, 6))
    other = families.build("llama", hidden_size=32)
    draft = AdapterDraft(2, adapter(other, 2).bridge)
    with pytest.raises(ValueError, match="bridge does not fit llama: .* Way out"):
        generate_step(prompt, model, draft=draft)
    with pytest.raises(ValueError, match="bridge must be a Bridge"):
        AdapterDraft(2, "bridge.safetensors")
    with pytest.raises(ValueError, match="a bridge is one of layer, mlp"):
        Bridge.like(find_stack(model), "two layers")
