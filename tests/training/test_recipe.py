"""The recipe's formulas in closed form, and choices that are refused."""

import math

import numpy as np
import pytest

from selfspec.training import ARMS, Recipe, Settings, arms
from selfspec.training.curricula import enabled, gradual, rotational
from selfspec.training.dropout import (
    depth_factor,
    draw,
    dropout_rates,
    share_run,
    time_factor,
)
from selfspec.training.exit_loss import exit_scales, exit_weights
from selfspec.training.settings import FLOOR, learning_rate


def test_dropout_rises_from_nothing_to_the_whole_over_depth():
    rates = depth_factor(32)
    assert rates[0] == 0 and rates[-1] == 1
    assert rates[16] == pytest.approx(2 ** (16 / 31) - 1)
    assert 0.2 * sum(rates) / 32 == pytest.approx(0.089, abs=5e-4)  # the paper's mean


def test_the_constant_rate_has_the_same_mean():
    flat, rising = depth_factor(12, "constant"), depth_factor(12)
    assert len(set(flat)) == 1 and sum(flat) == pytest.approx(sum(rising))
    with pytest.raises(ValueError, match="two layers or more, got 1"):
        depth_factor(1)


def test_dropout_grows_with_time_from_scratch_only():
    assert time_factor(3, 9, "constant") == 1
    found = [time_factor(t, 9, "exponential") for t in range(9)]
    assert found[0] == 0 and found[-1] == 1
    assert found[4] == pytest.approx(2**0.5 - 1)
    assert time_factor(0, 1, "exponential") == 0  # one step, and nothing divides by 0


def test_rates_are_the_product_and_nothing_without_dropout():
    recipe = Recipe(max_dropout=0.2, dropout_time="exponential")
    assert dropout_rates(recipe, 5, step=8, steps=9)[-1] == pytest.approx(0.2)
    assert dropout_rates(recipe, 5, step=0, steps=9) == (0,) * 5
    assert dropout_rates(Recipe(), 5, step=8, steps=9) == (0,) * 5


def test_every_sample_is_drawn_by_itself():
    """Chance of a false alarm below 1e-6: 20,000 draws, five standard errors."""
    rng = np.random.default_rng(0)
    kept = draw((0.0, 0.25, 1.0), batch=20_000, rng=rng)
    assert kept[0] is None and len(kept[2]) == 0
    error = math.sqrt(0.25 * 0.75 / 20_000)
    assert abs(len(kept[1]) / 20_000 - 0.75) < 5 * error
    assert share_run(kept, 20_000) == pytest.approx((1 + len(kept[1]) / 20_000) / 3)


def test_exit_scales_are_the_papers():
    assert exit_scales(4, 0.5) == (0, 0.5, 1.5, 3 + 0.5 * 3)
    shares = [exit_weights(exit_scales(32, s), [True] * 32)[-1] for s in (0.1, 0.2, 1)]
    assert shares == pytest.approx([0.135, 0.111, 0.091], abs=6e-4)
    small = exit_weights(exit_scales(8, 1.0), [True] * 8)
    assert small[-1] == pytest.approx(0.33, abs=5e-3) and sum(small) == pytest.approx(1)


def test_the_first_exit_alone_is_refused_and_not_divided_by_zero():
    with pytest.raises(ValueError, match="the first weighs nothing"):
        exit_weights(exit_scales(4, 1.0), [True, False, False, False])


@pytest.mark.parametrize("curriculum", ["rotational", "gradual", "all"])
@pytest.mark.parametrize("rotation", [1, 3, 7, 11, 12])
def test_the_last_exit_is_always_on_and_every_step_weighs(curriculum, rotation):
    recipe = Recipe(early_exit=True, curriculum=curriculum, rotation=rotation)
    for step in range(40):
        flags = enabled(recipe, 12, step=step, steps=40)
        assert len(flags) == 12 and flags[-1]
        assert sum(exit_weights(exit_scales(12, 1.0), flags)) == pytest.approx(1)


