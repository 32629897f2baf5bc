"""A figure drawn from facts has its numbers to download, made with the page's fragments."""

from pathlib import Path
from types import SimpleNamespace

import book_project

from selfspec.study import figure_data, pages, reference, run_records

ROOT = reference.find_root()


def committed(experiment):
    records = run_records.latest(run_records.collect(ROOT))
    return run_records.of_experiment(records, experiment)


def test_a_run_of_the_machine_has_its_curve_its_step_and_its_map():
    [record, *_] = committed("machine")
    found = figure_data.tables(record)
    assert set(found) == {"verify", "parts", "needed"}
    verify = found["verify"]
    used = verify[verify["blas_threads"] == record.facts["chosen_threads"]]
    assert dict(zip(used["rows"], used["verify_ratio"], strict=True))[1] > 0.5
    assert {"attention_seconds", "head_seconds"} <= set(found["parts"])
    assert found["needed"]["acceptance"].min() >= 0


def test_a_sweep_has_nothing_but_its_rows():
    [record, *_] = committed("naive-sweep")
    assert figure_data.tables(record) == {}


def test_the_table_stands_where_the_figure_says(tmp_path):
    root = book_project.copy_to(tmp_path / "clone")
    pages.write(root)
    [record, *_] = committed("machine")
    run = SimpleNamespace(
        folder=Path("results") / record.machine / record.model, provenance=record.facts
    )
    assert (root / figure_data.place(run, "verify")).is_file()
