"""The verdict says what to do, from the results, and declines where nothing pays."""

import re

import book_project
import pytest

from selfspec.study import verdict_page
from selfspec.study.run_records import collect, latest

MAC = dict(machine="apple-m3-16gb-metal", model="x")
CPU = dict(machine="testron-9000-8-cores-16gb-cpu", model="x")


def records(root):
    return latest(collect(root))


def test_nothing_measured_is_said(tmp_path):
    assert "Not yet measured" in verdict_page.table([])
    assert "On your Mac: not yet measured" in verdict_page.short_answer([])


def test_where_no_interval_lies_above_one_the_answer_is_to_decline(tmp_path):
    book_project.add_results(tmp_path, **CPU, speedup=0.7)
    [place] = verdict_page.places(records(tmp_path))
    assert place.answer == "declined" and place.winner is None
    assert "**declined**" in verdict_page.table(records(tmp_path))
    answer = verdict_page.short_answer(records(tmp_path))
    nearest = (
        r"the answer is to decline: the nearest, skip, two caches, runs at 0\.(69|7)"
    )
    assert re.search(nearest, answer)
    assert "On your Mac: not yet measured" in answer


def test_the_fastest_method_beyond_doubt_is_the_answer(tmp_path):
    book_project.add_results(tmp_path, **MAC, speedup=0.7)
    book_project.add_draft_results(tmp_path, "machine", **MAC, speedup=1.1)
    [place] = verdict_page.places(records(tmp_path))
    assert place.answer == "exit"
    row = verdict_page.table(records(tmp_path)).splitlines()[2]
    assert "| **exit** |" in row and "24 of 24" in row
    assert re.search(r"1\.(2[89]|3\d)\s\[1\.", row)
    answer = verdict_page.short_answer(records(tmp_path))
    assert answer.startswith(
        "**On a Mac:** on Apple M3 (16 GB, Metal GPU) with tiny-0.5b"
    )
    assert re.search(r"exit pays, at 1\.(2[89]|3)", answer)
    assert "skipping middle layers gives" in answer
    assert len(answer.splitlines()) == 2  # nothing but Macs was measured


def test_a_rule_that_drafted_nothing_wins_nothing(tmp_path):
    """Plain decoding came out at 1.03 above chance and was called a winning exit."""
    book_project.add_draft_results(tmp_path, "auto", **CPU, speedup=1.03)
    found = records(tmp_path)
    assert verdict_page.places(found)[0].answer == "lookup under the rule"
    found[0].table["acceptance_rate"] = float("nan")
    [place] = verdict_page.places(found)
    assert place.answer == "declined" and place.best.empty
    assert "decline" in verdict_page.short_answer(found)
    assert "| - |" not in verdict_page.details(found)


def test_too_few_prompts_give_no_answer(tmp_path):
    book_project.add_results(tmp_path, **CPU, prompts=2, speedup=1.5)
    [place] = verdict_page.places(records(tmp_path))
    assert place.answer == "too few prompts"
    assert "too few prompts for a verdict" in verdict_page.short_answer(
        records(tmp_path)
    )


def test_machines_and_models_have_a_row_each_macs_first(tmp_path):
    book_project.add_results(tmp_path, **CPU)
    book_project.add_results(tmp_path, machine=CPU["machine"], model="y")
    book_project.add_results(tmp_path, **MAC)
    lines = verdict_page.table(records(tmp_path)).splitlines()[2:]
    assert len(lines) == 3 and "Metal GPU" in lines[0]
    assert all("CPU" in line for line in lines[1:])


def test_a_mac_without_rows_is_missing_by_name(tmp_path):
    book_project.add_results(tmp_path, **CPU)
    assert "Apple silicon (Metal)**: not yet measured" in verdict_page.table(
        records(tmp_path)
    )
    book_project.add_results(tmp_path, **MAC)
    assert "not yet measured" not in verdict_page.table(records(tmp_path))


def test_plain_speed_is_that_of_the_baseline(tmp_path):
    book_project.add_results(tmp_path, **CPU)
    [place] = verdict_page.places(records(tmp_path))
    assert place.plain.value == pytest.approx(1.0)  # invented rows: a token a second
