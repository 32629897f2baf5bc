"""One line a case: sums over sums, medians over prompts, in an order to read in."""

import math

import pandas as pd
import pytest

from selfspec.study import draft_summary
from tests.study.drafts import rows


def test_a_line_says_what_its_rows_say():
    [line] = draft_summary.summarise(rows("skip 10 %", 2)).to_dict("records")
    assert (line["draft"], line["num_draft_tokens"]) == ("skip 10 %", 2)
    assert line["speedup"] == pytest.approx(1.005)
    assert line["low"] <= 1.005 <= line["high"] and line["prompts"] == 6
    assert line["predicted_speedup"] == pytest.approx(1.005 * 1.02)
    assert line["predicted_held_out"] == pytest.approx(1.005 * 0.95)
    assert line["acceptance_rate"] == 8 / 20
    assert line["held_out_acceptance_rate"] == 0.5
    assert line["first_token_acceptance"] == 6 / 10
    assert line["tokens_per_round"] == 48 / 40
    assert (line["cost_ratio"], line["verify_ratio"]) == (0.9, 1.2)
    assert line["overhead_ratio"] == 0.01
    assert line["plain_share"] == 30 / 48 and line["tokens"] == 48
    assert line["peak_memory_ratio"] == 1.02


def test_repeats_of_a_prompt_are_no_further_samples():
    twice = pd.concat([rows(), rows(repeat=1, speedup=2.0)])
    [line] = draft_summary.summarise(twice).to_dict("records")
    assert line["prompts"] == 6 and line["pairs"] == 12
    assert line["speedup"] == pytest.approx((2.0 + 1.005) / 2)


def test_lines_come_in_the_order_of_the_book_whatever_was_drawn_first():
    drawn = [("lookup", 4), ("exit 15", 2), ("skip 50 %", 2), ("shortlist 99", 2)]
    drawn += [("skip 9 %", 5), ("skip 9 %", 2), ("other", 2)]
    table = draft_summary.summarise(pd.concat([rows(d, k) for d, k in drawn]))
    assert list(zip(table["draft"], table["num_draft_tokens"], strict=True)) == [
        ("skip 9 %", 2),
        ("skip 9 %", 5),
        ("skip 50 %", 2),
        ("exit 15", 2),
        ("shortlist 99", 2),
        ("lookup", 4),
        ("other", 2),
    ]
    assert pd.api.types.is_integer_dtype(table["num_draft_tokens"])


def test_a_rule_that_never_drafted_has_no_rate_and_is_no_error():
    nothing = dict(drafted=0, accepted=0, first_drafted=0, first_accepted=0)
    [line] = draft_summary.summarise(
        rows(**nothing, held_out_acceptance_rate=float("nan"))
    ).to_dict("records")
    assert math.isnan(line["acceptance_rate"])
    assert math.isnan(line["first_token_acceptance"])
    assert math.isnan(line["held_out_acceptance_rate"])


def test_a_case_that_could_not_be_timed_has_no_line():
    assert draft_summary.summarise(rows(speedup=float("nan"))).empty


def test_the_prediction_is_judged_against_what_was_measured():
    table = draft_summary.summarise(rows("skip 10 %", 2))
    assert draft_summary.prediction_error(table).iloc[0] == pytest.approx(0.02)
    held_out = draft_summary.prediction_error(table, "predicted_held_out")
    assert held_out.iloc[0] == pytest.approx(0.05)


@pytest.mark.parametrize(
    "label, kind",
    [("skip 10 %", "skip"), ("skip, one cache", "skip"), ("lookup", "lookup")],
)
def test_the_method_is_the_first_word(label, kind):
    assert draft_summary.method(label) == kind
