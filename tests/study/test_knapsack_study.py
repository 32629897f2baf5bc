"""The experiment "knapsack": a whole small run, its words, figures and values."""

import json
import math

import pandas as pd
import pytest

from selfspec.selection.online import INTERVAL
from selfspec.study import (
    draft_summary,
    figures,
    knapsack_figures,
    knapsack_grid,
    knapsack_page,
    knapsack_study,
)
from selfspec.study.errors import StudyError
from selfspec.study.experiments import EXPERIMENTS, KNAPSACK
from selfspec.study.knapsack_grid import SELECTORS, SIZES, make_grid, resolve_size
from selfspec.study.knapsack_values import KNAPSACK_FIELDS, of_knapsack
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """All selectors, enough windows for intervals, a temperature, a longer context."""
    folder = tmp_path_factory.mktemp("knapsack")
    small = knapsack_grid.KnapsackSize(
        SELECTORS,
        calibration_windows=2,
        evaluation_windows=7,
        window_tokens=10,
        num_prompts=6,
        num_tokens=12,
        budgets=(0.2, 0.5),
        search_trials=10,
        shortlists=(64, 128),
        contexts=(200,),
        temperature_cases=1,
        small_models=2,
        small_layers=2,
        online_intervals=(0, 8),
        online_prompts=1,
        online_tokens=24,
        calibration_prompts=1,
        calibration_tokens=8,
        budget=1.5,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "smoke", small)
        return knapsack_study.measure(
            str(save_tiny_model(folder / "tiny-knapsack")),
            size="smoke",
            results=folder / "results",
        )


@pytest.fixture(scope="module")
def table(run):
    return draft_summary.summarise(run.rows)


def test_every_selector_offers_sets_with_both_agreements(run):
    frontiers = run.provenance["frontiers"]
    assert [f["selector"] for f in frontiers] == list(SELECTORS)
    for frontier in frontiers:
        assert frontier["sets"], frontier["selector"]
        for found in frontier["sets"]:
            assert 0 <= found["calibration"] <= 1
            assert len(found["held_out"]) == 7
            assert found["saved_share"] >= 0.2


def test_calibration_and_evaluation_windows_are_told_apart(run):
    windows = run.provenance["windows"]
    assert windows["calibration"] == {"texts": 2, "positions": 20}
    assert windows["evaluation"] == {"texts": 7, "positions": 70}


def test_each_block_has_its_importance(run):
    lines = run.provenance["importance"]
    assert len(lines) == 12
    assert {(line["kind"], line["layer"]) for line in lines} == {
        (kind, layer) for kind in ("attention", "mlp") for layer in range(6)
    }
    assert all(line["microseconds"] > 0 for line in lines if line["kind"] == "mlp")


def test_each_budget_has_a_margin_and_a_corrected_p(run):
    for line in run.provenance["budgets"]:
        assert line["selector"] in SELECTORS and line["selector"] != "middle"
        assert line["low"] <= line["margin"] <= line["high"]
        assert line["p"] <= line["p_holm"] <= 1


def test_greedy_rows_are_lossless_and_sampled_ones_are_not_judged(run):
    rows = run.rows
    greedy = rows["temperature"] == 0
    assert set(rows[greedy]["lossless"]) == {"equal"}
    assert set(rows[~greedy]["lossless"]) == {"sampled"}
    assert (~greedy).any()
    assert rows["draft"].str.startswith("shortlist").any()
    assert (rows["draft"] == "lookup").any()


def test_rejection_keeps_at_least_what_matching_keeps(run):
    for line in run.provenance["plans"]:
        assert 0 <= line["match"] <= line["rejection"] <= 1


def test_regret_is_the_sum_of_its_parts_and_not_negative(run):
    models = run.provenance["small_models"]
    assert [m["model"] for m in models] == ["random 0", "taught 1"]
    for model in models:
        assert model["sets"] == 2**4 - 1
        for parts in model["selectors"].values():
            total = parts["in_sample"] + parts["proxy"] + parts["search"]
            assert parts["regret"] == pytest.approx(total, abs=1e-9)
            assert parts["regret"] > -1e-9


def test_choosing_again_leaves_the_text_alone(run):
    for line in run.provenance["online"]:
        assert line["same_text"] == 1
    intervals = [line["interval"] for line in run.provenance["online"]]
    assert intervals == [0, 8, "default"]
    assert run.provenance["online"][1]["choices"] >= 1


def test_longer_contexts_are_scored(run):
    lines = run.provenance["contexts"]
    assert {line["context"] for line in lines} == {200}
    assert {line["draft"] for line in lines} == {
        line["draft"] for line in run.provenance["plans"]
    }


def test_longer_contexts_and_the_match_rule_are_timed(run):
    drafts = set(run.rows["draft"])
    after = run.rows[run.rows["draft"].str.contains(", after 200 tokens")]
    assert len(after) == 2 * 6 and set(after["lossless"]) <= {"equal", "tie"}
    assert sum(draft.endswith(", match rule") for draft in drafts) == 1


def test_provenance_is_strict_json(run):
    json.dumps(run.provenance, allow_nan=False)