def test_rotation_moves_on_by_one_and_comes_round():
    on = [{i for i, f in enumerate(rotational(12, 4, t)) if f} for t in range(5)]
    assert on[0] == {0, 4, 8, 11} and on[1] == {1, 5, 9, 11}
    assert on[4] == on[0]
    assert set.union(*on) == set(range(12))


def test_gradual_comes_from_the_last_down_and_is_whole_by_half_the_time():
    assert gradual(6, 0, 120) == (False,) * 5 + (True,)
    assert gradual(6, 10, 120) == (False,) * 4 + (True,) * 2
    assert gradual(6, 60, 120) == (True,) * 6
    assert gradual(6, 49, 120) == (False,) + (True,) * 5


def test_without_early_exits_only_the_last_is_on():
    assert enabled(Recipe(), 5, step=3, steps=9) == (False,) * 4 + (True,)


@pytest.mark.parametrize(
    "values, says",
    [
        ({"max_dropout": 1.0}, r"max_dropout must be in \[0, 1\), got 1.0"),
        ({"exit_scale": 0.0}, "exit_scale must be above 0"),
        ({"rotation": 0}, "rotation must be 1 or more"),
        ({"distillation": 1.5}, "distillation must be in"),
        ({"distillation": 0.5}, "distillation needs early_exit"),
        ({"curriculum": "magic"}, "curriculum must be one of rotational"),
        ({"dropout_depth": "linear"}, "dropout_depth must be one of"),
        ({"dropout_time": "linear"}, "dropout_time must be one of"),
    ],
)
def test_a_choice_out_of_range_is_named(values, says):
    with pytest.raises(ValueError, match=says):
        Recipe(**values)


def test_a_recipe_survives_json_and_unknown_keys_do_not():
    for recipe in ARMS.values():
        assert Recipe.from_json(recipe.to_json()) == recipe
    with pytest.raises(ValueError, match=r"unknown keys \['p_max'\]"):
        Recipe.from_json({"p_max": 0.1})


def test_the_arms_differ_in_what_their_names_say():
    assert ARMS["baseline"] == Recipe()
    assert not ARMS["ld"].early_exit and not ARMS["ee"].max_dropout
    both = ARMS["ld-ee"]
    assert both.early_exit and both.max_dropout == ARMS["ld"].max_dropout
    assert ARMS["constant-ld"].dropout_depth == "constant"
    assert ARMS["distilled"].distillation and not both.distillation


def test_the_plan_has_six_seeds_of_the_two_and_three_of_the_others():
    jobs = arms.plan()
    assert len(jobs) == len(set(jobs)) == 2 * 6 + 4 * 3
    seeds = {name: sorted(s for n, s in jobs if n == name) for name in ARMS}
    assert seeds["baseline"] == seeds["ld-ee"] == list(range(6))
    assert seeds["distilled"] == [0, 1, 2]
    assert jobs[:2] == [("baseline", 0), ("ld-ee", 0)]  # whose weights are kept
    for end in range(1, len(jobs)):  # stopped anywhere, no arm is a seed behind
        counts = [
            sum(n == name for n, _ in jobs[:end]) for name in ("baseline", "ld-ee")
        ]
        assert abs(counts[0] - counts[1]) <= 1


def test_some_arms_with_some_seeds():
    assert arms.plan(["ld", "ee"], [4, 2]) == [
        ("ld", 4),
        ("ee", 4),
        ("ld", 2),
        ("ee", 2),
    ]


def test_the_rate_rises_straight_and_falls_to_its_floor():
    settings = Settings(steps=100, warmup=10, learning_rate=1.0)
    assert learning_rate(settings, 0) == pytest.approx(0.1)
    assert learning_rate(settings, 9) == learning_rate(settings, 10) == 1
    assert learning_rate(settings, 99) == pytest.approx(FLOOR)
    rates = [learning_rate(settings, t) for t in range(10, 100)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    "values, says",
    [({"steps": 0}, "steps"), ({"seed": -1}, "seed"), ({"clip": 0.0}, "clip")],
)
def test_settings_out_of_range_are_named(values, says):
    with pytest.raises(ValueError, match=f"{says} must be"):
        Settings(**values)
