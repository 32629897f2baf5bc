"""Samplers and logits processors: the match rule calls them as plain decoding does."""

import families
import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.sample_utils import make_logits_processors, make_sampler
from running import adapter, run

from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.decoding.match import private_copy

LENGTH = 50
DRAFTS = [
    SkipDraft(attention={1}, mlp={2}),
    ExitDraft(4),
    LookupDraft(),
    ShortlistDraft(SkipDraft(), range(60)),
    adapter(families.build("llama"), 4),
]


@pytest.fixture(scope="module")
def case():
    return families.build("llama"), families.prompt("llama", 10)


class Remembering:
    """A stateful processor: bans the token it saw two calls ago, and keeps a log."""

    def __init__(self):
        self.seen = []
        self.calls = []

    def __call__(self, tokens, logits):
        self.calls.append(tokens.tolist())
        self.seen.append(int(tokens[-1].item()))
        if len(self.seen) > 2:
            logits[:, self.seen[-3]] = -1e9
        return logits


def remembering_closure():
    """The same, with its state in a closure."""
    seen = []

    def processor(tokens, logits):
        seen.append(int(tokens[-1].item()))
        if len(seen) > 2:
            logits[:, seen[-3]] = -1e9
        return logits

    return processor


def plainly(case, **options):
    model, prompt = case
    steps = mlx_lm_generate_step(mx.array(prompt), model, max_tokens=LENGTH, **options)
    return [token for token, _ in steps]


@pytest.mark.parametrize("draft", [None, *DRAFTS], ids=str)
def test_penalties_see_the_same_history_in_draft_and_verify(case, draft):
    """mlx-lm 1175, vmlx-swift 357: stale history, or the drafted tokens in it twice."""

    def processors():
        return make_logits_processors(
            repetition_penalty=1.3, presence_penalty=0.5, logit_bias={3: 2.0}
        )

    expected = plainly(case, logits_processors=processors())
    tokens, trace = run(*case, LENGTH, draft=draft, logits_processors=processors())
    assert tokens == expected
    if draft is not None:
        assert 0 < trace.accepted < trace.drafted


@pytest.mark.parametrize("draft", [None, *DRAFTS], ids=str)
def test_stateful_processor_is_called_as_in_plain_decoding(case, draft):
    reference, mine = Remembering(), Remembering()
    expected = plainly(case, logits_processors=[reference])
    tokens, _ = run(*case, LENGTH, draft=draft, logits_processors=[mine])
    assert tokens == expected
    # mlx-lm reads one token further; up to there, call by call the same history
    assert mine.calls == reference.calls[: len(mine.calls)]
    assert len(mine.calls) >= LENGTH


@pytest.mark.parametrize("draft", DRAFTS, ids=str)
def test_state_in_a_closure_is_kept_apart_too(case, draft):
    expected = plainly(case, logits_processors=[remembering_closure()])
    tokens, trace = run(
        *case, LENGTH, draft=draft, logits_processors=[remembering_closure()]
    )
    assert tokens == expected
    assert trace.accepted > 0


def test_full_draft_is_always_accepted_under_a_penalty(case):
    """llama.cpp PR 3565: judged with another penalty than it drafted with, 65 %."""
    tokens, trace = run(
        *case,
        LENGTH,
        draft=SkipDraft(),
        logits_processors=[*make_logits_processors(repetition_penalty=1.5)],
    )
    assert trace.acceptance_rate == 1
    _, trace = run(*case, LENGTH, draft=SkipDraft(), logits_processors=[Remembering()])
    assert trace.acceptance_rate == 1


def test_state_that_cannot_be_copied_still_decodes_losslessly(case):
    class Stubborn(Remembering):
        def __deepcopy__(self, memo):
            raise TypeError("not to be copied")

    expected = plainly(case, logits_processors=[Stubborn()])
    tokens, _ = run(*case, LENGTH, draft=DRAFTS[0], logits_processors=[Stubborn()])
    assert tokens == expected


def test_a_sampler_keeps_its_distribution_by_matching(case):
    """A sampler that is a function of its row gives the plain text."""

    def second_best(logprobs):
        return mx.argsort(-logprobs, axis=-1)[:, 1]

    expected = plainly(case, sampler=second_best)
    for draft in (None, SkipDraft(), DRAFTS[0]):
        tokens, trace = run(*case, LENGTH, draft=draft, sampler=second_best)
        assert tokens == expected
    mx.random.seed(1)
    tokens, trace = run(*case, 40, draft=SkipDraft(), sampler=make_sampler(0.8))
    assert len(tokens) == 40
    assert 0 < trace.accepted < trace.drafted


def test_sampler_beside_a_temperature_is_refused(case):
    with pytest.raises(ValueError, match="sampler and temperature are both given"):
        run(*case, 5, sampler=make_sampler(0.5), temperature=0.5)


def test_private_copies_share_no_state():
    original = Remembering()
    copy = private_copy(original)
    copy(mx.array([1]), mx.zeros((1, 4)))
    assert original.calls == [] and len(copy.calls) == 1
    pure = make_sampler(0.7)
    assert private_copy(pure) is pure
