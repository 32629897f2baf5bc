"""The judge of losslessness: nothing forced, ties bounded, divergence found."""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

import selfspec
from selfspec.decoding import lossless
from tests.tiny import save_tiny_model

PROMPT = list(range(40, 60))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny")).model


@pytest.fixture(scope="module")
def text(model):
    steps = generate_step(mx.array(PROMPT), model, max_tokens=30)
    return [int(token) for token, _ in steps]


def judge(model, tokens, baseline, bound=1e-4):
    return lossless.check(model, PROMPT, tokens, baseline=baseline, tie_bound=bound)


def test_the_baseline_itself_is_equal(model, text):
    assert judge(model, text, text) == lossless.Verdict("equal")


@pytest.mark.parametrize("position", [0, 7, 29])
def test_one_wrong_token_is_found_where_it_stands(model, text, position):
    wrong = list(text)
    wrong[position] = (wrong[position] + 1) % 258
    verdict = judge(model, wrong, text)
    assert not verdict.lossless and verdict.position == position


def test_text_after_a_tie_is_checked_too(model, text):
    """A second-best token within the bound is a tie; a later wrong one still fails."""
    cache_free = model(mx.array([PROMPT]))[0, -1]
    second = int(mx.argsort(-cache_free)[1])
    gap = (cache_free.max() - cache_free[second]).item()
    tied = [second]
    while len(tied) < 12:
        logits = model(mx.array([PROMPT + tied]))[0, -1]
        tied.append(int(mx.argmax(logits)))
    verdict = judge(model, tied, text, bound=gap * 1.001)
    assert verdict.word == "tie" and verdict.ties == 1 and verdict.lossless
    assert not judge(model, tied, text, bound=gap * 0.5).lossless
    tied[8] = (tied[8] + 3) % 258
    verdict = judge(model, tied, text, bound=gap * 1.001)
    assert verdict.word == "diverged" and verdict.position == 8 and verdict.ties == 1


def test_a_text_that_stops_early_or_runs_on_diverges(model, text):
    assert judge(model, text[:20], text).position == 20
    assert judge(model, text, text[:20]).position == 20


def test_the_tie_bound_is_small_in_float32(model):
    assert 0 <= lossless.tie_bound(model, PROMPT) < 1e-3
    with pytest.raises(ValueError, match="2 tokens"):
        lossless.tie_bound(model, [1])


def test_nan_logits_never_pass(model, text):
    class Broken:
        layers = model.layers

        def __call__(self, tokens, cache=None):
            return model(tokens, cache=cache) * float("nan")

        def make_cache(self):
            from mlx_lm.models.cache import make_prompt_cache

            return make_prompt_cache(model)

    wrong = [(token + 1) % 258 for token in text]
    verdict = lossless.check(Broken(), PROMPT, wrong, baseline=text, tie_bound=1e9)
    assert not verdict.lossless
