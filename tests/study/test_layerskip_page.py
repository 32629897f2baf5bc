"""The page of exits: what it says, with everything measured and with parts missing."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from selfspec.study import (
    draft_summary,
    layerskip_figures,
    layerskip_page,
    layerskip_summary,
    reference,
)
from tests.study import exits


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rows():
    return exits.rows()


@pytest.fixture(scope="module")
def table(rows):
    return draft_summary.summarise(rows)


def test_layers_come_without_a_clock():
    shown = layerskip_page.layer_table(exits.facts()).set_index(
        ["draft", "draft tokens"]
    )
    line = shown.loc["exit 2", 4]
    assert line["layer evaluations per token"] == "4.00"
    assert line["layers of a step / these"] == "2.00"
    assert line["lossless"] == "20 of 20" and line["exact match"] == "80%"
    said = layerskip_page.sentence_on_layers(exits.facts())
    assert "exit 2 with 4 draft tokens runs 4.0" in said
    assert "runs 8 layers for a token" in said and "all 20 texts" in said
    assert "small model" not in said  # its layers are another model's


def test_the_table_says_sampled_texts_are_not_compared(table):
    shown = layerskip_page.speed_table(table)
    sampled = shown[shown["temperature"] == "0.6"]
    assert sampled["lossless"].tolist() == ["-"]
    assert shown[shown["temperature"] == "0"]["lossless"].iloc[0] == "6 of 6"


@pytest.mark.parametrize(
    "low, high, place",
    [(2.01, 2.2, "lies wholly above 2"), (1.9, 2.1, "covers 2"), (1, 1.9, "below 2")],
)
def test_the_best_is_set_beside_the_goal(table, low, high, place):
    best = table["draft"].eq("exit 2") & table["num_draft_tokens"].eq(4)
    best &= table["temperature"].eq(0)
    changed = table.copy()
    changed.loc[best, ["low", "high"]] = low, high
    said = layerskip_page.sentence_on_best(changed)
    assert "exit 2 with 4 draft tokens" in said and place in said
    changed.loc[best, ["low", "high"]] = np.nan
    assert "Too few prompts" in layerskip_page.sentence_on_best(changed)


def test_what_stands_beside_the_grid(rows, table):
    facts = exits.facts()
    reuse = layerskip_summary.reuse(rows)
    said = layerskip_page.sentence_on_reuse(reuse)
    assert "0.95 to 1.07" in said and "in 1 of 2 cases" in said
    assert layerskip_page.reuse_table(reuse)["keeping them is"].tolist() == [
        "faster",
        "slower",
    ]
    said = layerskip_page.sentence_on_sampled(table)
    assert "temperature 0.6" in said and "Greedily the same draft has S = 2.0" in said
    assert 'num_draft_tokens="auto", S = 1.6' in layerskip_page.sentence_on_rule(table)
    assert "not more than the best" in layerskip_page.sentence_on_dynamic(table)
    small = layerskip_page.sentence_on_small(table, facts)
    assert "c = 0.30" in small and "1.25 times" in small and "1.01 times" in small
    knapsack = layerskip_page.sentence_on_knapsack(table, facts)
    assert "save what exit 2 saves" in knapsack and "80% of the time" in knapsack
    assert "12 of 16 blocks" in knapsack and "a plain exit" in knapsack
    other = {**facts["knapsack"], "is_prefix": False, "kept_after": 3}
    said = layerskip_page.sentence_on_knapsack(table, {**facts, "knapsack": other})
    assert "3 blocks after them: no plain exit" in said


def test_what_was_not_measured_is_said(table):
    """A stock model has no small brother, a smoke run samples nothing."""
    facts = exits.facts(trained=False, small_model=None, knapsack=None, dispatch=None)
    few = table[table["draft"].isin(["exit 2", "exit 4"])]
    few = few[(few["temperature"] == 0) & (few["num_draft_tokens"] != "auto")]
    assert "no one right answer" not in layerskip_page.sentence_on_exits(facts)
    assert "one right answer" in layerskip_page.sentence_on_subject(facts)
    assert "Nothing was sampled" in layerskip_page.sentence_on_sampled(few)
    assert "was not timed" in layerskip_page.sentence_on_rule(few)
    assert "No exit was chosen" in layerskip_page.sentence_on_dynamic(few)
    assert "two-model mode was not" in layerskip_page.sentence_on_small(few, facts)
    assert "was not asked" in layerskip_page.sentence_on_knapsack(few, facts)
    assert "not measured for this class" in layerskip_page.sentence_on_dispatch(facts)
    none = layerskip_summary.reuse(exits.rows().iloc[:6])
    assert "not compared" in layerskip_page.sentence_on_reuse(none)
    assert "not timed" in layerskip_page.sentence_on_alone({**facts, "alone": []})


def test_exits_and_depths_in_words():
    facts = exits.facts()
    said = layerskip_page.sentence_on_exits(facts)
    assert "after layer 2 agreement with the last layer is 62% and exact match 20%" in (
        said
    )
    assert "the last layer itself has exact match 80%" in said
    said = layerskip_page.sentence_on_depths(facts)
    assert "from layer 2.5 of 8; 88% of the tokens" in said
    said = layerskip_page.sentence_on_alone(facts)
    assert "exit 2 decodes at 3.50 times" in said and "exact match 20%" in said


def test_plain_decoding_and_dispatch_in_words():
    facts = exits.facts()
    said = layerskip_page.sentence_on_plain(facts)
    assert "1.10 ms with mlx-lm and 1.20 ms with this engine" in said
    assert "that of mlx-lm, is the baseline" in said
    assert "80% of a plain step" in layerskip_page.sentence_on_dispatch(facts)
    one = layerskip_page.sentence_on_plain({"plain": {"chosen": "mlx-lm"}})
    assert one == "Plain decoding is mlx-lm's own loop."


def test_the_maps_hold_every_number(table):
    measured = layerskip_summary.speed_grid(table)
    counted = layerskip_summary.counted_grid(exits.facts())
    figure = layerskip_figures.maps(measured, counted)
    written = [{t.get_text() for t in ax.texts} for ax in figure.axes]
    for texts, grid in zip(written, (counted, measured), strict=True):
        assert texts == {f"{value:.2f}" for value in grid.to_numpy().ravel()}
    words = layerskip_figures.describe_maps(measured, counted)
    assert "to 2.00 (exit 2, 4 tokens)" in words and "4 of 4 timed" in words


def test_a_map_with_a_gap_is_drawn(table):
    measured = layerskip_summary.speed_grid(table)
    measured.iloc[0, 0] = np.nan
    layerskip_figures.maps(measured, layerskip_summary.counted_grid(exits.facts()))
    words = layerskip_figures.describe_maps(measured, measured)
    assert "3 of 3 timed" in words


@pytest.mark.parametrize("answers", [True, False])
def test_figures_of_exits_depths_and_early_exit_alone(table, answers):
    facts = exits.facts(trained=answers)
    scores = layerskip_summary.scores(facts)
    figure = layerskip_figures.exits(scores, None, answers=answers)
    assert len(figure.axes) == (3 if answers else 2)
    dots = np.asarray(figure.axes[0].collections[0].get_offsets())
    assert len(dots) == exits.LAYERS
    words = layerskip_figures.describe_exits(scores, answers=answers)
    assert ("exact match" in words) is answers
    figure = layerskip_figures.depths(facts["depths"])
    assert [p.get_height() for p in figure.axes[0].patches] == [1, 8, 2, 1]
    assert "4 tokens, from layer 1 to 8" in layerskip_figures.describe_depths(
        facts["depths"]
    )
    alone, best = layerskip_summary.alone(facts), layerskip_summary.best(table)
    metric = "exact_match" if answers else "agreement"
    figure = layerskip_figures.alone(alone, best, metric)
    assert len(figure.axes[0].collections[-1].get_offsets()) == 2
    words = layerskip_figures.describe_alone(alone, best, metric)
    assert "exit 2 3.50 and" in words


def test_published_figures_stand_on_the_plane_as_hollow_marks(table):
    published = reference.layerskip_speed(reference.find_root())
    rated = published.dropna(subset=["acceptance_rate"])
    lines = layerskip_summary.fixed(table)
    figure = layerskip_figures.plane(lines, rated)
    marks = {c.get_label(): c for c in figure.axes[0].collections}
    theirs = marks["published, other machines"]
    assert len(theirs.get_offsets()) == len(rated) and len(rated) >= 12
    assert not len(theirs.get_facecolors())
    assert {"exit, taught", "exit, dynamic", "small model", "skip, chosen"} <= set(
        marks
    )


def test_the_paper_is_quoted_with_lengths_and_sources():
    published = reference.layerskip_speed(reference.find_root())
    shown = layerskip_page.published_table(published)
    line = shown[(shown["task"] == "CNN/DM 1-shot") & (shown["exit"] == "8 of 32")]
    assert line["acceptance rate"].iloc[0] == "69%"
    assert line["speedup"].iloc[0] == "1.86"
    assert line["where"].iloc[0] == "layerskip, table 3"
    assert published["cost_ratio"].between(0, 1).all()
    [row] = published[
        (published["model"] == "Llama 2 7B") & (published["task"] == "XSUM 0-shot")
    ].to_dict("records")
    assert row["cost_ratio"] == pytest.approx((8 + 0.65) / (32 + 0.65))
    exits_known = reference.layerskip_exits(reference.find_root())
    assert (exits_known["exit_layer"] <= exits_known["num_layers"]).all()
