"""Every family, 200 tokens, float32: equal to the judge, token for token.

Each draft must be kept and rejected at least 20 times, or equality would say little.
"""

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.generate import generate_step
from running import noisy_copy, run

from selfspec.decoding import (
    ExitDraft,
    LookupDraft,
    ModelDraft,
    SkipDraft,
    check_shorter_list,
)
from selfspec.decoding.self_test import check
from selfspec.models.errors import UnsupportedModelError

LENGTH = 200
# attention and MLP apart, layer 0 among them, a whole layer, 6 layers in all
SKIP = SkipDraft(attention={0, 2}, mlp={2, 4})

LEAN_EARLY = ("cohere2", "gemma3_text")  # drafts without early blocks are rejected


@pytest.fixture(scope="module", params=families.FAMILIES)
def case(request):
    """(family, model, prompt, text): what mlx-lm's plain loop writes.

    One pass without a cache judges it: each token is the argmax on the tokens before
    it, which is, token by token, what greedy decoding means.
    """
    model = families.build(request.param)
    prompt = families.prompt(request.param, 10)
    steps = generate_step(mx.array(prompt), model, max_tokens=LENGTH)
    text = [token for token, _ in steps]
    logits = reference.all_logits(model, [*prompt, *text[:-1]])
    assert logits[len(prompt) - 1 :].argmax(axis=-1).tolist() == text
    return request.param, model, prompt, text


def assert_lossless(case, draft, *, at_least=20, **options):
    family, model, prompt, text = case
    tokens, trace = run(
        model, prompt, LENGTH, draft=draft, window_cache="full", **options
    )
    assert tokens == text
    assert trace.draft_stopped == ""
    assert trace.accepted >= at_least, trace.acceptance_rate
    rejected = sum(r.accepted < r.drafted for r in trace.rounds)
    assert rejected >= at_least, trace.acceptance_rate


def test_plain_decoding_is_mlx_lms(case):
    family, model, prompt, text = case
    assert run(model, prompt, 80)[0] == text[:80]


def test_skip_draft_is_lossless(case):
    draft = SKIP
    if case[0] in LEAN_EARLY:
        draft = SkipDraft(attention={3, 5}, mlp={4})
    assert_lossless(case, draft)


def test_skip_draft_with_layer_0_left_out_is_lossless(case):
    family, model, prompt, text = case
    if family not in LEAN_EARLY:
        pytest.skip("the test above leaves out blocks of layer 0")
    draft = SkipDraft(attention={0}, mlp={0, 3})
    assert run(model, prompt, 60, draft=draft, window_cache="full")[0] == text[:60]


def test_exit_draft_is_lossless(case):
    draft = ExitDraft(5 if case[0] == "gemma3_text" else 4)
    assert_lossless(case, draft, num_draft_tokens=2)


def test_model_draft_is_lossless(case):
    scale = {"gemma3_text": 0.05, "cohere2": 0.05}.get(case[0], 0.15)
    draft = ModelDraft(noisy_copy(case[1], scale))
    assert_lossless(case, draft, num_draft_tokens=1)


def test_lookup_draft_is_lossless(case):
    family, model, prompt, text = case
    tokens, trace = run(model, prompt, LENGTH, draft=LookupDraft(), window_cache="full")
    assert tokens == text
    assert trace.drafted > 0


def test_ring_past_its_window_is_lossless_and_the_trace_says_so(case):
    family, model, prompt, text = case
    if not families.has_window(family):
        pytest.skip("no sliding window")
    tokens, trace = run(model, prompt, 80, draft=SKIP)
    assert tokens == text[:80]
    assert f"{families.WINDOW}-token sliding window is full" in trace.draft_stopped
    assert trace.drafted > 0
    assert 80 - families.WINDOW < trace.plain_tokens < 80


@pytest.mark.parametrize("family", families.REFUSED)
def test_models_that_cannot_be_rolled_back_are_refused_by_name(family):
    model = families.build(family)
    with pytest.raises(UnsupportedModelError, match="Way out"):
        check(model)
    with pytest.raises(UnsupportedModelError, match="Way out"):
        run(model, [1, 2, 3], 5, draft=SkipDraft({1}, {1}))
    with pytest.raises(UnsupportedModelError):
        run(model, [1, 2, 3], 5, draft=LookupDraft())


@pytest.mark.parametrize("family", [f for f in families.FAMILIES])
def test_shorter_list_is_refused_just_where_places_matter(family):
    model = families.build(family)
    if families.has_window(family):
        with pytest.raises(UnsupportedModelError, match="shorter list"):
            check_shorter_list(model)
    else:
        check_shorter_list(model)
