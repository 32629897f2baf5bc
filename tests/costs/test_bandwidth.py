"""Weights read are those of the blocks that run; a copy moves what it says."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import selfspec
from selfspec import costs
from selfspec.costs import bandwidth
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from tests.costs.synthetic import LAYERS, VOCAB
from tests.tiny import save_tiny_model

DIM = 32
HEAD = VOCAB * DIM * 4  # bytes, float32
TABLE = HEAD
NORM = DIM * 4


def bytes_of(module):
    return sum(a.nbytes for _, a in tree_flatten(module.parameters()))


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("m") / "tied"
    return selfspec.load(save_tiny_model(folder, tie_word_embeddings=True)).model


def test_a_table_that_is_only_looked_up_is_not_read(tiny):
    assert costs.weights_per_step(tiny) == bytes_of(tiny) - TABLE


def test_a_table_that_is_the_head_too_is_read_once(tied):
    assert costs.weights_per_step(tied) == bytes_of(tied)
    half = ShortlistDraft(SkipDraft(), tuple(range(VOCAB // 2)))
    assert costs.weights_per_step(tied, half) == bytes_of(tied) - HEAD // 2


def test_a_draft_reads_the_blocks_it_runs_and_the_head(tiny):
    whole, layer = costs.weights_per_step(tiny), bytes_of(tiny.layers[0])
    skip = SkipDraft(attention={1, 2}, mlp={2})
    left = bytes_of(tiny.layers[1].self_attn) + layer  # layer 2 not at all
    assert costs.weights_per_step(tiny, skip) == whole - left
    assert costs.weights_per_step(tiny, ExitDraft(2)) == HEAD + NORM + 2 * layer


def test_shares_are_of_a_plain_step(tiny):
    whole = costs.weights_per_step(tiny)
    shares = costs.weight_shares(tiny, ExitDraft(4))
    assert shares.cost_ratio == costs.weights_per_step(tiny, ExitDraft(4)) / whole
    assert shares.kept == pytest.approx(4 * bytes_of(tiny.layers[0]) / whole)
    assert costs.weight_shares(tiny, SkipDraft()).cost_ratio == 1
    assert costs.weight_shares(tiny, SkipDraft.middle(LAYERS, 0.5)).kept == 0
    assert costs.weight_shares(tiny, LookupDraft()) == costs.WeightShares(0.0, 0.0)


def test_of_a_mixture_of_experts_nobody_knows_what_is_read(tmp_path):
    model = selfspec.load(save_tiny_model(tmp_path / "tiny")).model
    model.layers[1].mlp.gate_proj.weight = mx.zeros((4, 64, DIM))
    assert costs.weights_per_step(model) is None
    assert costs.weight_shares(model, ExitDraft(2)) is None


def test_a_draft_of_another_model_is_refused(tiny):
    with pytest.raises(ValueError, match="Way out"):
        costs.weights_per_step(tiny, ExitDraft(LAYERS))


@pytest.mark.parametrize("streams", [1, 2])
def test_the_fastest_copy_counts_read_and_written(monkeypatch, streams):
    """Copies of 2, 0.5 and 4 seconds, after one of 9 that allocates."""
    times = iter([0, 9, 0, 2, 0, 0.5, 0, 4])
    monkeypatch.setattr(bandwidth.time, "perf_counter", lambda: next(times))
    found = costs.copy_ceiling(8000, streams=streams, repeats=3)
    assert found == 2 * 8000 / 0.5


def test_a_step_over_one_linear_layer_is_no_model():
    with pytest.raises(selfspec.ModelError):
        costs.weights_per_step(nn.Linear(4, 4))
