"""Text for a bridge: the target's own, its streams those of a plain pass, on disk."""

import mlx.core as mx
import numpy as np
import pytest

import selfspec
from selfspec.decoding import generate_step
from selfspec.models.blocks import find_stack
from selfspec.models.tokenizer import around_the_user, render_prompt
from selfspec.training.bridge_data import Shards
from selfspec.training.bridge_score import acceptance_rate, by_position, rounds
from selfspec.training.bridge_text import ask, write
from selfspec.training.errors import TrainingError
from selfspec.training.forward import residual_streams
from tests.tiny import save_tiny_model

PROMPTS = [[5, 6, 7, 8, 9], [3, 4], [11]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-text"))


@pytest.fixture(scope="module")
def stack(loaded):
    return find_stack(loaded.model)


def test_a_batch_writes_what_each_prompt_writes_alone(stack):
    alone = [
        [t for t, *_ in generate_step(p, stack.model, max_tokens=20)] for p in PROMPTS
    ]
    eos = {alone[1][6]}  # ends one of them in the middle
    readings = write(stack, PROMPTS, exit_layer=2, max_tokens=20, eos=eos)
    for prompt, text, reading in zip(PROMPTS, alone, readings, strict=True):
        ends = [i for i, token in enumerate(text) if token in eos]
        text = text[: ends[0] + 1] if ends else text
        assert reading.ids == (*prompt, *text) and reading.start == len(prompt)
        streams = residual_streams(stack, mx.array([reading.ids[:-1]]))
        for kept, layer in ((reading.early, 1), (reading.late, -1)):
            assert kept.shape == (len(reading.ids) - 1, 32)
            assert mx.allclose(kept, streams[layer][0], atol=1e-3).item()


def test_a_window_is_written_one_at_a_time(stack):
    """A ring cannot be padded on the left, so such a model writes text by text."""
    from mlx_lm.models.cache import RotatingKVCache

    stack.model.make_cache = lambda: [RotatingKVCache(64) for _ in stack.layers]
    try:
        ringed = write(stack, PROMPTS, exit_layer=2, max_tokens=12)
    finally:
        del stack.model.make_cache
    plain = write(stack, PROMPTS, exit_layer=2, max_tokens=12)
    assert [r.ids for r in ringed] == [r.ids for r in plain]


def test_what_the_model_asks_itself_stands_in_the_users_place(loaded, stack):
    before, after = around_the_user(loaded.tokenizer)
    assert [*before, *after] == render_prompt(loaded.tokenizer, "")
    asked = ask(stack, [1, 2], [9], count=3, seed=4, eos={257}, max_tokens=10)
    assert len(asked) == 3 and len({tuple(q) for q in asked}) == 3
    assert all(q[:2] == [1, 2] and q[-1] == 9 and len(q) <= 13 for q in asked)
    again = ask(stack, [1, 2], [9], count=3, seed=4, eos={257}, max_tokens=10)
    assert asked == again


def test_shards_go_on_where_they_stopped(stack, tmp_path):
    readings = write(stack, PROMPTS, exit_layer=2, max_tokens=9)
    shards = Shards(tmp_path, {"exit_layer": 2})
    shards.add(readings[:2], seconds=1.5)
    shards.add(readings[2:], seconds=0.5)
    again = Shards(tmp_path, {"exit_layer": 2})
    assert (again.tokens, again.seconds) == (shards.tokens, 2.0)
    assert again.nbytes == sum(path.stat().st_size for path in again.paths) > 0
    assert again.digest() == shards.digest()
    for kept, one in zip(again.readings(), readings, strict=True):
        assert (kept.ids, kept.start) == (one.ids, one.start)
        for half, stream in ((kept.early, one.early), (kept.late, one.late)):
            assert half.dtype == mx.float16
            assert np.allclose(np.array(half), np.array(stream), rtol=2e-3, atol=2e-3)
    with pytest.raises(TrainingError, match="another model, exit or text. Way out"):
        Shards(tmp_path, {"exit_layer": 3})


def test_a_shard_cut_short_is_named(stack, tmp_path):
    path = Shards(tmp_path, {}).add(
        write(stack, PROMPTS, exit_layer=2, max_tokens=4), 1
    )
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(TrainingError, match="shard-0000.safetensors cannot be read"):
        Shards(tmp_path, {})


def test_rounds_of_a_text_are_counted_by_hand():
    agreed = [True, True, False, True, False, False, True, True, True]
    assert rounds(agreed, 2) == [2, 1, 0, 2]  # the last two tokens are no round
    assert acceptance_rate([agreed], 2) == 5 / 8
    assert by_position([agreed], 2) == [3 / 4, 2 / 3]
    assert by_position([[False] * 4], 2) == [0.0]
    assert np.isnan(acceptance_rate([[True]], 2))
