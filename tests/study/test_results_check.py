"""What `selfspec check` finds in results/: each fault is planted and must be named."""

import json
import shutil

import book_project
import pytest

from selfspec.study import refusals, results_check
from selfspec.study.results import read_csv, write_atomic

MACHINE, MODEL = "apple-m3-16gb-metal", "tiny-0.5b"


@pytest.fixture
def project(tmp_path):
    for name in ("results/reference", "book/references.bib"):
        source, place = book_project.ROOT / name, tmp_path / name
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        place.parent.mkdir(parents=True, exist_ok=True)
        copy(source, place)
    book_project.add_results(tmp_path)
    return tmp_path


@pytest.fixture
def folder(project):
    return project / "results" / MACHINE / MODEL


def change_provenance(folder, change):
    path = folder / "provenance.json"
    data = json.loads(path.read_text())
    for run in data["runs"].values():
        change(run)
    path.write_text(json.dumps(data))


def test_results_of_this_project_are_whole():
    assert results_check.faults(book_project.ROOT) == []
    assert results_check.count(book_project.ROOT) > 5


def test_a_whole_run_and_a_refused_model_have_no_fault(project, folder):
    refusals.record(
        folder.parent / "mamba", "auto", book_project.facts(), "it cannot go back"
    )
    assert results_check.faults(project) == []


def plant_twice(folder):
    lines = (folder / "naive-sweep.csv").read_text().splitlines()
    write_atomic(folder / "naive-sweep.csv", "\n".join([*lines, lines[1]]) + "\n")


def plant_text(folder):
    path = folder / "naive-sweep.csv"
    path.write_text(path.read_text().replace("equal", "different", 1))


def plant_width(folder):
    with open(folder / "naive-sweep.csv", "a") as file:
        file.write("1,abc\n")


def plant_size(folder):
    change_provenance(folder, lambda run: run.update(size="paper"))


def plant_run(folder):
    path = folder / "provenance.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "runs": {}}))


def plant_missing(folder):
    change_provenance(folder, lambda run: run.pop("command"))


def plant_chip(folder):
    change_provenance(folder, lambda run: run["machine"].pop("chip"))


def plant_experiment(folder):
    change_provenance(folder, lambda run: run.update(experiment="magic"))


def plant_rows_gone(folder):
    path = folder / "naive-sweep.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")


def plant_file_gone(folder):
    (folder / "naive-sweep.csv").unlink()


def plant_path(folder):
    change_provenance(folder, lambda run: run.update(command="selfspec /home/me/m"))


def plant_newer(folder):
    path = folder / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))


def plant_binary(folder):
    (folder / "naive-sweep.csv").write_bytes(b"\xff\xfe\x00")


def plant_table(folder):
    (folder / "exits.csv").write_text("a,b\n1\n")


def plant_benchmark(folder):
    (folder / "decoding.json").write_text('{"machine": {}}')


@pytest.mark.parametrize(
    "plant, says",
    [
        (plant_twice, "naive-sweep.csv: run {run} has 1 configurations twice"),
        (plant_text, "naive-sweep.csv: run {run} has texts that are 'different'"),
        (plant_width, "naive-sweep.csv cannot be read (line 14 is incomplete)"),
        (plant_size, "naive-sweep.csv: run {run} is of another size than its rows"),
        (plant_run, "12 rows of run {run}, which provenance.json lacks"),
        (plant_missing, "run {run}: its provenance does not say command"),
        (plant_chip, "run {run}: its provenance does not say machine.chip"),
        (plant_experiment, "run {run}: no experiment 'magic' is known here"),
        (plant_rows_gone, "naive-sweep.csv: the rows of run {run} are gone"),
        (plant_file_gone, "run {run}: there is no naive-sweep.csv"),
        (plant_path, "provenance.json: names '/home/me/m', which is of one machine"),
        (plant_newer, "provenance.json has schema 99"),
        (plant_binary, "naive-sweep.csv: cannot be read as UTF-8"),
        (plant_table, "exits.csv: line 2 is incomplete"),
        (plant_table, "exits.csv: no exits.json or about.json tells of it"),
        (plant_benchmark, "decoding.json: its provenance does not say versions"),
    ],
)
def test_a_fault_is_named_in_one_line(project, folder, plant, says):
    run = read_csv(folder / "naive-sweep.csv")[0]["run_id"]
    plant(folder)
    found = results_check.faults(project)
    assert any(says.format(run=run) in line for line in found), found
    assert all("\n" not in line and str(project) not in line for line in found)


def test_a_published_figure_needs_its_source(project):
    path = project / "results" / "reference" / "layerskip-exits.csv"
    header, first, *_ = path.read_text().splitlines()
    path.write_text(f"{header}\nnobody2099,{first.split(',', 1)[1]}\n")
    [line] = results_check.faults(project)
    assert "layerskip-exits.csv: line 2: no source 'nobody2099'" in line


def test_what_git_ignores_is_not_looked_at(project, folder):
    (folder / ".naive-sweep.unfinished.json").write_text("{")
    (folder / ".work").mkdir()
    (folder / ".work" / "half.csv").write_text("a\n1,2\n")
    assert results_check.faults(project) == []
