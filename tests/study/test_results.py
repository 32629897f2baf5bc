"""Results on disk: atomic, resumable after a kill, never somebody else's rows."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from selfspec.study import results
from selfspec.study.results import ResultsError, Run, read_csv, read_provenance

COLUMNS = ("size", "prompt", "value")


def open_run(folder, fingerprint="same", total=4):
    return Run.open(
        folder, "sweep", COLUMNS, fingerprint, total=total, provenance={"size": "smoke"}
    )


def row(prompt, value=1.0):
    return {"size": "smoke", "prompt": prompt, "value": value}


def marker(folder):
    return folder / ".sweep.unfinished.json"


def test_rows_come_back_with_run_and_schema(tmp_path):
    with open_run(tmp_path) as run:
        run.append(row("a"), row("b", 2.5))
        assert [r["prompt"] for r in run.rows()] == ["a", "b"]
        assert run.rows()[0]["schema"] == str(results.SCHEMA)
        run.finish({"drift": 0.0})
    known = read_provenance(tmp_path)[run.id]
    assert known["finished"] and known["size"] == "smoke" and known["drift"] == 0.0
    assert not marker(tmp_path).exists()


def test_an_unfinished_run_goes_on_and_a_finished_one_does_not(tmp_path):
    with open_run(tmp_path) as first:
        first.append(row("a"))
    with open_run(tmp_path) as second:
        assert second.id == first.id and second.resumed
        assert [r["prompt"] for r in second.rows()] == ["a"]
        second.append(row("b"))
        second.finish({})
    with open_run(tmp_path) as third:
        assert third.id != first.id and not third.resumed
        assert third.rows() == []
    assert len(read_csv(tmp_path / "sweep.csv")) == 2
    known = read_provenance(tmp_path)
    assert (known[first.id]["number"], known[third.id]["number"]) == (1, 2)


def test_another_fingerprint_begins_a_new_run_beside_the_old_one(tmp_path):
    with open_run(tmp_path, "code of yesterday") as old:
        old.append(row("a"))
    with open_run(tmp_path, "code of today") as new:
        assert new.id != old.id and new.rows() == []
        new.append(row("a"))
    assert {r["run_id"] for r in read_csv(tmp_path / "sweep.csv")} == {old.id, new.id}


def test_rows_that_came_with_a_clone_are_never_continued(tmp_path):
    """A clone has CSV and provenance, finished or not, but never the marker."""
    with open_run(tmp_path) as theirs:
        theirs.append(row("a"))
    marker(tmp_path).unlink()
    with open_run(tmp_path) as mine:
        assert mine.id != theirs.id and mine.rows() == []


def test_a_killed_process_loses_no_row_and_repeats_none(tmp_path):
    """kill -9 at some moment; what was appended is whole, the rest is done after."""
    script = textwrap.dedent(
        f"""
        import pathlib, time
        from selfspec.study.results import Run
        run = Run.open(pathlib.Path({str(tmp_path)!r}), "sweep", {COLUMNS!r}, "same",
                       total=40, provenance={{}})
        done = {{r["prompt"] for r in run.rows()}}
        for number in range(40):
            if str(number) not in done:
                run.append({{"size": "smoke", "prompt": str(number), "value": number}})
                print(number, flush=True)
                time.sleep(0.002)
        run.finish({{}})
        """
    )
    ids = set()
    for kills in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        seen = [process.stdout.readline() for _ in range(7)]
        if not seen[-1]:  # it finished
            process.wait()
            break
        time.sleep(0.001 * kills)
        process.send_signal(signal.SIGKILL)
        process.wait()
        ids |= {r["run_id"] for r in read_csv(tmp_path / "sweep.csv")}
    rows = read_csv(tmp_path / "sweep.csv")
    assert kills >= 2, "the run ended before it could be killed"
    assert [r["prompt"] for r in rows] == [str(n) for n in range(40)]
    assert len(ids) == 1
    assert not marker(tmp_path).exists()


def test_two_studies_on_one_folder_are_refused(tmp_path):
    with open_run(tmp_path):
        with pytest.raises(ResultsError, match="another study"):
            open_run(tmp_path)
    open_run(tmp_path).close()


def test_a_row_with_other_columns_is_refused(tmp_path):
    with open_run(tmp_path) as run:
        with pytest.raises(ValueError, match="columns"):
            run.append({"size": "smoke", "prompt": "a"})
        assert run.rows() == []


@pytest.mark.parametrize(
    "text, why",
    [
        ("schema,run_id,value\n1,r1\n", "incomplete"),
        ("schema,run_id,value\n1,r1,2,3\n", "incomplete"),
        ("a,b\n1,2\n", "incomplete"),
        ("schema,run_id\n,r1\n", "schema"),
        ("schema,run_id\n99,r1\n", "schema 99"),
        ('schema,run_id\n1,"r1\n', "cannot be read"),
    ],
)
def test_a_corrupt_csv_is_named_and_left_as_it_is(tmp_path, text, why):
    path = tmp_path / "sweep.csv"
    path.write_text(text)
    with pytest.raises(ResultsError, match=why) as caught:
        open_run(tmp_path)
    assert "Way out" in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_text() == text


def test_a_corrupt_provenance_is_named_and_left_as_it_is(tmp_path):
    path = tmp_path / "provenance.json"
    path.write_text('{"schema": 1, "runs": {')
    with pytest.raises(ResultsError, match="provenance.json"):
        open_run(tmp_path)
    assert path.read_text() == '{"schema": 1, "runs": {'


def test_newer_provenance_is_refused(tmp_path):
    path = tmp_path / "provenance.json"
    path.write_text('{"schema": 99, "runs": {}}')
    with pytest.raises(ResultsError, match="schema 99"):
        read_provenance(tmp_path)


def test_a_full_disk_is_one_line_and_keeps_the_rows(tmp_path, monkeypatch):
    with open_run(tmp_path) as run:
        run.append(row("a"))

        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ResultsError, match="No space left.*Way out"):
            run.append(row("b"))
        monkeypatch.undo()
        assert [r["prompt"] for r in run.rows()] == ["a"]
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".*.tmp"))


def test_a_cut_off_marker_begins_anew(tmp_path):
    with open_run(tmp_path) as run:
        run.append(row("a"))
    marker(tmp_path).write_text('{"run_id": "x"')
    with open_run(tmp_path) as fresh:
        assert fresh.id != run.id


def test_the_marker_counts_what_is_done(tmp_path):
    with open_run(tmp_path) as run:
        run.append(row("a"), row("b"))
        known = json.loads(marker(tmp_path).read_text())
        assert (known["done"], known["total"]) == (2, 4)


def test_older_columns_survive_a_newer_run(tmp_path):
    with open_run(tmp_path) as run:
        run.append(row("a"))
    later = Run.open(
        tmp_path, "sweep", (*COLUMNS, "extra"), "newer", total=1, provenance={}
    )
    later.append({**row("b"), "extra": "x"})
    later.close()
    rows = read_csv(tmp_path / "sweep.csv")
    assert [r["extra"] for r in rows] == ["", "x"]


def test_slug_is_safe_in_paths_and_labels():
    assert results.slug("Intel(R) Xeon(R), 24 GB / cpu") == "intel-r-xeon-r-24-gb-cpu"
    assert results.slug("///") == "unnamed"


def test_text_where_a_number_belongs_is_one_line_that_names_the_run(tmp_path):
    from selfspec.study import row_table, sweep_rows

    path = tmp_path / "naive-sweep.csv"
    columns = ["schema", "run_id", *sweep_rows.COLUMNS]
    path.write_text(
        ",".join(columns) + "\n1,mine," + ",".join(["oops"] * len(columns[2:])) + "\n"
    )
    with pytest.raises(ResultsError, match="run mine.*oops.*Way out") as caught:
        row_table.load_rows(path, "mine")
    assert "\n" not in str(caught.value)


def test_a_file_without_run_ids_is_refused(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text("schema,value\n1,2\n")
    with pytest.raises(ResultsError, match="line 2 is incomplete.*Way out"):
        read_csv(path)


def test_a_file_where_the_folder_should_be_is_one_line(tmp_path):
    (tmp_path / "machine").write_text("")
    with pytest.raises(ResultsError, match="cannot write to .*Way out") as caught:
        open_run(tmp_path / "machine" / "model")
    assert "\n" not in str(caught.value)


def test_a_provenance_that_a_hand_changed_names_file_and_run(tmp_path):
    from selfspec.study import run_records

    place = tmp_path / "results" / "m" / "x" / "provenance.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"schema": 1, "runs": {"mine": {"finished": true}}}')
    with pytest.raises(ResultsError, match="provenance.json.*run mine.*Way out"):
        run_records.collect(tmp_path)
    place.write_text('{"schema": 1, "runs": []}')
    with pytest.raises(ResultsError, match="its runs are no object.*Way out"):
        run_records.collect(tmp_path)
