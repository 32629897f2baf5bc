"""What is committed under book/ and results/: fresh, clean, and with no loose number."""

import re

import book_project
import nbformat
import pytest

from selfspec.study import page_check, pages, run_records, sweep_summary
from selfspec.study.sweep_grid import SIZES

ROOT = book_project.ROOT
PROSE = sorted((ROOT / "book").glob("*.md"))
TEXTS = (".md", ".csv", ".json", ".yml", ".bib", ".css", ".ipynb", ".svg")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return book_project.copy_to(tmp_path_factory.mktemp("committed") / "clone")


def test_nothing_committed_names_a_path_a_host_or_a_user(clone):
    seen = 0
    for folder in ("book", "results", "notebooks"):
        for path in (clone / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXTS and path.suffix != ".ipynb":
                seen += 1
                assert page_check.leaks(path.read_text("utf-8")) == [], path.name
    assert seen > 10


def test_committed_run_pages_are_complete_and_clean(clone):
    for path in (clone / "book" / "runs").rglob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        assert page_check.problems(notebook) == [], path
        assert notebook.metadata.selfspec.run_id, path


def test_generated_files_say_what_the_results_say(clone):
    written = pages.write(clone)
    assert written.changed == (), "run `selfspec book` and commit what it changes"
    assert written.left_out == ()


def test_the_committed_sweep_of_the_embedded_model_is_whole(clone):
    records = [
        record
        for record in run_records.collect(clone)
        if (record.experiment, record.size) == ("naive-sweep", "paper")
        and record.facts["model"]["kind"] == "embedded"
    ]
    assert records, "the study's own run is not committed"
    grid = SIZES["paper"]
    for record in records:
        assert not record.facts["dirty"] and record.facts["commit"]
        assert set(record.tables) == set(sweep_summary.MECHANISMS)
        for table in record.tables.values():
            found = zip(table["skip_fraction"], table["num_draft_tokens"], strict=True)
            assert sorted(found) == sorted(grid.configurations)
            assert table["prompts"].min() >= 8
        assert record.rows["tokens"].max() == 64 == grid.num_tokens
        assert record.lossless == len(record.rows)
        assert (clone / "book" / f"{record.page}.ipynb").is_file()


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.stem)
def test_prose_holds_no_loose_measured_number(path):
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    text = re.sub(r"\{result\}`[^`]*`%?", "", text)
    loose = re.findall(r"\b\d+(?:\.\d+)? ?(?:%|x\b|times\b)|\b[01]\.\d+\b", text)
    # a convention each: the level of the interval, the bound on drift
    assert set(loose) <= {"95%", "5%"}, loose


def test_reference_rows_say_which_configuration_is_inferred():
    lines = (
        (ROOT / "results/reference/naive-layer-skip-post.csv").read_text().splitlines()
    )
    assert lines[0] == (
        "source,model,machine,skip_fraction,num_draft_tokens,acceptance_rate,"
        "speedup,inferred,note"
    )
    assert len(lines) == 4 and all(",yes," in line for line in lines[1:3])
    bibliography = (ROOT / "book" / "references.bib").read_text()
    assert f"{{{lines[1].split(',')[0]}," in bibliography
