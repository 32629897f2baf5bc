"""The timed arms: same greedy text, rounds recovered from mlx-lm's flags."""

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm.generate import generate_step

import selfspec
from selfspec.decoding import Choice, LookupDraft, SkipDraft, shorter_list_model
from selfspec.study import arms
from tests.tiny import save_tiny_model

PROMPT = list(range(40, 64))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny")).model


def plain_text(model, count):
    steps = generate_step(mx.array(PROMPT), model, max_tokens=count)
    return [int(token) for token, _ in steps]


def test_plain_emits_mlx_lms_own_text(model):
    out = arms.plain(model, PROMPT, num_tokens=20)
    assert list(out.tokens) == plain_text(model, 20)
    assert out.decode_tokens == 19 and out.rounds == ()


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_posts_arm_is_lossless_and_its_rounds_add_up(model, length):
    draft = shorter_list_model(model, SkipDraft.middle(6, 0.3))
    out = arms.shorter_list(
        model, draft, PROMPT, num_draft_tokens=length, num_tokens=40
    )
    assert list(out.tokens) == plain_text(model, 40)
    accepted = sum(a for _, a in out.rounds)
    assert accepted + len(out.rounds) in (40, 41)  # a last round may have no bonus
    assert 0 < accepted < sum(d for d, _ in out.rounds)
    assert out.decode_tokens == 40 - (out.rounds[0][1] + 1)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_the_one_cache_arm_is_lossless_and_its_rounds_add_up(model, length):
    skip = SkipDraft.middle(6, 0.3)
    out = arms.one_cache(model, skip, PROMPT, num_draft_tokens=length, num_tokens=40)
    assert list(out.tokens) == plain_text(model, 40)
    accepted = sum(a for _, a in out.rounds)
    assert accepted + len(out.rounds) == 40
    assert 0 < accepted < sum(d for d, _ in out.rounds)
    assert out.decode_tokens == 40 - (out.rounds[0][1] + 1)


class Script:
    """A policy that answers what is written down, in order, and then plainly."""

    def __init__(self, draft, lengths):
        self.draft, self.lengths = draft, iter(lengths)

    def choose(self):
        return Choice(self.draft, next(self.lengths, 0))

    def record(self, finished):
        pass


def test_plain_steps_that_a_policy_chose_are_noted_in_their_place(model):
    """A step that is queued already comes before the round that was chosen after it."""
    skip = SkipDraft.middle(6, 0.3)
    policy = Script(skip, [0, 0, 3, 0, 2])
    out = arms.one_cache(model, skip, PROMPT, policy=policy, num_tokens=20)
    assert list(out.tokens) == plain_text(model, 20)
    assert [d for d, _ in out.rounds[:7]] == [0, 0, 0, 3, 0, 0, 2]
    assert out.plain == tuple(d == 0 for d, _ in out.rounds)
    assert sum(1 + a for _, a in out.rounds) == 20
    assert out.decode_tokens == 19  # the first step is timed with the prompt


def test_a_lookup_that_finds_nothing_is_a_round_and_no_plain_step(model):
    nothing = LookupDraft(max_ngram=9, min_ngram=9)
    out = arms.one_cache(model, nothing, PROMPT, num_draft_tokens=3, num_tokens=12)
    assert (0, 0) in out.rounds and not any(out.plain)
    assert len(out.plain) == len(out.rounds)


def test_both_arms_stop_at_the_same_eos(model):
    text = plain_text(model, 40)
    eos = text[11]
    first = text.index(eos)
    draft = shorter_list_model(model, SkipDraft.middle(6, 0.3))
    plain = arms.plain(model, PROMPT, num_tokens=40, eos=[eos])
    post = arms.shorter_list(
        model, draft, PROMPT, num_draft_tokens=3, num_tokens=40, eos=[eos]
    )
    one = arms.one_cache(
        model,
        SkipDraft.middle(6, 0.3),
        PROMPT,
        num_draft_tokens=3,
        num_tokens=40,
        eos=[eos],
    )
    assert list(plain.tokens) == list(post.tokens) == text[: first + 1]
    assert list(one.tokens) == list(plain.tokens)


@given(st.data(), st.integers(1, 6), st.integers(1, 60))
def test_rounds_are_recovered_from_any_run_of_the_loop(data, length, num_tokens):
    """Play mlx-lm's loop with made-up acceptances and read the rounds back."""
    flags, expected = [], []
    while len(flags) < num_tokens:
        drafted = min(length, num_tokens - len(flags))
        accepted = data.draw(st.integers(0, drafted))
        expected.append((drafted, accepted))
        flags += [True] * accepted
        if len(flags) < num_tokens:
            flags.append(False)
    assert arms.rounds_of(flags, length, num_tokens) == tuple(expected)
