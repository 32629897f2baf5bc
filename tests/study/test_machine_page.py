"""What the machine page says is what the facts hold; every large miss is named."""

import json
from types import SimpleNamespace

import book_project
import pandas as pd
import pytest

from selfspec.study import draft_summary, machine_errors, machine_page, machine_values
from selfspec.study.run_records import collect
from tests.costs.synthetic import profile
from tests.study.drafts import rows
from tests.study.machine_run import facts, missed_rows


def test_the_table_says_whether_the_profile_was_measured_for_this_run():
    shown = machine_page.machine_table(facts()).set_index("what")["value"]
    assert shown["profile"] == "measured for this run, in 21 seconds"
    assert shown["device"] == "CPU"
    step = profile().step_seconds
    assert shown["plain step"] == f"{1000 * step:.1f} ms"
    assert shown["weights read a second"] == f"{8e6 / step / 1e9:.2f} GB"
    kept = {"measured_now": False, "why": "", "seconds": 9.0}
    again = machine_page.machine_table(facts(profile_origin=kept)).set_index("what")
    assert again["value"]["profile"] == "kept from before, in 9 seconds"


@pytest.mark.parametrize(
    "ceiling, words",
    [(1e9, "more than memory"), (1.05, "waits for memory"), (0.5, "cheaper than")],
)
def test_the_distance_to_a_copy_is_read_out(ceiling, words):
    reached = machine_page.bandwidth(facts())
    copied = ceiling if ceiling == 1e9 else ceiling * reached
    text = machine_page.sentence_on_bandwidth(facts(copy_bytes_per_second=copied))
    assert words in text and f"{reached / copied:.0%}" in text


def test_a_mixture_of_experts_states_no_bandwidth():
    unknown = facts(step_bytes=None)
    assert machine_page.bandwidth(unknown) is None
    assert "not stated" in machine_page.sentence_on_bandwidth(unknown)
    assert "not stated" in set(machine_page.machine_table(unknown)["value"])


def test_every_width_and_thread_count_is_in_the_table_and_the_used_one_marked():
    table = machine_page.verify_table(facts())
    assert list(table.columns) == ["rows m", "1 thread (used)", "2 threads"]
    assert list(table["rows m"]) == list(range(1, 17))
    assert table["2 threads"][3] == f"{1.5 * profile().verify_ratio(4, 40):.2f}"
    text = machine_page.sentence_on_verify(facts())
    assert f"{profile().verify_ratio(3, 40):.2f} plain steps" in text
    assert "1 thread (used) 20.0 ms, 2 threads 30.0 ms" in text


def test_the_parts_of_a_step_are_those_of_the_profile():
    parts = machine_page.step_parts(profile())
    assert list(parts.index) == [128, 512, 1024]  # as far as it was measured
    assert dict(parts.loc[512]) == profile().where_a_step_goes(512)
    share = (parts.loc[128, "head"] + parts.loc[128, "rest"]) / parts.loc[128].sum()
    assert f"take {share:.0%} of a step" in machine_page.sentence_on_step(parts)
    short = machine_page.step_parts(profile(contexts=(50,), context=50))
    assert list(short.index) == [50]
    assert "grows" not in machine_page.sentence_on_step(short)


def test_errors_of_c_are_signed_and_the_median_is_held_against_the_bound():
    table = machine_page.check_table(facts()).set_index("draft")
    assert table["error"]["exit 4"] == "-20.0%"
    assert table["error"]["skip 10 %"] == "+2.2%"
    text = machine_page.sentence_on_checks(facts())
    assert "2.2% in the median, below the bound of 5%" in text
    assert "20.0% (exit 4)" in text
    worse = facts(checks=[{"label": "a", "predicted": 1.0, "measured": 0.9}])
    assert "not below the bound" in machine_page.sentence_on_checks(worse)
    assert "No draft" in machine_page.sentence_on_checks(facts(checks=[]))


def test_configurations_and_both_predictions_are_put_in_words():
    table = draft_summary.summarise(pd.concat([rows(length=2), missed_rows()]))
    shown = machine_page.configurations(table)
    assert list(shown["draft"]) == ["skip 10 %", "exit 4"]
    assert list(shown["predicted S"]) == ["1.03", "1.20"]
    assert "Of 2 configurations" in machine_page.sentence_on_configurations(table)
    text = machine_page.sentence_on_prediction(table)
    assert "20%, exit 4 with 2 draft tokens" in text
    assert "11.0% over 2 configurations" in text  # of 2 % and of 20 %


