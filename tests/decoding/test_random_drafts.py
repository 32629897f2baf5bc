"""Properties: any skip set, exit layer, length and stopping place is lossless."""

import families
import mlx.core as mx
import pytest
import reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache
from running import run

from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ShortlistDraft,
    SkipDraft,
    generate_step,
)

LAYERS, LENGTH = 6, 70
CASES = {}


def case(family):
    if family not in CASES:
        model, prompt = families.build(family), families.prompt(family, 7)
        CASES[family] = model, prompt, reference.greedy(model, prompt, LENGTH + 20)
    return CASES[family]


blocks = st.frozensets(st.integers(0, LAYERS - 1))
skips = st.builds(SkipDraft, blocks, blocks, st.booleans())
exits = st.builds(ExitDraft, st.integers(1, LAYERS - 1), st.booleans())
shortlists = st.builds(
    ShortlistDraft,
    skips | exits,
    st.sets(st.integers(0, families.VOCAB - 1), min_size=1).map(tuple),
)
lookups = st.builds(LookupDraft, st.integers(1, 4))
drafts = (
    skips
    | exits
    | shortlists
    | lookups
    | st.builds(FallbackDraft, lookups, skips | exits | shortlists)
)

quickly = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
@quickly
@given(
    draft=drafts,
    k=st.integers(0, 7),
    max_tokens=st.integers(0, LENGTH),
    window_cache=st.sampled_from(["ring", "full"]),
    confidence=st.sampled_from([0.0, 0.0, 0.4]),
)
def test_any_draft_is_lossless(family, draft, k, max_tokens, window_cache, confidence):
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
    assert trace.emitted == max_tokens


@pytest.mark.parametrize("family", ["llama", "llama_sliding"])
@quickly
@given(draft=drafts, k=st.integers(1, 6), stop=st.integers(1, 30))
def test_any_draft_abandoned_anywhere_leaves_a_right_cache(family, draft, k, stop):
    model, prompt, text = case(family)
    entries = make_prompt_cache(model)
    steps = generate_step(
        prompt,
        model,
        draft=draft,
        num_draft_tokens=k,
        max_tokens=-1,
        prompt_cache=entries,
        window_cache="full",
    )
    tokens = [next(steps)[0] for _ in range(stop)]
    steps.close()
    assert {e.offset for e in entries} == {len(prompt) + stop - 1}
    logits = model(mx.array([tokens[-1:]]), cache=entries)[0, -1]
    expected = reference.all_logits(model, [*prompt, *tokens])[-1]
    assert mx.abs(logits - expected).max().item() < 1e-3
    assert tokens == text[:stop]
