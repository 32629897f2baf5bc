"""The page of the rule that declines: verdicts, what stands beside them, figures."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from selfspec.study import auto_figures, auto_page, auto_summary, draft_summary
from selfspec.study.auto_summary import BROKEN, KEPT, OPEN, UNKNOWN, promise
from selfspec.study.run_records import collect
from tests.study.drafts import rows

GOOD = (1.3, 1.32, 1.31, 1.35, 1.33, 1.34)
BAD = (0.9, 0.91, 0.92, 0.9, 0.93, 0.91)


@pytest.fixture
def run_rows():
    return pd.concat(
        [
            rows("lookup", speedups=GOOD, plain_tokens=10),
            rows("skip 10 %"),
            rows("skip 50 %", speedups=BAD, plain_tokens=45),
        ]
    )


@pytest.fixture
def fixed():
    return pd.DataFrame(
        [
            ("skip 50 %", 5, 0.4, 0.38, 0.42, "Naive layer skip, default, 2026-11-30"),
            ("skip 50 %", 2, 0.7, 0.68, 0.72, "Naive layer skip, default, 2026-11-30"),
            ("lookup", 4, 1.2, 1.1, 1.4, "What a step costs, default, 2026-11-30"),
        ],
        columns=auto_summary.FIXED,
    )


@pytest.fixture
def compared(run_rows, fixed):
    return auto_summary.compare(draft_summary.summarise(run_rows), fixed)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize(
    "low, high, place",
    [
        (0.98, 1.2, KEPT),
        (0.97, 0.98, OPEN),
        (0.5, 0.9799, BROKEN),
        (float("nan"), float("nan"), UNKNOWN),
    ],
)
def test_the_whole_interval_has_to_lie_above_the_bound(low, high, place):
    assert promise(low, high) == place


def test_fixed_lengths_stand_beside_the_draft_that_they_are_of(compared):
    lines = compared.set_index("draft")
    assert lines.loc["skip 50 %", "worst_speedup"] == 0.4
    assert lines.loc["skip 50 %", "best_length"] == 2
    assert lines.loc["skip 10 %", "fixed"] == 0
    assert np.isnan(lines.loc["skip 10 %", "best_speedup"])
    assert list(compared["promise"]) == [KEPT, BROKEN, KEPT]


def test_the_table_has_the_rule_and_the_fixed_lengths_in_columns_of_their_own(compared):
    shown = auto_page.readable(compared)
    ours, theirs = 'S with "auto", this run', "fixed lengths, other runs"
    line = shown.set_index("draft").loc["skip 50 %"]
    assert line[ours] == "0.91"
    assert line[theirs] == "0.40 (5 tokens) to 0.70 (2 tokens)"
    assert shown[theirs].iloc[0] == "not timed"
    assert list(shown["draft"]) == ["skip 10 %", "skip 50 %", "lookup"]
    one = shown.set_index("draft").loc["lookup", theirs]
    assert one == "1.20 (4 tokens)"


def test_sentences_say_for_each_draft_whether_the_promise_held(compared):
    text = auto_page.sentence_on_promise(compared)
    assert re.search(r"skip 50 % as the draft, S is 0.91 \(0.9\d to 0.9\d\);", text)
    assert "the interval lies below 0.98" in text
    assert text.count("lies at 0.98 or above") == 2
    assert "48 tokens or more" in text
    alone = compared[compared["draft"] == "skip 10 %"]
    assert "nothing to set beside" in auto_page.sentence_on_fixed(alone)
    fixed = auto_page.sentence_on_fixed(compared)
    assert "S = 0.40 (skip 50 %, 5 tokens a round) to 1.20 (lookup" in fixed
    assert "skip 10 %, skip 50 %" in auto_page.sentence_on_declining(compared)
    assert "more than half" in auto_page.sentence_on_declining(
        compared[compared["draft"] == "lookup"]
    )
    loops = auto_page.sentence_on_loops(compared)
    assert "10% of the 4-grams" in loops and "skip 50 % 0.91" in loops
    looping = compared.assign(speedup_without_loops=float("nan"))
    assert "lookup has none left" in auto_page.sentence_on_loops(looping)
    assert "2% in the median" in auto_page.sentence_on_prediction(compared)
    told = auto_page.sentence_on_budget({"budget": 0.01, "allowance": 2.5})
    assert "1% of all steps" in told and "2.5 steps" in told


def test_too_few_prompts_get_no_verdict(fixed):
    table = draft_summary.summarise(rows(speedups=(1.0, 1.1)))
    compared = auto_summary.compare(table, fixed)
    assert "too few prompts" in auto_page.sentence_on_promise(compared)
    assert auto_page.readable(compared)["95 % interval"].iloc[0] == "-"
    auto_figures.rule_and_fixed(compared, fixed)


def test_what_went_in_is_shown_with_gaps_where_nothing_was_drafted(run_rows, fixed):
    quiet = run_rows.assign(drafted=0, accepted=0, first_drafted=0, first_accepted=0)
    compared = auto_summary.compare(draft_summary.summarise(quiet), fixed)
    assert set(auto_page.drafts(compared)["acceptance rate"]) == {"-"}


def test_the_figure_draws_the_rule_and_the_fixed_lengths_apart(compared, fixed):
    figure = auto_figures.rule_and_fixed(compared, fixed)
    [ax] = figure.axes
    marks = {c.get_label(): np.asarray(c.get_offsets()) for c in ax.collections}
    assert list(marks['"auto", this run'][:, 0]) == list(compared["speedup"])
    for length, speedups in ((2, [0.7]), (4, [1.2]), (5, [0.4])):
        assert list(marks[f"{length} tokens, other runs"][:, 0]) == speedups
    assert [t.get_text() for t in ax.get_yticklabels()] == list(compared["draft"])
    lines = {line.get_xdata()[0] for line in ax.lines}
    assert lines == {1, auto_summary.BOUND}
    words = auto_figures.describe_rule(compared, fixed)
    assert "skip 50 % 0.91 (fixed lengths 0.40 to 0.70)" in words


def test_every_pair_is_a_dot(run_rows, compared):
    figure = auto_figures.every_prompt(run_rows, compared)
    dots = [c.get_offsets() for c in figure.axes[0].collections]
    assert sum(map(len, dots)) == len(run_rows)
    words = auto_figures.describe_prompts(run_rows)
    assert "18 pairs" in words and "6 lie below 0.98" in words


def test_nothing_timed_elsewhere_is_no_error(run_rows):
    none = auto_summary.fixed_settings([], "m", "x")
    compared = auto_summary.compare(draft_summary.summarise(run_rows), none)
    assert (compared["fixed"] == 0).all()
    auto_figures.rule_and_fixed(compared, none)


def test_fixed_settings_are_of_the_same_machine_and_model_only(tmp_path):
    import book_project

    here = dict(machine="m-cpu", model="x")
    book_project.add_results(
        tmp_path, **here, mechanisms=("two caches", "one cache"), speedup=0.7
    )
    book_project.add_draft_results(tmp_path, "machine", **here)
    book_project.add_draft_results(tmp_path, "machine", machine="m-cpu", model="y")
    book_project.add_draft_results(tmp_path, "auto", **here)
    found = auto_summary.fixed_settings(collect(tmp_path), "m-cpu", "x")
    assert found["run"].str.startswith("Naive layer skip").sum() == 2
    assert found["run"].str.startswith("What a step costs").sum() == 2
    # the post's own mechanism is not what the rule runs on
    skip = found[found["draft"] == "skip 10 %"]
    assert skip["speedup"].max() == pytest.approx(0.9, rel=0.03)
