"""What training did, read back: medians and ranges over seeds, pairs by seed."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from selfspec.study import (
    arms_page,
    arms_table,
    layerskip_figures,
    layerskip_fragments,
    layerskip_values,
)
from selfspec.study.results import ResultsError
from tests.study import exits


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def arms():
    return exits.arms()


def test_only_the_last_step_of_a_seed_is_its_result(arms):
    end = arms_table.at_the_end(arms)
    assert set(end["step"]) == {500} and len(end) == 2 * 6 * exits.LAYERS


def test_seeds_give_a_median_and_a_range(arms):
    table = arms_table.by_exit(arms).set_index(["arm", "exit_layer"])
    line = table.loc["ld-ee", 2]
    assert line["seeds"] == 6
    assert line["exact_match"] == pytest.approx(0.375)
    assert (line["exact_match_low"], line["exact_match_high"]) == (0.35, 0.4)


def test_the_lead_is_paired_by_seed_and_has_an_interval_from_six(arms):
    lead = arms_table.lead(arms).set_index("exit_layer")
    assert lead.loc[2, "lead"] == pytest.approx(0.325)
    assert 0.3 <= lead.loc[2, "low"] < 0.325 < lead.loc[2, "high"] <= 0.35
    assert lead.loc[2, "least"] == pytest.approx(0.3)
    few = arms_table.lead(exits.arms(seeds=3))
    assert few["low"].isna().all() and (few["seeds"] == 3).all()
    assert arms_table.lead(arms, "no-such-arm").empty


def test_an_interval_says_so_at_every_early_exit_or_not_at_all(arms):
    said = arms_page.sentence_on_lead(arms)
    assert "At every one of these 4 exits the interval lies above 0." in said
    assert "32.5 to 32.5 points" in said
    said = arms_page.sentence_on_lead(exits.arms(taught=-0.02))
    assert "lies above 0 at 0 of 4 exits, not after layer 1, 2, 3, 4" in said
    said = arms_page.sentence_on_lead(exits.arms(seeds=3))
    assert "Too few seeds for an interval" in said
    said = arms_page.sentence_on_lead(arms, "agreement")
    assert "by 0.0 to 0.0 points of agreement with their own last layer" in said
    assert "lies above 0 at 0 of 4 exits" in said


def test_what_the_last_layer_and_the_clock_pay(arms):
    assert "+2.5 points" in arms_page.sentence_on_price(arms)
    cost = arms_table.overhead(arms).set_index("arm")
    assert cost.loc["ld-ee", "memory"] == 2.0
    assert cost.loc["ld-ee", "seconds"] == pytest.approx(1.5, rel=0.02)
    assert cost.loc["baseline", "seconds"] == 1
    shown = arms_page.overheads(arms)
    assert shown["layers run"].tolist() == ["100%", "90%"]


def test_whether_the_middle_gets_worse_is_told_from_the_steps(arms):
    table = arms_table.while_training(arms)
    assert sorted(set(table["exit_layer"])) == [2, 4, 8]
    said = arms_page.sentence_on_training(arms)
    assert "falls to 20 by step 100 and rises to 200 by step 500" in said
    steady = exits.arms()
    steady.exits["perplexity"] = 20.0
    assert "does not rise" in arms_page.sentence_on_training(steady)
    once = exits.arms(steps=(500,))
    assert "last step only" in arms_page.sentence_on_training(once)


def test_arms_are_read_from_disk_the_latest_first(tmp_path, arms):
    assert arms_table.load(tmp_path) is None
    for machine, date, exact in (
        ("a-cpu", "2026-12-01", 10),
        ("b-cpu", "2026-12-02", 20),
    ):
        folder = tmp_path / "results" / machine / arms_table.FOLDER
        folder.mkdir(parents=True)
        row = dict.fromkeys(arms_table.KEYS, 1) | {
            "arm": "baseline",
            "texts": 100,
            "exact": exact,
            "positions": 10,
            "surprise": 10.0,
            "agreed": 5,
            "right": 5,
        }
        pd.DataFrame([row]).to_csv(folder / arms_table.EXITS, index=False)
        arms.training.to_csv(folder / arms_table.TRAINING, index=False)
        about = {"date": date, "machine": machine, "steps": 1, "batch": 2}
        (folder / arms_table.ABOUT).write_text(json.dumps(about))
    found = arms_table.load(tmp_path)
    assert found.about["machine"] == "b-cpu"
    assert found.exits["exact_match"].tolist() == [0.2]
    assert found.exits["perplexity"].iloc[0] == pytest.approx(np.e)
    assert found.folder.as_posix() == f"results/b-cpu/{arms_table.FOLDER}"
    (folder / arms_table.TRAINING).rename(folder / "away.csv")
    assert arms_table.load(tmp_path).about["machine"] == "a-cpu"  # not one trained yet
    (folder / "away.csv").rename(folder / arms_table.TRAINING)
    (folder / arms_table.EXITS).write_text("nothing\n1\n")
    with pytest.raises(ResultsError, match="exits.csv.*Way out"):
        arms_table.load(tmp_path)


def test_without_arms_the_page_says_so():
    assert "not been trained yet" in arms_page.origin(None)
    assert arms_page.tables(None) == [] and arms_page.sentences(None) == []
    assert arms_page.show_figures(None) is None
    assert layerskip_fragments.arms(None) == arms_page.NOT_TRAINED
    assert set(layerskip_values.of_arms(None).values()) == {None}


def test_the_fragment_has_tables_sentences_and_the_data(arms):
    text = layerskip_fragments.arms(arms)
    assert "| LD + EE | 6 | 82% |" in text
    assert "../results/testron-cpu/layerskip-arms/exits.csv" in text
    assert "Testron 9000" in text and "500 steps of 32" in text


def test_values_are_those_of_the_arms(arms):
    found = layerskip_values.of_arms(arms)
    assert found["arms.exits"] == found["arms.exits_above"] == 4
    assert found["arms.lead_least_points"] == pytest.approx(32.5)
    assert found["arms.last_layer_points"] == pytest.approx(2.5)
    assert found["arms.baseline_exact_percent"] == pytest.approx(80)
    assert None not in found.values()


def test_figures_of_arms(arms):
    from selfspec.study import layerskip_summary

    ahead = arms_table.lead(arms)
    figure = layerskip_figures.lead(ahead)
    assert len(figure.axes[0].collections[-1].get_offsets()) == exits.LAYERS
    assert "layer 2 +32" in layerskip_figures.describe_lead(ahead)
    moved = arms_table.while_training(arms)
    figure = layerskip_figures.while_training(moved)
    assert len(figure.axes[0].lines) == 3
    assert "after layer 4 20 at step 100 and 200 at step 500" in (
        layerskip_figures.describe_while_training(moved)
    )
    scores = layerskip_summary.scores(exits.facts())
    figure = layerskip_figures.exits(scores, arms_table.by_exit(arms), answers=True)
    assert len(figure.axes[0].lines) == 2
