"""The projection against cases worked by hand, and never among measured rows."""

import json
import math
import re

import book_project
import pytest

from selfspec.study import pages, projection, reference
from selfspec.study.projection import projected_speedup
from selfspec.study.reference import Curve
from selfspec.study.run_records import collect, latest

ROOT = book_project.ROOT
CURVE = {2: 1.0, 3: 1.2, 5: 1.6}
CPU = "testron-9000-8-cores-16gb-cpu"
SHARES = {
    "skip 10 %": {"cost_ratio": 0.83, "kept": 0.0},
    "exit 2": {"cost_ratio": 0.5, "kept": 0.25},
}


def test_two_texts_worked_by_hand():
    """3 + 1 tokens in rounds of 2*0.8 + 1.2 and of 2.8; 2 tokens in one of 1.8 + 1."""
    texts = [([(2, 2), (2, 0)], 4), ([(1, 1)], 2)]
    found = projected_speedup(texts, cost_ratio=0.8, verify_ratio=CURVE)
    assert found == pytest.approx(6 / (2.8 + 2.8 + 1.8))


def test_kept_rows_save_their_share_of_the_further_rows():
    texts = [([(2, 2)], 3)]
    found = projected_speedup(texts, cost_ratio=0.5, verify_ratio=CURVE, kept=0.25)
    assert found == pytest.approx(3 / (1.0 + 1.2 - 0.25 * 0.2))


def test_a_round_without_a_draft_is_a_plain_step():
    texts = [([(0, 0), (0, 0)], 2)]
    assert projected_speedup(texts, cost_ratio=0.5, verify_ratio=CURVE) == 1


def test_between_widths_a_curve_is_straight_and_beyond_the_last_nothing_is_said():
    found = projected_speedup([([(3, 3)], 4)], cost_ratio=0, verify_ratio=CURVE)
    assert found == pytest.approx(4 / 1.4)
    beyond = projected_speedup([([(5, 5)], 6)], cost_ratio=0, verify_ratio=CURVE)
    assert math.isnan(beyond)
    assert math.isnan(projected_speedup([], cost_ratio=0, verify_ratio=CURVE))


def test_where_rows_cost_what_they_are_no_draft_that_costs_anything_wins():
    linear = {m: float(m) for m in range(2, 9)}
    for length in range(1, 8):
        texts = [([(length, length)], length + 1)]
        assert projected_speedup(texts, cost_ratio=0.1, verify_ratio=linear) < 1


@pytest.fixture
def records(tmp_path):
    cases = (("skip 10 %", 2), ("exit 2", 2))
    book_project.add_draft_results(
        tmp_path, "machine", machine=CPU, cases=cases, weight_shares=SHARES
    )
    book_project.add_results(
        tmp_path, machine=CPU, mechanisms=("two caches", "one cache")
    )
    return latest(collect(tmp_path))


def test_drafts_of_the_sweep_get_their_weights_from_the_machine_run(records):
    found = projection.configurations(records)
    by_draft = {line["draft"]: line for line in found}
    assert set(by_draft) == {
        "skip 10 %",
        "exit 2",
        "skip 10 %, two caches",
        "skip 10 %, one cache",  # half is skipped too, but nobody knows its weights
    }
    assert by_draft["skip 10 %, two caches"]["weight_cost"] == 0.83
    assert by_draft["exit 2"]["kept"] == 0.25
    assert by_draft["exit 2"]["cost_ratio"] == pytest.approx(0.6)  # as measured


def test_every_configuration_meets_every_curve_with_either_cost(records):
    curves = [Curve("s", "M9", "whole", True, "4-bit", CURVE)]
    table = projection.project(projection.configurations(records), curves)
    line = table[table["draft"] == "exit 2"].iloc[0]
    # the invented rows: one round "2:1" of a text of 24 tokens
    assert line["weight_cost"] == pytest.approx(24 / (1 + 1.2 - 0.05))
    assert line["cost_ratio"] == pytest.approx(24 / (1.2 + 1.2 - 0.05))


def test_the_fragment_is_marked_and_cites_every_curve(records):
    text = projection.fragment(records, ROOT)
    assert text.startswith("```{warning}\nProjected, not measured")
    assert "Testron 9000" in text and "CPU" in text
    for curve in reference.apple_curves(ROOT):
        named = f"{{cite:p}}`{curve.source}`" in text
        assert named == (curve.chip != "not stated")
    for chip in projection.UNKNOWN:
        assert f"| {chip} | no published curve | - |" in text


def test_no_measured_speedup_stands_in_a_projected_table(records):
    text = projection.fragment(records, ROOT)
    for record in records:
        for speedup in record.table["speedup"]:
            assert f"| {speedup:.2f} " not in text


def test_without_runs_or_weights_nothing_is_projected(tmp_path):
    assert "Not yet measured" in projection.fragment([], ROOT)
    book_project.add_draft_results(tmp_path, "machine", machine=CPU)
    found = projection.fragment(latest(collect(tmp_path)), ROOT)
    assert "Not yet measured" in found


def test_a_mac_has_curves_of_its_own(tmp_path):
    book_project.add_draft_results(tmp_path, "machine", weight_shares=SHARES)
    found = projection.fragment(latest(collect(tmp_path)), ROOT)
    assert "Not yet measured" in found


def test_the_book_includes_what_pages_write(tmp_path):
    root = book_project.copy_to(tmp_path / "clone")
    book_project.forget_runs(root)
    pages.write(root)
    written = (root / "book" / "_generated" / "projection.md").read_text()
    assert "Not yet measured" in written
    page = (root / "book" / "projection.md").read_text()
    assert "_generated/projection.md" in page


# Published curves


def test_every_published_row_is_cited_and_says_what_was_timed():
    curves = reference.apple_curves(ROOT)
    bibliography = (ROOT / "book" / "references.bib").read_text()
    named = set(re.findall(r"@misc\{([\w-]+),", bibliography))
    assert {curve.source for curve in curves} <= named
    readme = (ROOT / "results" / "reference" / "README.md").read_text()
    assert "apple-verify-ratios.csv" in readme and "M3 Ultra contradicts" in readme
    assert len({(c.source, c.name) for c in curves}) == len(curves)
    assert all(curve.what and curve.quantisation for curve in curves)


def test_published_values_are_those_of_the_sources():
    curves = {(c.source, c.what): c for c in reference.apple_curves(ROOT)}
    matrix = "5120 x 17408"
    assert curves["mlx-3852", matrix].verify_ratio[5] == 1.75
    assert curves["mlx-3863", matrix].verify_ratio[4] == 1.28
    ultra = curves["mlx-4265", matrix]
    assert ultra.verify_ratio[4] == 3.26 and ultra.widest == 16
    whole = [c for c in curves.values() if c.whole_model and c.chip == "M5 Max"]
    assert {3: 1.11, 5: 1.42, 8: 2.2, 12: 3.86} in [c.verify_ratio for c in whole]


def test_a_spoilt_file_of_curves_is_refused(tmp_path):
    folder = tmp_path / "results" / "reference"
    folder.mkdir(parents=True)
    good = (ROOT / "results/reference/apple-verify-ratios.csv").read_text()
    (folder / "apple-verify-ratios.csv").write_text(good.replace(",no,", ",maybe,"))
    with pytest.raises(reference.StudyError, match="Way out"):
        reference.apple_curves(tmp_path)


def test_projections_are_no_values_of_the_book(records):
    from selfspec.study import values

    found = values.values(records, reference.post(ROOT))
    assert not [key for key in found if "project" in key]
    json.dumps(found)
