"""The loop: exact resume, refusals, what it notes, and a model that is left as it was."""

import csv
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from selfspec.models import find_stack
from selfspec.training import ARMS, Sample, TrainingError, train
from selfspec.training.loop import COLUMNS, LOSSES, draws

RECIPE = replace(ARMS["ld-ee"], dropout_time="constant", max_dropout=0.6, rotation=2)


class Stopped(Exception):
    """Somebody pulled the plug."""


def stop_after(count):
    def progress(step, steps, loss):
        if step == count:
            raise Stopped

    return progress


def weights(model):
    return dict(tree_flatten(model.parameters()))


def same(one, other):
    return all(mx.array_equal(one[name], other[name]).item() for name in one)


@pytest.mark.parametrize("stops", [[1], [2], [3], [5], [1, 3, 4]])
def test_a_stopped_training_ends_with_the_very_weights(
    make_model, samples, settings, tmp_path, stops
):
    whole = make_model()
    train(whole, RECIPE, samples, settings, tmp_path / "whole")
    for stop in stops:
        with pytest.raises(Stopped):
            train(
                make_model(),
                RECIPE,
                samples,
                settings,
                tmp_path / "parts",
                progress=stop_after(stop),
            )
    resumed = make_model(seed=99)  # whatever it was, the checkpoint says what it is
    if max(stops) < 3:
        resumed = make_model()  # there is no checkpoint yet
    result = train(resumed, RECIPE, samples, settings, tmp_path / "parts")
    assert same(weights(whole), weights(resumed))
    losses = [
        [line["loss"] for line in csv.DictReader(open(tmp_path / place / LOSSES))]
        for place in ("whole", "parts")
    ]
    assert losses[0] == losses[1] and result.steps == len(losses[0]) == 6


def test_a_finished_training_is_only_read_again(
    make_model, samples, settings, tmp_path
):
    model, again = make_model(), make_model(seed=5)
    first = train(model, RECIPE, samples, settings, tmp_path)
    second = train(
        again, RECIPE, samples, settings, tmp_path, progress=stop_after(1)
    )  # no step is made, so nobody is told of one
    assert same(weights(model), weights(again))
    assert (second.steps, second.loss) == (first.steps, first.loss)


@pytest.mark.parametrize(
    "change",
    [
        dict(recipe=ARMS["baseline"]),
        dict(settings=dict(learning_rate=3e-3)),
        dict(settings=dict(seed=1)),
        dict(samples=slice(0, 20)),
        dict(model=dict(layers=3)),
        dict(about={"task": "another"}),
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_checkpoint_of_another_configuration_is_refused(
    make_model, samples, settings, tmp_path, change
):
    train(make_model(), RECIPE, samples, settings, tmp_path)
    with pytest.raises(TrainingError, match="was made with .*, not .*Way out"):
        train(
            make_model(**change.get("model", {})),
            change.get("recipe", RECIPE),
            samples[change.get("samples", slice(None))],
            replace(settings, **change.get("settings", {})),
            tmp_path,
            about=change.get("about"),
        )


def test_a_broken_checkpoint_is_named(make_model, samples, settings, tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(TrainingError, match="cannot be read .*Way out: delete it"):
        train(make_model(), RECIPE, samples, settings, tmp_path)


def test_a_disk_that_takes_nothing_is_one_line(
    make_model, samples, settings, tmp_path, monkeypatch
):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mx, "save_safetensors", full)
    with pytest.raises(TrainingError, match="No space left.*Way out: free some"):
        train(make_model(), RECIPE, samples, settings, tmp_path)
    assert not list(tmp_path.glob(".*tmp*"))


def test_a_loss_that_is_no_number_ends_it(make_model, samples, settings, tmp_path):
    model = make_model()
    model.lm_head.weight = model.lm_head.weight * float("nan")
    with pytest.raises(TrainingError, match="loss is nan at step 1.*Way out"):
        train(model, RECIPE, samples, settings, tmp_path)


def test_dropout_is_off_in_evaluation_and_after_the_training(
    make_model, samples, settings, tmp_path
):
    model, ids = make_model(), mx.array([[3, 1, 4, 1, 5]])
    seen = []

    def visit(step):
        assert not model.training
        seen.append(all(mx.array_equal(model(ids), model(ids)) for _ in range(3)))

    train(model, RECIPE, samples, settings, tmp_path, visit=visit, visits={2, 6})
    assert seen == [True, True] and not model.training
    plain = make_model()
    plain.load_weights(list(weights(model).items()))
    assert mx.array_equal(model(ids), plain(ids))


def test_draws_are_a_function_of_seed_and_step(make_model, settings):
    stack = find_stack(make_model())

    def at(step, seed=0):
        kept = draws(RECIPE, stack, replace(settings, seed=seed), step)
        return [None if k is None else k.tolist() for k in kept]

    assert at(3) == at(3)
    assert len({str(at(step)) for step in range(8)}) > 1
    assert [at(s) for s in range(8)] != [at(s, seed=1) for s in range(8)]
    assert draws(ARMS["ee"], stack, settings, 3) == (None,) * stack.num_layers


def test_what_was_dropped_and_asked_is_noted(make_model, samples, settings, tmp_path):
    result = train(make_model(), RECIPE, samples, settings, tmp_path)
    lines = list(csv.DictReader(open(result.losses)))
    assert tuple(lines[0]) == COLUMNS
    assert [int(line["step"]) for line in lines] == [1, 2, 3, 4, 5, 6]
    assert {int(line["exits"]) for line in lines} <= {2, 3}  # of 4, every second
    shares = [float(line["layers_run"]) for line in lines]
    assert 0 < np.mean(shares) < 1
    assert result.layers_run == pytest.approx(np.mean(shares), rel=1e-5)
    assert all(int(line["tokens"]) > 0 for line in lines)


@pytest.mark.parametrize("arm", sorted(ARMS))
def test_every_arm_learns_and_its_exits_with_it(arm, make_model, settings, tmp_path):
    """A single text over and over: the loss falls to less than half."""
    samples = [Sample(tuple(range(10, 22)), 1)] * 4
    settings = replace(settings, steps=40, warmup=5, learning_rate=1e-2)
    result = train(make_model(), ARMS[arm], samples, settings, tmp_path)
    lines = list(csv.DictReader(open(result.losses)))
    first, last = (float(lines[i]["last_exit"]) for i in (0, -1))
    assert last < first / 2
    assert float(lines[0]["loss"]) > 0


def test_equal_data_for_every_arm(make_model, samples, settings, tmp_path):
    """Tokens a step are the data's own: the same whatever the recipe draws."""
    found = []
    for arm in ("baseline", "ld-ee", "constant-ld"):
        out = train(make_model(), ARMS[arm], samples, settings, tmp_path / arm)
        found.append([line["tokens"] for line in csv.DictReader(open(out.losses))])
    assert found[0] == found[1] == found[2]
