"""Folders of trained weights: half precision on disk, float32 in use, hub's layout."""

import json

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import selfspec
from selfspec.models import render_prompt
from selfspec.training import TrainingError, load_small, save_small
from selfspec.training.weights import rounded, task_tokenizer, trained_as


@pytest.fixture
def folder(make_model, task, tmp_path):
    about = {"arm": "ld-ee", "seed": 0}
    return save_small(make_model(), task_tokenizer(task), tmp_path / "small", about)


@pytest.mark.parametrize("tied", [False, True])
def test_what_is_read_back_is_the_rounded_model(make_model, task, tmp_path, tied):
    model = make_model(tied=tied)
    folder = save_small(model, task_tokenizer(task), tmp_path, {})
    read, ids = load_small(folder).model, mx.array([[3, 1, 4]])
    wanted = dict(tree_flatten(rounded(model).parameters()))
    found = dict(tree_flatten(read.parameters()))
    assert set(wanted) == set(found)
    assert all(found[name].dtype == mx.float32 for name in found)
    assert all(mx.array_equal(found[name], wanted[name]) for name in found)
    assert mx.array_equal(read(ids), model(ids))


def test_a_folder_is_half_as_large_and_says_how_it_was_trained(folder):
    saved = mx.load(str(folder / "model.safetensors"))
    assert {array.dtype for array in saved.values()} == {mx.float16}
    assert trained_as(folder) == {"arm": "ld-ee", "seed": 0}
    assert trained_as(folder.parent) == {}


def test_the_library_loads_the_folder_and_asks_the_task(folder, task):
    loaded = selfspec.load(folder)
    example = task.test[0]
    ids = render_prompt(loaded.tokenizer, example.utterance)
    assert ids == task.prompt(example.utterance)
    assert set(loaded.tokenizer.eos_token_ids) == {task.end}
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"


def test_full_precision_is_kept_where_it_is_asked_for(make_model, task, tmp_path):
    model = make_model()
    save_small(model, task_tokenizer(task), tmp_path, {}, half=False)
    saved = mx.load(str(tmp_path / "model.safetensors"))
    assert {array.dtype for array in saved.values()} == {mx.float32}


def test_weights_that_cannot_be_written_so_are_refused(make_model, task, tmp_path):
    model = make_model(width=64)
    nn.quantize(model, group_size=32, bits=4)
    with pytest.raises(TrainingError, match="quantised weights.*Way out"):
        save_small(model, task_tokenizer(task), tmp_path, {})
    with pytest.raises(TrainingError, match="configuration is not at hand.*Way out"):
        save_small(nn.Linear(2, 2), task_tokenizer(task), tmp_path, {})


def test_a_seed_makes_the_same_model_and_its_stream_begins_at_unit_size(make_model):
    one, again, other = make_model(0), make_model(0), make_model(1)
    pairs = [dict(tree_flatten(model.parameters())) for model in (one, again, other)]
    name = "model.layers.1.mlp.down_proj.weight"
    assert mx.array_equal(pairs[0][name], pairs[1][name])
    assert not mx.array_equal(pairs[0][name], pairs[2][name])
    size = mx.sqrt((one.model.embed_tokens.weight**2).mean()).item()
    assert size == pytest.approx(1, abs=0.05)