# Misses


def explained(own, **changes):
    table = draft_summary.summarise(own)
    return machine_errors.explain(table, own, facts(**changes)), table


def test_a_cost_that_was_wrong_accounts_for_its_share_of_the_rounds():
    """c is a fifth too low, so the predicted rounds are too cheap."""
    found, _ = explained(missed_rows())
    [line] = found.to_dict("records")
    verify = profile().verify_ratio(3, 40)
    share = 1.2 / (1.2 + verify + 0.01)
    assert line["from_cost"] == pytest.approx(share * (0.75 / 0.60 - 1), rel=1e-3)
    assert line["from_verify"] == pytest.approx(0)
    assert line["error"] == pytest.approx(0.2)
    assert line["because"] == "the profile's c"
    assert (line["rounds"], line["cut"]) == (80, 0)


def test_a_verification_that_was_wrong_is_told_apart_from_the_draft():
    curve = {str(m): 1.6 * profile().verify_ratio(m, 40) for m in range(1, 17)}
    curves = {"1": {"step_seconds": 0.02, "verify_ratio": curve}}
    [line] = explained(missed_rows("lookup"), verify_curves=curves)[0].to_dict(
        "records"
    )
    assert pd.isna(line["from_cost"])  # never timed on its own
    assert line["because"] == "the profile's v"


def test_noise_few_rounds_and_the_unexplained_are_said_plainly():
    wide = (0.7, 1.3, 0.75, 1.25, 0.9, 1.0, 1.3, 1.25)
    noisy = missed_rows("lookup", speedups=wide, predicted_speedup=1.28)
    assert explained(noisy)[0]["because"].iloc[0] == machine_errors.NOISE
    short = missed_rows("lookup", drafted_accepted_per_round="2:1 2:1 1:1")
    found = explained(short)[0].iloc[0]
    assert found["because"] == "few timed rounds (16)"
    assert found["cut"] == 8  # the last round drafted one token of two
    lost, table = explained(missed_rows("lookup"))
    assert lost["because"].iloc[0] == machine_errors.UNEXPLAINED
    text = machine_errors.sentence(lost, table)
    assert "does not explain 1: lookup with 2" in text
    assert machine_errors.readable(lost)["from c"].iloc[0] == "-"


def test_a_text_that_ends_within_a_round_is_counted_as_cut():
    own = missed_rows(decode_tokens=19)  # ten rounds of two tokens would be 20
    assert explained(own)[0]["cut"].iloc[0] == 8


def test_what_is_within_a_tenth_is_not_listed():
    found, table = explained(missed_rows(predicted_speedup=1.09))
    assert found.empty
    assert "None of the 1 configurations" in machine_errors.sentence(found, table)


def test_the_plane_has_this_run_and_the_other_experiments_of_machine_and_model(
    tmp_path,
):
    here = dict(machine="m-cpu", model="x")
    book_project.add_results(tmp_path, **here)
    book_project.add_draft_results(tmp_path, "machine", size="paper", **here)
    own = book_project.add_draft_results(tmp_path, "machine", size="smoke", **here)
    book_project.add_draft_results(tmp_path, "machine", machine="m-cpu", model="y")
    book_project.add_draft_results(tmp_path, "auto", **here)
    run = SimpleNamespace(folder=tmp_path / "results/m-cpu/x", run_id=own)
    found = machine_page.plane_records(tmp_path, run)
    assert [(r.experiment, r.size) for r in found] == [
        ("naive-sweep", "default"),
        ("machine", "smoke"),
    ]


# Values


def test_values_are_the_runs_own_and_none_where_it_lacks_them(tmp_path):
    found = machine_values.of_machine(facts())
    assert set(found) == set(machine_values.MACHINE_FIELDS)
    assert found["check_error_percent"] == pytest.approx(2.222, abs=0.01)
    assert found["bandwidth_gigabytes"] == pytest.approx(0.008 / profile().step_seconds)
    assert found["dearest_percent"] == pytest.approx(
        50 * (3 - profile().verify_ratio(3))
    )
    book_project.add_draft_results(tmp_path, "machine")
    [record] = collect(tmp_path)
    assert set(machine_values.of_machine(record.facts).values()) == {None}
    json.dumps(found)
