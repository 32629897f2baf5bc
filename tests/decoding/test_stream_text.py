"""`stream_generate`: mlx-lm's fields, where it stops, arguments refused."""

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.models.cache import make_prompt_cache
from running import SKIP, Tokenizer

from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
    generate_step,
    stream_generate,
)


@pytest.fixture(scope="module")
def case():
    model, prompt = families.build("llama"), families.prompt("llama", 10)
    return model, prompt, reference.greedy(model, prompt, 60)


def test_the_text_ends_before_the_first_of_several_ends(case):
    """LayerSkip's later fix: more than one id may end a text."""
    model, prompt, text = case
    eos = {text[37], text[22]}
    expected = text[: next(i for i, t in enumerate(text) if t in eos)]
    for draft in (None, SKIP):
        responses = list(
            stream_generate(model, Tokenizer(*eos), prompt, draft=draft, max_tokens=50)
        )
        assert [r.token for r in responses[:-1]] == expected
        assert "".join(r.text for r in responses) == "".join(f"{t}," for t in expected)
        assert responses[-1].token in eos


def test_responses_carry_mlx_lms_fields_and_the_trace(case):
    model, prompt, text = case
    text_prompt = ",".join(map(str, prompt))
    responses = list(
        stream_generate(model, Tokenizer(), text_prompt, draft=SKIP, max_tokens=20)
    )
    assert [r.token for r in responses] == text[:20]
    last = responses[-1]
    assert last.finish_reason == "length"
    assert last.prompt_tokens == len(prompt) and last.prompt_tps > 0
    assert last.generation_tokens == 20 and last.generation_tps > 0
    assert last.peak_memory > 0 and last.logprobs.shape == (families.VOCAB,)
    assert any(r.from_draft for r in responses)
    trace = last.trace
    assert trace.emitted == 20 == sum(1 + r.accepted for r in trace.rounds)
    assert trace.rows_verified == trace.drafted + len(trace.rounds)
    assert trace.acceptance_rate == trace.accepted / trace.drafted
    assert trace.tokens_per_round == pytest.approx(20 / len(trace.rounds))
    for r in trace.rounds:
        assert min(r.seconds_drafting, r.seconds_verifying, r.seconds_rest) > 0
    assert trace.seconds_prefill > 0 and trace.peak_memory > 0


def test_abandoned_stream_rolls_the_cache_back_at_once(case):
    model, prompt, text = case
    entries = make_prompt_cache(model)
    stream = stream_generate(
        model,
        Tokenizer(),
        prompt,
        draft=SKIP,
        num_draft_tokens=5,
        max_tokens=50,
        prompt_cache=entries,
    )
    for _ in range(7):
        last = next(stream)
    stream.close()
    assert {e.offset for e in entries} == {len(prompt) + 6}
    assert last.trace.cached_tokens == len(prompt) + 6


def test_trace_without_a_draft(case):
    model, prompt, _ = case
    trace = Trace()
    list(generate_step(prompt, model, max_tokens=9, trace=trace))
    assert trace.rounds == [] and trace.plain_tokens == trace.emitted == 9
    assert trace.acceptance_rate != trace.acceptance_rate  # NaN, not a made-up 0
    assert trace.seconds_plain > 0


def test_the_rows_that_shortlists_copied_are_reported_apart(case):
    """No other draft copies weights; a fallback has its drafts' rows together."""
    model, prompt, _ = case
    row = 4 * families.HIDDEN  # bytes of a token in a float32 head
    few, more = ShortlistDraft(SKIP, range(50)), ShortlistDraft(ExitDraft(4), range(60))
    lookup = FallbackDraft(LookupDraft(), few)
    trace = Trace()  # used again and again: the last generation counts
    for draft, rows in (
        (few, 50),
        (lookup, 50),
        (FallbackDraft(few, more), 110),
        (SKIP, 0),
        (None, 0),
    ):
        list(generate_step(prompt, model, draft=draft, max_tokens=9, trace=trace))
        assert trace.shortlist_bytes == rows * row
        assert trace.peak_memory > trace.shortlist_bytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens must be 0 or more"),
        ({"num_draft_tokens": 2.5}, "num_draft_tokens must be 0 or more"),
        ({"num_draft_tokens": "auto"}, '"auto" needs costs'),
        ({"temperature": -1}, "temperature must be 0 or more"),
        ({"top_p": 2}, "top_p.* must be in"),
        ({"top_k": -3}, "top_k must be 0 or more"),
        ({"min_confidence": 1.5}, "min_confidence must be in"),
        ({"window_cache": "big"}, "window_cache must be"),
        ({"max_tokens": -2}, "max_tokens must be -1 or more"),
        ({"draft": SkipDraft({6})}, r"leaves out layers \[6\], but the model has 6"),
        ({"draft": ShortlistDraft(SKIP, [96])}, "names token 96"),
    ],
)
def test_bad_arguments_are_refused_before_the_first_token(case, options, message):
    model, prompt, _ = case
    with pytest.raises(ValueError, match=message):
        generate_step(prompt, model, **{"draft": SKIP, **options})


def test_other_bad_arguments(case):
    model, prompt, _ = case
    with pytest.raises(ValueError, match="prompt must hold at least one token"):
        generate_step(mx.array([]), model)
    with pytest.raises(ValueError, match="max_tokens must not be 0"):
        stream_generate(model, Tokenizer(), prompt, max_tokens=0)
    with pytest.raises(TypeError, match="draft must be a SkipDraft"):
        generate_step(prompt, model, draft="skip everything")
    with pytest.raises(ValueError, match="no head of its own"):
        ShortlistDraft(LookupDraft(), [1])
    with pytest.raises(ValueError, match="layer numbers from 0"):
        SkipDraft(attention={-1})
    with pytest.raises(ValueError, match="min_ngram"):
        LookupDraft(max_ngram=2, min_ngram=3)
