"""What `load` said of a model is known of that object, and of no other."""

import copy
import gc

import mlx.nn as nn
import pytest

import selfspec
from selfspec.models import source_of
from selfspec.models.blocks import find_stack
from selfspec.models.remembered import Remembered
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("source") / "tiny")


def test_a_loaded_model_has_the_source_it_was_loaded_with(folder):
    first, second = selfspec.load(folder), selfspec.load(folder)
    assert source_of(first.model) is first.source
    assert source_of(second.model) is second.source


def test_copies_and_parts_of_it_have_none(folder):
    """A shallow copy shares the weights; with fewer layers it costs something else."""
    model = selfspec.load(folder).model
    shorter = find_stack(model).with_layers(model.layers[:3])
    assert source_of(shorter) is None
    assert source_of(copy.copy(model)) is None
    assert source_of(model.layers[0]) is None


def test_a_model_that_was_changed_has_none_any_more(folder):
    model = selfspec.load(folder).model
    nn.quantize(model, group_size=32, bits=4)
    assert source_of(model) is None


def test_equal_things_are_told_apart_and_let_go():
    notes = Remembered()
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    notes[one] = "one"
    assert notes.get(one) == "one"
    assert notes.get(other) is None
    assert notes.setdefault(other, list) == []
    notes.setdefault(other, list).append(1)
    assert notes.get(other) == [1]
    del one
    gc.collect()
    assert len(notes) == 1
