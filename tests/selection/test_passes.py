"""Blocks that are run alone are the model's own; a batch is its rows."""

import families
import mlx.core as mx
import pytest

from selfspec.models import UnsupportedModelError, find_stack
from selfspec.selection import make_windows
from selfspec.selection.passes import Past, TargetText, round_starts


@pytest.fixture(scope="module", params=["llama", "gemma3_text", "olmo3"])
def text(request):
    model = families.build(request.param)
    [window] = make_windows(model, [families.prompt(request.param, 10)], num_tokens=24)
    return TargetText(find_stack(model), window)


def test_the_rows_say_what_the_target_said(text):
    assert text.target.tolist()[:-1] == text.ids[0].tolist()[1:]


def test_block_by_block_is_the_model(text):
    assert len(text.depths) == 2 * text.stack.num_layers + 1
    assert mx.allclose(text.depths[-1], text.last, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("depth", [0, 3, 8])
def test_cells_do_not_know_of_one_another(text, depth):
    here, other = text.depths[depth], text.depths[depth + 1]
    both = text.run_block(depth, mx.concatenate([here, other]))
    for cell, rows in enumerate((here, other)):
        alone = text.run_block(depth, rows)
        assert mx.allclose(both[cell], alone[0], rtol=1e-4, atol=1e-4)


def test_blocks_side_by_side_cannot_be_followed_alone():
    model = families.build("cohere2")
    [window] = make_windows(model, [families.prompt("cohere2", 10)], num_tokens=8)
    text = TargetText(find_stack(model), window)
    with pytest.raises(
        UnsupportedModelError, match="do not follow one another.*Way out"
    ):
        text.depths  # noqa: B018


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize(("length", "phase"), [(1, 0), (3, 0), (3, 2)])
def test_a_row_sees_the_target_up_to_its_round_and_itself_from_there(
    window, length, phase
):
    rows, first, past = 7, 5, 12
    starts = round_starts(rows, length, phase)
    keys = mx.zeros((1, 1, past, 2))
    mask = Past(keys, keys, window, first, mx.array(starts)).make_mask(rows)
    assert mask.shape == (rows, past + rows)
    for row in range(rows):
        seen = [p for p in range(past + rows) if mask[row, p].item()]
        # own keys stand behind the target's and are of positions from `first`
        places = [p if p < past else first + p - past for p in seen]
        begin = 0 if window is None else max(0, first + row - window + 1)
        assert places == list(range(begin, first + row + 1))
        assert all(
            (p < past) == (q < first + starts[row])
            for p, q in zip(seen, places, strict=True)
        )


def test_rounds():
    assert round_starts(5, 1) == [0, 1, 2, 3, 4]
    assert round_starts(7, 3) == [0, 0, 0, 3, 3, 3, 6]
    assert round_starts(7, 3, phase=2) == [0, 0, 2, 2, 2, 5, 5]
    with pytest.raises(ValueError, match="phase below"):
        round_starts(5, 2, phase=2)
