"""Batches: what is a row and a target, and an order that needs no memory."""

import numpy as np
import pytest

from selfspec.training import Sample
from selfspec.training.batches import Order, collate


def test_a_row_predicts_the_token_after_it_and_padding_predicts_nothing():
    batch = collate([Sample((5, 6, 7, 8), start=2), Sample((9, 3), start=1)])
    assert batch.ids.tolist() == [[5, 6, 7, 8], [9, 3, 0, 0]]
    assert batch.rows.tolist() == [1, 2, 4]
    assert batch.targets.tolist() == [7, 8, 3]
    flat = batch.ids.ravel()
    assert flat[batch.rows + 1].tolist() == batch.targets.tolist()


@pytest.mark.parametrize("start", [0, 3, -1])
def test_a_sample_without_something_to_learn_is_refused(start):
    with pytest.raises(ValueError, match="start must be from 1 to 2"):
        Sample((1, 2, 3), start=start)


def test_an_epoch_sees_every_sample_once_and_the_next_in_another_order():
    order = Order(list(range(40)), batch=4, seed=0)
    epochs = [np.concatenate([order.at(10 * e + i) for i in range(10)]) for e in (0, 1)]
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_the_order_is_a_function_of_seed_and_step_alone():
    lengths = [7, 3, 9, 9, 2, 4, 5, 6]
    first = [Order(lengths, batch=2, seed=1).at(step).tolist() for step in range(9)]
    again = Order(lengths, batch=2, seed=1)
    assert [again.at(step).tolist() for step in reversed(range(9))] == first[::-1]
    other = Order(lengths, batch=2, seed=2)
    assert [other.at(step).tolist() for step in range(9)] != first


def test_samples_of_about_one_length_go_together():
    lengths = np.random.default_rng(0).integers(5, 60, 320)
    order = Order(lengths, batch=16, seed=0)
    spread = [np.ptp(lengths[order.at(step)]) for step in range(20)]
    assert np.mean(spread) < 0.5 * np.ptp(lengths)


def test_fewer_samples_than_a_batch_are_refused():
    with pytest.raises(ValueError, match="a batch of 4 needs as many samples, got 3"):
        Order([1, 2, 3], batch=4, seed=0)
