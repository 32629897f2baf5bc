"""Figures draw what the table says, and say it in words."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from selfspec.study import figures, reference, sweep_page, sweep_rows, sweep_summary


@pytest.fixture
def table():
    lines = [
        dict(
            mechanism="two caches",
            skip_fraction=fraction,
            num_draft_tokens=length,
            speedup=0.9 - fraction - 0.05 * length,
            low=0.85 - fraction - 0.05 * length,
            high=0.95 - fraction - 0.05 * length,
            verdict="slower",
            predicted_speedup=0.88 - fraction - 0.05 * length,
            speedup_without_loops=0.8,
            acceptance_rate=0.7 - fraction,
            first_token_acceptance=0.75 - fraction,
            tokens_per_round=1.5,
            cost_ratio=1 - fraction,
            verify_ratio=1.2,
            repeated_ngram_share=0.1,
            lossless=8,
            ties=0,
            pairs=8,
            prompts=8,
            peak_memory_ratio=1.01,
        )
        for fraction in (0.1, 0.5)
        for length in (2, 5)
    ]
    return pd.DataFrame(lines)


@pytest.fixture
def post():
    return reference.post(reference.find_root())


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_speedup_draws_every_point_interval_break_even_and_the_post(table, post):
    figure = figures.speedup(table, post)
    [ax] = figure.axes
    drawn = {round(float(y), 6) for line in ax.lines for y in line.get_ydata()}
    assert {round(y, 6) for y in table["speedup"]} <= drawn
    assert {round(y, 6) for y in table["predicted_speedup"]} <= drawn
    spans = {
        (round(float(low), 6), round(float(high), 6))
        for collection in ax.collections[:-1]
        for (_, low), (_, high) in collection.get_segments()
    }
    assert spans == {
        (round(a, 6), round(b, 6)) for a, b in zip(table.low, table.high, strict=True)
    }
    marks = ax.collections[-1].get_offsets()
    assert sorted(marks[:, 1]) == pytest.approx(sorted(post["speedup"]))
    assert any(list(line.get_ydata()) == [1, 1] for line in ax.lines)


def test_a_table_without_intervals_is_drawn_too(table):
    figures.speedup(table.assign(low=float("nan"), high=float("nan")))


def test_plane_has_each_configuration_once(table, post):
    figure = figures.plane(table, post)
    points = {
        (round(float(x), 6), round(float(y), 6))
        for collection in figure.axes[0].collections
        for x, y in np.asarray(collection.get_offsets())
    }
    for line in table.itertuples():
        assert (round(line.cost_ratio, 6), round(line.acceptance_rate, 6)) in points


def test_two_mechanisms_get_two_panels(table):
    both = pd.concat([table, table.assign(mechanism="one cache")])
    assert len(figures.speedup(both).axes) == 2
    assert len(figures.acceptance(both).axes) == 2


def test_words_hold_the_data(table):
    words = figures.describe_speedup(table)
    assert "0.70" in words and "0 of 4" in words
    assert "20% to 20% at 50% skipped" in figures.describe_acceptance(table)
    assert "0 of 4 configurations lie above it" in figures.describe_plane(table)


def test_show_carries_the_words_and_reproducible_svg(table, capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, **kwargs: shown.append((data, kwargs))
    )
    figures.style()
    for _ in range(2):
        figures.show(
            figures.plane(table),
            name="plane",
            alt="what it shows",
            caption="c",
            csv="d",
        )
    (data, kwargs), (again, _) = shown
    assert kwargs["metadata"]["selfspec"]["alt"] == "what it shows"
    assert data["image/svg+xml"].lstrip().startswith("<?xml")
    assert "<dc:date>" not in data["image/svg+xml"]
    assert data["image/svg+xml"] == again["image/svg+xml"]


def test_sentences_say_what_the_table_says(table):
    speed = sweep_page.sentence_on_speed(table)
    assert "of 4 configurations: 4 slower" in speed
    assert "0.70 (0.65 to 0.75) at 10% skipped and 2 draft tokens" in speed
    assert "No configuration lies above" in sweep_page.sentence_on_plane(table)
    winning = table.assign(acceptance_rate=1.0, cost_ratio=0.5)
    assert "4 of 4" in sweep_page.sentence_on_plane(winning)
    error = sweep_page.sentence_on_prediction(table)
    assert "in the median" in error
    calm = table.assign(speedup_without_loops=float("nan"))
    assert "no such prompt is left" in sweep_page.sentence_on_loops(calm)


def test_the_mechanism_is_put_in_numbers_or_its_absence_in_words():
    comparison = pd.DataFrame(
        [
            dict(
                skip_fraction=0.1,
                num_draft_tokens=2,
                decode=1.2,
                decode_low=1.1,
                decode_high=1.3,
                first_token=1.9,
                first_token_low=float("nan"),
                first_token_high=float("nan"),
            )
        ]
    )
    shown = sweep_page.mechanisms_readable(comparison)
    assert list(shown.iloc[0]) == ["10%", 2, "1.20 (1.10 to 1.30)", "1.90"]
    assert "1.20 times as fast" in sweep_page.sentence_on_mechanisms(comparison, {})
    nothing, why = pd.DataFrame(), {"two caches": "drafts wrong"}
    assert "left out" in sweep_page.sentence_on_mechanisms(nothing, why)
    # nothing to compare is no proof that the architecture drafts wrong
    assert "timed no prompt with both" in sweep_page.sentence_on_mechanisms(nothing, {})


@pytest.mark.parametrize("draw", [figures.speedup, figures.acceptance])
def test_the_posts_marks_stand_in_the_panel_of_its_mechanism(table, post, draw):
    others = table.assign(mechanism="one cache")
    figure = draw(pd.concat([others, table]), post)
    marked = [
        ax.get_title()
        for ax in figure.axes
        if "the post, on an M3" in [c.get_label() for c in ax.collections]
    ]
    plt.close(figure)
    assert marked == ["two caches"]
    alone = draw(others, post)  # where its mechanism was refused
    assert alone.axes[0].collections
    plt.close(alone)


def test_the_posts_mechanism_comes_first():
    rows = pd.DataFrame(
        [
            dict.fromkeys(sweep_rows.COLUMNS, 1)
            | {"mechanism": mechanism, "lossless": "equal"}
            for mechanism in ("one cache", "two caches")
        ]
    )
    order = sweep_summary.summarise(rows)["mechanism"]
    assert list(order) == ["two caches", "one cache"]


def test_the_post_implies_what_the_identity_says(post):
    """Best 0.80x: about 1.2 steps beyond drafting; worst 0.22x: about 3."""
    implied = post.set_index("speedup")["round_remainder"]
    assert implied[0.80] == pytest.approx(1.15, abs=0.05)
    assert implied[0.22] == pytest.approx(3.15, abs=0.1)
    shown = sweep_page.post_implied(post)
    assert list(shown["configuration"]) == ["inferred", "inferred", "published"]


def test_readable_keeps_every_configuration(table):
    shown = sweep_page.readable(table)
    assert len(shown) == len(table)
    assert shown["95 % interval"].iloc[0] == "0.65 to 0.75"
    drafts = sweep_page.readable(table, sweep_page.DRAFTS)
    assert drafts["acceptance rate"].iloc[0] == "60%"
