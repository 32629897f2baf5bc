"""From rows and facts to the tables that the page of exits reads."""

import numpy as np
import pandas as pd
import pytest

from selfspec.study import draft_summary, layerskip_summary
from tests.study import exits
from tests.study.drafts import rows as draft_rows


@pytest.fixture(scope="module")
def rows():
    return exits.rows()


@pytest.fixture(scope="module")
def table(rows):
    return draft_summary.summarise(rows)


def test_greedy_sampled_and_ruled_lines_are_told_apart(table):
    assert len(layerskip_summary.fixed(table)) == 9
    [sampled] = layerskip_summary.sampled(table).to_dict("records")
    assert (sampled["temperature"], sampled["draft"]) == (0.6, "exit 2")
    [ruled] = layerskip_summary.ruled(table).to_dict("records")
    assert ruled["num_draft_tokens"] == "auto"
    greedy = table[(table["draft"] == "exit 2") & (table["num_draft_tokens"] == 4)]
    assert len(greedy) == 2  # one line a temperature, never pooled


def test_the_grid_holds_plain_exits_only(table):
    grid = layerskip_summary.speed_grid(table)
    assert list(grid.index) == [2, 4] and list(grid.columns) == [2, 4]
    assert grid.loc[2, 4] == pytest.approx(2.0, rel=0.05)
    best = layerskip_summary.best(table)
    assert (best["draft"], best["num_draft_tokens"]) == ("exit 2", 4)


def test_layers_counted_a_token_are_the_arithmetic_of_the_rounds():
    lines = layerskip_summary.counted(exits.facts()).set_index(
        ["draft", "num_draft_tokens"]
    )
    line = lines.loc["exit 2", 4]
    assert line["evaluations"] == (4 * 2 + exits.LAYERS) * 100 / 400
    assert line["speedup"] == exits.LAYERS / line["evaluations"] == 2.0
    assert line["tokens_per_round"] == 4.0 and line["acceptance_rate"] == 0.75
    assert lines.loc["plain", 0]["speedup"] == 1
    assert np.isnan(lines.loc["plain", 0]["acceptance_rate"])
    grid = layerskip_summary.counted_grid(exits.facts())
    assert grid.loc[2, 4] == 2.0 and grid.shape == (2, 2)


def test_without_answers_there_is_no_exact_match():
    facts = exits.facts()
    for line in facts["counts"]:
        line["exact"] = None
    assert layerskip_summary.counted(facts)["exact_match"].isna().all()


def test_scores_are_rates_of_the_sums():
    scores = layerskip_summary.scores(exits.facts())
    assert list(scores["exact_match"]) == [layer / 10 for layer in range(1, 9)]
    assert scores["perplexity"].iloc[3] == pytest.approx(5.0)


def test_an_exit_that_cannot_run_alone_is_left_out():
    table = layerskip_summary.alone(exits.facts())
    assert list(table["exit_layer"]) == [2, 4]
    assert table["low"].isna().tolist() == [False, True]
    assert list(table["exact_match"]) == [0.2, 0.4]
    empty = layerskip_summary.alone(exits.facts(alone=[]))
    assert empty.empty and "exact_match" in empty


def test_reuse_is_compared_pair_by_pair(rows):
    reuse = layerskip_summary.reuse(rows)
    assert list(reuse["num_draft_tokens"]) == [2, 4]
    assert reuse["ratio"].tolist() == pytest.approx([1.5 / 1.4, 2.0 / 2.1])
    assert reuse["verdict"].tolist() == ["faster", "slower"]
    # another temperature is no half of a pair
    assert set(reuse["prompts"]) == {6}


def test_reuse_that_was_not_timed_is_an_empty_table(rows):
    without = rows[~rows["draft"].str.contains("nothing")]
    assert layerskip_summary.reuse(without).empty


def test_runs_from_before_there_was_a_temperature_are_greedy():
    old = draft_rows("exit 2", 2).drop(columns="temperature", errors="ignore")
    assert "temperature" not in old
    assert draft_summary.summarise(old)["temperature"].tolist() == [0.0]
    mixed = pd.concat([old, old.assign(temperature=0.6, run_id="r")])
    assert len(draft_summary.summarise(mixed)) == 2


def test_exits_are_read_in_the_order_of_their_layers():
    labels = ["exit 10", "exit 2", "exit 2, nothing kept", "dynamic, exits 1 to 4"]
    table = draft_summary.summarise(pd.concat([draft_rows(x, 2) for x in labels]))
    assert table["draft"].tolist() == [labels[1], labels[2], labels[0], labels[3]]
