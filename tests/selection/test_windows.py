"""Windows: the target's own text, and no text in two sets."""

import families
import mlx.core as mx
import pytest

from selfspec.selection import Window, make_windows
from selfspec.selection.windows import overlap


@pytest.fixture(scope="module")
def model():
    return families.build("llama")


@pytest.fixture(scope="module")
def windows(model):
    prompts = [families.prompt("llama", length, length) for length in (1, 10)]
    return make_windows(model, prompts, num_tokens=24)


def test_windows_are_the_targets_own_text(model, windows):
    for window in windows:
        logits = model(mx.array([window.tokens[:-1]]))[0]
        said = mx.argmax(logits, axis=-1).tolist()[window.start - 1 :]
        assert tuple(said) == window.generated
        assert len(window.generated) == 24


def test_the_prompt_comes_first_even_if_it_is_one_token(windows):
    for window, length in zip(windows, (1, 10), strict=True):
        assert window.start == length
        prompt = tuple(families.prompt("llama", length, length))
        assert window.tokens[:length] == prompt


def test_a_window_ends_with_the_end_of_the_text(model, windows):
    whole = windows[1]
    stop = whole.generated[5]
    [short] = make_windows(
        model, [whole.tokens[: whole.start]], num_tokens=24, eos={stop}
    )
    first = whole.generated.index(stop)
    assert short.generated == whole.generated[: first + 1]


def test_a_prompt_in_two_sets_is_found_out(windows):
    one, two = windows
    assert overlap([one], [two, one])
    assert overlap([one], [Window(one.tokens[:3], one.start)])  # cut shorter
    assert not overlap([one], [two])


def test_refusals(model):
    for start in (0, 2):
        with pytest.raises(ValueError, match="a prompt and a generated token"):
            Window((1, 2), start)
    for prompts in ([], [[]]):
        with pytest.raises(ValueError, match="prompts of one or more"):
            make_windows(model, prompts, num_tokens=3)
    with pytest.raises(ValueError, match="num_tokens must be 1 or more, got 0"):
        make_windows(model, [[1]], num_tokens=0)
