"""Exits while a model trains: the published pitfalls of public code, each one a test.

The judge of an exit after E layers is a model of E layers with the same weights.
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from selfspec.models import find_stack
from selfspec.training import Recipe, build
from selfspec.training.batches import Sample, collate
from selfspec.training.dropout import leaving_out
from selfspec.training.exit_loss import divergence, exit_scales, exit_weights
from selfspec.training.forward import head_of, residual_streams
from selfspec.training.loop import _loss
from tests.training.conftest import LAYERS, WIDTH

SAMPLES = [Sample((5, 9, 30, 7, 41, 3), 2), Sample((8, 8, 12), 1), Sample((4, 60), 1)]


def shortened(model, vocab_size, layers, tied):
    """A model of the first layers only, built as any other."""
    short = build(vocab_size, layers=layers, width=WIDTH, tied=tied)
    own = dict(tree_flatten(short.parameters()))
    whole = dict(tree_flatten(model.parameters()))
    short.load_weights([(name, whole[name]) for name in own])
    return short


def loss_of(model, samples=SAMPLES, weights=None, kept=None, recipe=None):
    weights = weights or exit_weights(exit_scales(LAYERS, 1.0), [True] * LAYERS)
    kept = kept or (None,) * LAYERS
    stack = find_stack(model)
    return _loss(stack, collate(samples), kept, weights, recipe or Recipe())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("exit_layer", range(1, LAYERS + 1))
def test_exit_e_means_that_e_layers_ran_and_one_norm(
    make_model, task, exit_layer, tied
):
    model = make_model(tied=tied)
    ids = mx.array([[5, 9, 30, 7], [8, 8, 12, 2]])
    stack = find_stack(model)
    stream = residual_streams(stack, ids)[exit_layer - 1]
    logits = head_of(stack)(stream.reshape(-1, WIDTH))
    short = shortened(model, len(task.vocabulary), exit_layer, tied)
    wanted = short(ids).reshape(-1, len(task.vocabulary))
    assert mx.allclose(logits, wanted, atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("curriculum", [[True] * LAYERS, [False] * 3 + [True]])
def test_every_layer_gets_gradient_the_last_too(make_model, tied, curriculum):
    model = make_model(tied=tied)
    weights = exit_weights(exit_scales(LAYERS, 1.0), curriculum)
    step = nn.value_and_grad(model, lambda: loss_of(model, weights=weights)[0])
    _, gradients = step()
    for layer in gradients["model"]["layers"]:
        for name, gradient in tree_flatten(layer):
            assert mx.abs(gradient).max().item() > 0, name
    assert ("lm_head" in gradients) != tied


def test_the_loss_is_the_mean_over_what_is_learnt_padding_apart(make_model, task):
    """By hand: each text alone, no padding, tokens weighing alike at every exit."""
    model = make_model()
    sums, count = np.zeros(LAYERS), 0
    for sample in SAMPLES:
        targets = mx.array(sample.ids[sample.start :])
        for layer in range(LAYERS):
            short = shortened(model, len(task.vocabulary), layer + 1, False)
            logits = short(mx.array([sample.ids]))[0, sample.start - 1 : -1]
            losses = nn.losses.cross_entropy(logits, targets)
            sums[layer] += losses.sum().item()
        count += len(targets)
    weights = exit_weights(exit_scales(LAYERS, 1.0), [True] * LAYERS)
    loss, last = loss_of(model, weights=weights)
    assert loss.item() == pytest.approx(np.dot(weights, sums / count), rel=1e-5)
    assert last.item() == pytest.approx(sums[-1] / count, rel=1e-5)


def test_a_longer_neighbour_changes_no_texts_loss(make_model):
    model = make_model()
    alone = [loss_of(model, [sample])[1].item() for sample in SAMPLES]
    tokens = [len(s.ids) - s.start for s in SAMPLES]
    together = loss_of(model)[1].item()
    assert together == pytest.approx(np.average(alone, weights=tokens), rel=1e-5)


def test_a_dropped_sample_leaves_the_batch_and_the_others_are_as_alone(make_model):
    model = make_model()
    stack = find_stack(model)
    ids = mx.array([[5, 9, 30], [8, 8, 12], [4, 60, 2]])
    kept = (None, np.array([0, 2]), np.array([], int), np.array([1]))
    streams = residual_streams(stack, ids, kept)
    for row in range(3):
        runs = [k is None or row in k for k in kept]
        own = [None if r else np.array([], int) for r in runs]
        alone = residual_streams(stack, ids[row : row + 1], own)
        for stream, wanted in zip(streams, alone, strict=True):
            assert mx.allclose(stream[row], wanted[0], atol=1e-5)
    assert mx.array_equal(streams[2], streams[1])  # nobody ran it


def test_a_dropped_layer_is_not_run_and_gets_no_gradient(make_model):
    model = make_model()
    kept = (None, None, np.array([], int), None)
    step = nn.value_and_grad(model, lambda: loss_of(model, kept=kept)[0])
    layers = step()[1]["model"]["layers"]
    most = [max(mx.abs(g).max().item() for _, g in tree_flatten(one)) for one in layers]
    assert most[2] == 0 and min(most[0], most[1], most[3]) > 0


def test_masks_are_chosen_with_their_samples():
    """A mask a sample follows its sample; one for all of them stays whole."""
    seen = {}

    class Layer(nn.Module):
        def __call__(self, x, mask=None, shared=None):
            seen.update(mask=mask, shared=shared)
            return x + 1

    x, mask = mx.zeros((3, 2, 4)), mx.arange(12).reshape(3, 1, 2, 2)
    out = leaving_out(Layer(), np.array([0, 2]))(x, mask=mask, shared=mx.ones((2, 2)))
    assert seen["mask"].tolist() == mask[mx.array([0, 2])].tolist()
    assert seen["shared"].shape == (2, 2)
    assert out[:, 0, 0].tolist() == [1, 0, 1]


def test_distillation_teaches_the_exit_and_not_the_last_layer():
    teacher, logits = mx.array([[2.0, 0.0, -1.0]]), mx.array([[0.0, 0.5, 1.0]])
    p = mx.softmax(teacher, axis=-1)
    wanted = (p * (mx.log(p) - mx.log(mx.softmax(logits, axis=-1)))).sum().item()
    assert divergence(teacher, logits).item() == pytest.approx(wanted, rel=1e-5)
    assert divergence(teacher, teacher).item() == pytest.approx(0, abs=1e-6)
    of_both = mx.grad(divergence, argnums=(0, 1))(teacher, logits)
    assert mx.abs(of_both[0]).max().item() == 0
    assert mx.abs(of_both[1]).max().item() > 0


def test_distilling_is_a_share_of_an_earlier_exits_loss(make_model):
    model = make_model()
    plain, whole, half = (
        loss_of(
            model, recipe=Recipe(early_exit=True, max_dropout=0, distillation=share)
        )[0].item()
        for share in (0.0, 1.0, 0.5)
    )
    assert half == pytest.approx((plain + whole) / 2, rel=1e-5) and plain != whole


def test_half_precision_logits_are_read_in_float32():
    logits = mx.array([[40000.0, 39990.0]]).astype(mx.bfloat16)
    from selfspec.training.exit_loss import cross_entropy

    assert cross_entropy(logits, mx.array([0])).dtype == mx.float32
