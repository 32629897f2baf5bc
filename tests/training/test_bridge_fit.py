"""Fitting a bridge: it learns what it can, nothing else changes, and it goes on exactly.

The subject is a tiny model whose last layers do nothing: what they would have said is
what the first ones said, so the bridge that does nothing either is right every time.
"""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import selfspec
from selfspec.decoding import Bridge, Trace, generate_step
from selfspec.models.blocks import find_stack
from selfspec.training import bridge_fit
from selfspec.training.bridge_fit import FitSettings, Student, agreement, fit
from selfspec.training.bridge_text import write
from selfspec.training.errors import TrainingError
from tests.tiny import save_tiny_model

EXIT = 3
SETTINGS = FitSettings(
    EXIT, steps=100, batch=4, window=64, learning_rate=1e-2, evaluate_every=10
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-fit", seed=3)
    model = selfspec.load(folder).model
    for layer in model.layers[EXIT:]:
        layer.self_attn.o_proj.weight *= 0
        layer.mlp.down_proj.weight *= 0
    model.lm_head.weight *= 30  # of one mind, so that few tokens nearly tie
    mx.eval(model.parameters())
    return find_stack(model)


def prompts(count, first=0):
    rng = np.random.default_rng(first)
    return [rng.integers(1, 250, 8).tolist() for _ in range(count)]


@pytest.fixture(scope="module")
def texts(stack):
    """To learn from, and three held out in which no two tokens nearly tie."""
    read = dict(exit_layer=EXIT, max_tokens=40)
    held_out = write(stack, prompts(16, first=9), **read)

    def least_gap(reading):
        logits = stack.model(mx.array([reading.ids[:-1]]))[0, reading.start - 1 :]
        best = mx.sort(logits, axis=-1)[:, -2:]
        return (best[:, 1] - best[:, 0]).min().item()

    held_out.sort(key=least_gap)
    return write(stack, prompts(24), temperature=0.7, seed=1, **read), held_out[-3:]


def disturbed(stack, kind="layer", noise=0.1):
    """A bridge that is wrong: a layer that does something."""
    rng = np.random.default_rng(7)
    weights = {
        name: w + mx.array(noise * rng.standard_normal(w.shape), w.dtype)
        if name.endswith(("o_proj.weight", "down_proj.weight"))
        else w
        for name, w in Bridge.like(stack, kind).weights.items()
    }
    return Bridge(kind, weights)


def fitted(stack, texts, folder, settings=SETTINGS, **options):
    options = {"begin": disturbed(stack, settings.kind), **options}
    return fit(stack, *texts, settings, folder, **options)


def bits(model):
    return {name: np.array(w) for name, w in tree_flatten(model.parameters())}


@pytest.mark.parametrize("kind", ["layer", "mlp"])
def test_last_layers_that_do_nothing_are_learnt_to_acceptance_one(
    stack, texts, tmp_path, kind
):
    before = bits(stack.model)
    settings = FitSettings(**{**SETTINGS.to_json(), "kind": kind})
    begin = disturbed(stack, kind, noise=0.03 if kind == "layer" else 0.1)
    done = fitted(stack, texts, tmp_path, settings, begin=begin)
    assert done.curve[0]["acceptance"] < 0.95  # or there was nothing to learn
    assert done.best["acceptance"] == 1 and set(done.best["positions"]) == {1.0}
    assert done.curve[-1]["held_out_loss"] < done.curve[0]["held_out_loss"] / 2
    after = bits(stack.model)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    # and the engine accepts what the curve promises
    trace = Trace()
    steps = generate_step(
        texts[1][0].ids[:8],
        stack.model,
        draft=done.draft,
        max_tokens=40,
        trace=trace,
    )
    assert [t for t, *_ in steps] == list(texts[1][0].ids[8:])
    assert trace.acceptance_rate == 1


def test_what_a_pass_promises_is_what_the_engine_accepts(stack, texts):
    """Agreement over a greedy text says every round beforehand."""
    held_out = texts[1]
    for tokens in ((), range(0, 258, 2)):
        student = Student(stack, disturbed(stack), tokens)
        draft = student.draft(EXIT, student.bridge())
        for reading in held_out:
            agreed, _ = agreement(student, reading)
            expected, at = [], 0
            while at + 3 < len(agreed):  # the last round of a text is shorter
                window = [*agreed[at : at + 3], False]
                expected.append(window.index(False))
                at += expected[-1] + 1
            trace = Trace()
            steps = generate_step(
                reading.ids[: reading.start],
                stack.model,
                draft=draft,
                num_draft_tokens=3,
                max_tokens=len(agreed),
                trace=trace,
            )
            assert [t for t, *_ in steps] == list(reading.ids[reading.start :])
            assert trace.accepted_per_round[: len(expected)] == expected


@pytest.mark.parametrize("at", [10, 30])
def test_a_killed_fit_resumes_to_the_same_bridge(stack, texts, tmp_path, at):
    settings = FitSettings(**{**SETTINGS.to_json(), "steps": 40, "learning_rate": 1e-4})
    whole = fitted(stack, texts, tmp_path / "whole", settings)

    def killed(row):
        if row["step"] == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(stack, texts, tmp_path / "parts", settings, told=killed)
    again = fitted(stack, texts, tmp_path / "parts", settings)
    clock = {"seconds"}
    for one, other in zip(whole.curve, again.curve, strict=True):
        assert {k: v for k, v in one.items() if k not in clock} == {
            k: v for k, v in other.items() if k not in clock
        }
    ours, theirs = again.draft.bridge.weights, whole.draft.bridge.weights
    assert ours.keys() == theirs.keys()
    assert all(mx.array_equal(ours[name], theirs[name]) for name in ours)
    with pytest.raises(TrainingError, match="was made with settings.loss kl, not ce"):
        other = FitSettings(**{**settings.to_json(), "loss": "ce"})
        fitted(stack, texts, tmp_path / "parts", other)


def test_it_ends_early_where_nothing_gets_better(stack, texts, tmp_path):
    perfect = Bridge.like(stack)
    settings = FitSettings(**{**SETTINGS.to_json(), "evaluate_every": 2, "patience": 3})
    done = fitted(stack, texts, tmp_path, settings, begin=perfect)
    assert done.steps == 6 and done.best["step"] == 0
    # the bridge of the best look is kept, not the last one
    kept = done.draft.bridge.weights
    assert all(mx.array_equal(kept[n], perfect.weights[n]) for n in kept)


def test_cross_entropy_and_a_shortlist_teach_too(stack, texts, tmp_path):
    settings = FitSettings(**{**SETTINGS.to_json(), "loss": "ce", "steps": 60})
    done = fitted(stack, texts, tmp_path, settings, tokens=range(250))
    assert done.draft.tokens == tuple(range(250))
    assert done.best["agreed"] > done.curve[0]["agreed"] + 0.05


def test_too_little_text_and_a_bad_setting_are_one_line(stack, texts, tmp_path):
    with pytest.raises(TrainingError, match="a batch of 4 needs as many .* Way out"):
        fitted(stack, (texts[0][:1], texts[1]), tmp_path)
    with pytest.raises(TrainingError, match="no text is held out"):
        fitted(stack, (texts[0], []), tmp_path)
    with pytest.raises(ValueError, match="loss must be one of kl, ce"):
        FitSettings(EXIT, loss="mse")
    with pytest.raises(ValueError, match="window must be 1 or more"):
        FitSettings(EXIT, window=0)
    wild = FitSettings(**{**SETTINGS.to_json(), "learning_rate": 1e30, "clip": 1e30})
    with pytest.raises(TrainingError, match="Way out: a lower learning rate"):
        fitted(stack, texts, tmp_path, wild)


def test_a_step_is_timed_and_nothing_is_kept(stack, texts):
    before = bits(stack.model)
    assert bridge_fit.seconds_a_step(stack, texts[0], SETTINGS) > 0
    after = bits(stack.model)
    assert all(np.array_equal(before[name], after[name]) for name in before)
