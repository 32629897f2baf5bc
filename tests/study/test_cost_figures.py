"""Figures of costs draw what they are given, and their words say the same."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from selfspec.costs import required_acceptance
from selfspec.study import cost_figures, draft_summary, machine_page, reference
from tests.costs.synthetic import profile
from tests.study.drafts import rows
from tests.study.machine_run import facts


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def apple():
    return reference.apple_curves(reference.find_root())


def test_verify_draws_this_machine_and_the_published_curves_thinner(apple):
    curves = machine_page.verify_curves(facts())
    figure = cost_figures.verify(curves, 1, apple)
    [ax] = figure.axes
    lines = {line.get_label(): line for line in ax.lines}
    used = lines["1 thread (used)"]
    assert list(used.get_ydata()) == [curves[1][m] for m in range(1, 17)]
    assert "2 threads" in lines
    for curve in apple:
        theirs = lines[f"{curve.name} [{curve.source}]"]
        assert set(curve.verify_ratio.values()) <= set(theirs.get_ydata())
        assert theirs.get_linewidth() < used.get_linewidth()
    words = cost_figures.describe_verify(curves, 1, apple)
    assert f"v(4) = {curves[1][4]:.2f}" in words and f"{len(apple)} published" in words
    assert "M5 Max" in words
    assert "grey" not in cost_figures.describe_verify(curves, 1, [])


def test_a_gpu_has_no_threads():
    assert cost_figures.threads_in_words(0, 0) == "this machine"


def test_the_bars_of_a_step_add_up_to_it():
    parts = machine_page.step_parts(profile())
    figure = cost_figures.step_parts(parts)
    tops: dict[float, float] = {}
    for bar in figure.axes[0].patches:
        top = bar.get_y() + bar.get_height()
        tops[bar.get_x()] = max(top, tops.get(bar.get_x(), 0.0))
    assert sorted(tops.values()) == pytest.approx(
        sorted(1000 * parts.sum(axis=1).to_numpy())
    )
    words = cost_figures.describe_step_parts(parts)
    whole = parts.loc[128].sum()
    assert f"after 128 tokens {1000 * whole:.1f} milliseconds" in words
    assert f"head {parts.loc[128, 'head'] / whole:.0%}" in words


def test_the_map_holds_what_the_identity_requires():
    verify = {m: profile().verify_ratio(m) for m in range(1, 17)}
    needed = cost_figures.required(verify, 0.01)
    for length, cost in ((1, 0.0), (2, 0.5), (4, 0.3)):
        assert needed.loc[length, cost] == required_acceptance(
            1.0,
            num_draft_tokens=length,
            cost_ratio=cost,
            verify_ratio=verify,
            overhead_ratio=0.01,
        )
    assert math.isinf(needed.loc[8, 1.0])
    figure = cost_figures.break_even(needed)
    [image] = figure.axes[0].images
    assert image.get_array().mask.sum() == np.isinf(needed.to_numpy()).sum()
    words = cost_figures.describe_break_even(needed)
    assert f"{needed.loc[1, 0.0]:.2f} at c = 0" in words
    assert "beyond which none is enough" in words
    hopeless = cost_figures.required({2: 9.0, 9: 20.0}, 0.0)
    text = cost_figures.describe_break_even(hopeless)
    assert "1 draft tokens never break even" in text


def test_the_scatter_has_both_predictions_and_the_line_of_equality():
    table = draft_summary.summarise(
        pd.concat([rows(length=2), rows("lookup", length=4, predicted_speedup=1.5)])
    )
    figure = cost_figures.predicted(table)
    for ax, column in zip(
        figure.axes, ("predicted_speedup", "predicted_held_out"), strict=True
    ):
        drawn = {
            tuple(np.round(point, 6))
            for mark in ax.collections
            if mark.get_label() in ("skip, one cache", "lookup")
            for point in np.asarray(mark.get_offsets())
        }
        expected = zip(table["speedup"], table[column], strict=True)
        assert drawn == {tuple(np.round(point, 6)) for point in expected}
        line = ax.lines[0]
        assert list(line.get_xdata()) == list(line.get_ydata())
    words = cost_figures.describe_predicted(table)
    assert "2 configurations" in words and "the largest 49%, and 1 lie within" in words