def test_all_words_figures_and_values_come_out_of_it(run, table):
    facts = run.provenance
    figures.style()
    for name in "importance frontiers optimism reliability regret online".split():
        text = figures.svg(getattr(knapsack_figures, name)(facts))
        assert text.startswith("<?xml")
        assert getattr(knapsack_figures, f"describe_{name}")(facts)
    assert figures.svg(knapsack_figures.speedups(table))
    sentences = [
        knapsack_page.sentence_on_clearing(facts),
        knapsack_page.sentence_on_margins(facts),
        knapsack_page.sentence_on_optimism(facts),
        knapsack_page.sentence_on_proxy(facts),
        knapsack_page.sentence_on_regret(facts),
        knapsack_page.sentence_on_online(facts, INTERVAL),
        knapsack_page.sentence_on_declining(facts),
        knapsack_page.sentence_on_timing(table),
        knapsack_figures.describe_speedups(table),
    ]
    for sentence in sentences:
        assert sentence and "nan" not in sentence
    for shown in (
        knapsack_page.selectors_table(facts),
        knapsack_page.budgets_table(facts),
        knapsack_page.plans_table(facts),
        knapsack_page.contexts_table(facts),
        knapsack_page.timed_table(table),
        knapsack_page.gap_table(facts, table),
        knapsack_page.domains_table(run.rows),
    ):
        assert not shown.empty and "nan" not in shown.to_string()
    known = of_knapsack(facts, table)
    assert set(known) == set(KNAPSACK_FIELDS)
    assert known["budgets"] == 2 and known["selectors"] == len(SELECTORS)


def test_a_set_that_clears_its_cost_is_said_to_and_one_that_does_not_is_too():
    def facts(agreement):
        found = {
            "draft": "MLP 3",
            "cost_ratio": 0.8,
            "held_out_agreement": agreement,
            "calibration": 0.9,
        }
        return {"frontiers": [{"selector": "greedy", "sets": [found]}]}

    def with_head(found):
        cut = {**found["frontiers"][0]["sets"][0], "shortlist": 64, "cost_ratio": 0.7}
        found["frontiers"][0]["sets"].append(cut)
        return found

    said = knapsack_page.sentence_on_clearing(with_head(facts(0.79)))
    assert "No skip set clears" in said and "+9 points" in said
    assert "No skip set clears" in knapsack_page.sentence_on_clearing(facts(0.79))
    assert "5 points above" in knapsack_page.sentence_on_clearing(facts(0.85))


def test_what_a_selection_pays_back():
    facts = {
        "profile": {"step_seconds": 0.1},
        "plans": [{"draft": "skip 10 % (greedy)", "predicted_held_out": 1.25}],
        "frontiers": [
            {"selector": "greedy", "evaluations": 3, "seconds": 10.0, "sets": []},
            {"selector": "random", "evaluations": 3, "seconds": 10.0, "sets": []},
        ],
    }
    paid = knapsack_page.selectors_table(facts)["tokens after which it has paid"]
    # each token saves a fifth of 0.1 seconds
    assert list(paid) == ["500", "never"]


def test_what_was_lost_between_the_plan_and_the_clock():
    line = {
        "draft": "skip 10 % (greedy)",
        "num_draft_tokens": 1,
        "temperature": 0.0,
        "predicted_speedup": 0.9,
        "cost_ratio": 0.8,
        "verify_ratio": 1.1,
        "overhead_ratio": 0.1,
        "speedup": 0.88,
    }
    plan = {"draft": line["draft"], "predicted": 0.97, "predicted_held_out": 0.92}
    [found] = knapsack_page.gap_table({"plans": [plan]}, pd.DataFrame([line])).to_dict(
        "records"
    )
    assert found["in-sample"] == "+0.050" and found["cost model"] == "+0.020"
    # 1 + A = 0.9 * 2.0, and 1.8 / 1.9 without the rest
    assert found["overhead"] == f"{1.8 / 1.9 - 0.9:+.3f}"


def test_a_run_of_few_windows_judges_no_margin():
    line = {"budget": 0.1, "selector": "greedy", "p_holm": None, "low": None}
    assert "too few windows" in knapsack_page.sentence_on_margins({"budgets": [line]})


def test_sizes():
    paper = SIZES["paper"]
    assert paper.selectors == SELECTORS and paper.contexts == (1024, 4096)
    assert paper.budgets == (0.1, 0.2, 0.3, 0.4, 0.5)
    assert EXPERIMENTS[KNAPSACK].home == "knapsack"
    with pytest.raises(StudyError, match="size must be one of"):
        resolve_size("huge")
    assert resolve_size("smoke", num_prompts=3).num_prompts == 3


def test_the_grid_has_every_draft_at_every_length_and_lookup():
    from selfspec.decoding import SkipDraft

    grid = make_grid({"skip 10 % (greedy)": SkipDraft(mlp={1})}, SIZES["paper"])
    names = [case.name for case in grid.cases]
    assert names[:2] == ["skip 10 % (greedy), 1", "skip 10 % (greedy), 2"]
    assert "lookup, 2" in names
    assert "skip 10 % (greedy), 1, temperature 0.7" in names
    assert "skip 10 % (greedy), match rule, 1, temperature 0.7" in names
    assert "skip 10 % (greedy), after 4096 tokens, 1" in names


def test_as_json_has_no_nan():
    value = {"a": [math.nan, 1.0, {"b": math.inf}], "c": (2,)}
    assert knapsack_study.as_json(value) == {"a": [None, 1.0, {"b": None}], "c": [2]}


def test_a_model_of_one_layer_has_nothing_to_choose(tmp_path):
    folder = save_tiny_model(tmp_path / "one", num_hidden_layers=1)
    with pytest.raises(StudyError, match="nothing to choose.*Way out"):
        knapsack_study.measure(str(folder), size="smoke", results=tmp_path)


def test_domains_are_told_apart():
    rows = pd.DataFrame(
        {
            "draft": ["skip"] * 2,
            "num_draft_tokens": [1, 1],
            "temperature": [0.0, 0.0],
            "domain": ["chat", "code"],
            "drafted": [10, 10],
            "accepted": [9, 5],
        }
    )
    [line] = knapsack_page.domains_table(rows).to_dict("records")
    assert (line["chat"], line["code"]) == ("90%", "50%")
