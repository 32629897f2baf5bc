"""`stream_generate`: mlx-lm's fields, end-of-sequence anywhere, arguments refused."""

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tokenizer_utils import TokenizerWrapper
from running import noisy_copy

from selfspec.decoding import (
    ExitDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
    generate_step,
    stream_generate,
)

SKIP = SkipDraft(attention={2}, mlp={2, 4})


class Detokenizer:
    """A token is written as its number and a comma."""

    def reset(self):
        self.last_segment = ""

    def add_token(self, token):
        self.last_segment = f"{token},"

    def finalize(self):
        self.last_segment = ""


class Tokenizer(TokenizerWrapper):
    """The little of mlx-lm's wrapper that `stream_generate` uses."""

    def __init__(self, *eos):
        for name, value in (
            ("eos_token_ids", set(eos)),
            ("bos_token", None),
            ("detokenizer", Detokenizer()),
        ):
            object.__setattr__(self, name, value)
        self.detokenizer.reset()

    # the parent's are properties of a real tokenizer
    eos_token_ids = bos_token = detokenizer = None

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def encode(self, text, add_special_tokens=True):
        return [int(t) for t in text.split(",")]


@pytest.fixture(scope="module")
def case():
    model, prompt = families.build("llama"), families.prompt("llama", 10)
    return model, prompt, reference.greedy(model, prompt, 150)


def tokens_until(text, eos):
    stop = next((i for i, t in enumerate(text) if t in eos), len(text))
    return text[:stop]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_end_of_sequence_at_each_draft_position_and_as_the_bonus(case, k):
    """Every token of the text in turn is the end; all places in a round are seen."""
    model, prompt, text = case
    places = set()
    for eos in dict.fromkeys(text[:30]):
        trace, entries = Trace(), make_prompt_cache(model)
        responses = list(
            stream_generate(
                model,
                Tokenizer(eos),
                prompt,
                draft=SKIP,
                num_draft_tokens=k,
                max_tokens=100,
                trace=trace,
                prompt_cache=entries,
            )
        )
        expected = tokens_until(text[:100], {eos})
        assert [r.token for r in responses] == [*expected, eos]
        assert [r.finish_reason for r in responses[:-1]] == [None] * len(expected)
        assert responses[-1].finish_reason == "stop"
        assert responses[-1].generation_tokens == trace.emitted == len(expected) + 1
        # the cache holds the text but the end itself
        assert {e.offset for e in entries} == {len(prompt) + len(expected)}
        before = sum(1 + r.accepted for r in trace.rounds[:-1])
        last = trace.rounds[-1]
        place = len(expected) - before
        places.add("bonus" if place == last.accepted else place)
    assert places >= {"bonus", 0}
    if k >= 2:
        assert 1 in places


def test_several_ends_and_other_drafts(case):
    model, prompt, text = case
    eos = {text[37], text[22]}
    expected = tokens_until(text, eos)
    for draft in (
        None,
        SKIP,
        ExitDraft(4),
        LookupDraft(),
        ModelDraft(noisy_copy(model)),
        ShortlistDraft(SkipDraft(), range(70)),
    ):
        responses = list(
            stream_generate(model, Tokenizer(*eos), prompt, draft=draft, max_tokens=100)
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
