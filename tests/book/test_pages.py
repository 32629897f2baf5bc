"""What pages.write makes of results/: fragments, values, table of contents."""

import csv
import html
import json
import re
import shutil

import book_project
import nbformat
import pytest
import yaml
from markdown_it import MarkdownIt

from selfspec.study import fragments, pages, run_records, runner, sweep_summary
from selfspec.study.errors import StudyError
from selfspec.study.results import ResultsError

METAL = "apple-m3-16gb-metal"
CPU = "testron-9000-8-cores-16gb-cpu"


def add_page(
    root,
    run_id="",
    *,
    machine=METAL,
    model="tiny-0.5b",
    size="default",
    experiment="naive-sweep",
):
    """A finished page, without running anything."""
    page = runner.page_path(root, machine, model, experiment, size)
    page.parent.mkdir(parents=True, exist_ok=True)
    cell = nbformat.v4.new_code_cell("1", execution_count=1, id="a")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata["selfspec"] = {"run_id": run_id}
    nbformat.write(notebook, page)
    return page


def generated(root, name):
    return (root / "book" / "_generated" / name).read_text()


def values(root):
    return json.loads(generated(root, "values.json"))


def toc_files(root):
    def files(node):
        if isinstance(node, dict):
            own = [node["file"]] if "file" in node else []
            return own + [f for item in node.values() for f in files(item)]
        if isinstance(node, list):
            return [f for item in node for f in files(item)]
        return []

    return files(yaml.safe_load((root / "_toc.yml").read_text()))


def front(root):
    """The pages that the book's order names, as far as they are there."""
    there = {path.stem for path in (root / "book").glob("*.md")}
    return [name for name in pages.FRONT if name in there]


def back(root):
    """The same of its end."""
    there = {path.stem for path in (root / "book").glob("*.md")}
    return [name for name in pages.BACK if name in there]


def everything(root):
    paths = [root / "_toc.yml", *sorted((root / "book" / "_generated").rglob("*"))]
    return {path: path.read_bytes() for path in paths if path.is_file()}


def test_no_run_at_all_is_said_plainly(project):
    pages.write(project)
    assert "Not yet measured" in generated(project, "answer.md")
    assert toc_files(project) == [*front(project), *back(project)]
    assert values(project)["metal.naive-sweep.two-caches.best_speedup"] is None
    assert values(project)["runs"] == 0


def test_writing_twice_changes_nothing(project):
    add_page(project, book_project.add_results(project))
    assert pages.write(project).changed != ()
    before = everything(project)
    assert pages.write(project).changed == ()
    assert everything(project) == before


def test_deleting_a_run_leaves_no_trace(project):
    pages.write(project)
    before = everything(project)
    page = add_page(project, book_project.add_results(project))
    pages.write(project)
    assert everything(project) != before
    shutil.rmtree(project / "results" / METAL)
    page.unlink()
    pages.write(project)
    assert everything(project) == before


def test_page_whose_results_are_gone_is_left_out_and_named(project):
    page = add_page(project, book_project.add_results(project))
    name = page.relative_to(project / "book").with_suffix("").as_posix()
    assert pages.write(project).pages == (name,)
    shutil.rmtree(project / "results" / METAL)
    written = pages.write(project)
    assert (written.pages, written.left_out) == ((), (name,))
    assert name not in toc_files(project)


def test_run_page_stands_under_its_experiment_with_its_origins(project):
    page = add_page(project, book_project.add_results(project))
    name = page.relative_to(project / "book").with_suffix("").as_posix()
    pages.write(project)
    order = front(project)
    order.insert(order.index("naive-sweep") + 1, name)
    assert toc_files(project) == [*order, *back(project)]
    box = generated(project, f"{name}.md")
    for fact in (
        *(
            "Apple M3",
            "16 GB",
            "macOS 26.1",
            "mains",
            "mlx 0.32.4",
            "tiny-0.5b",
            "4 bits",
        ),
        *("ab" * 32, "0123456789ab", "selfspec study --model tiny-0.5b", "2026-11-30"),
        "<../../../results/apple-m3-16gb-metal/tiny-0.5b/naive-sweep.csv>",
    ):
        assert fact in box


def test_every_page_of_the_book_folder_gets_in(project):
    (project / "book" / "zebra.md").write_text("# Zebra\n")
    pages.write(project)
    assert toc_files(project) == [*front(project), "zebra", *back(project)]


def test_page_with_an_error_stops_the_book(project):
    page = add_page(project, book_project.add_results(project))
    notebook = nbformat.read(page, as_version=4)
    notebook.cells[0].outputs = [
        nbformat.v4.new_output("error", ename="E", evalue="v", traceback=[])
    ]
    nbformat.write(notebook, page)
    with pytest.raises(StudyError, match="naive-sweep-default.*error: E: v.*Way out"):
        pages.write(project)
    page.write_text("{")
    with pytest.raises(StudyError, match="is not a notebook.*Way out"):
        pages.write(project)


def test_unfinished_run_is_not_shown(project):
    book_project.add_results(project, finish=False)
    pages.write(project)
    assert "Not yet measured" in generated(project, "answer.md")


def test_page_keeps_the_origins_of_its_own_run(project):
    """A newer run of the same size whose page failed must not lend its date to the old."""
    first = book_project.add_results(project)
    page = add_page(project, first)
    book_project.add_results(project, speedup=0.5, date="2026-12-24T00:00:00+00:00")
    pages.write(project)
    name = page.relative_to(project / "book").with_suffix("").as_posix()
    assert first in generated(project, f"{name}.md")
    assert "2026-12-24" in generated(project, "naive-sweep-runs.md")


def test_readers_run_of_another_size_stands_beside_the_committed_one(project):
    book_project.add_results(project, size="paper", speedup=0.7)
    book_project.add_results(
        project, size="default", speedup=0.9, date="2027-01-01T00:00:00+00:00"
    )
    pages.write(project)
    table = generated(project, "naive-sweep-runs.md")
    assert "paper, 2026-11-30" in table and "default, 2027-01-01" in table
    assert "0.70 times" in generated(project, "answer.md")  # the larger run speaks


def test_machines_are_never_pooled_and_a_cpu_says_cpu(project):
    book_project.add_results(project, speedup=1.3)
    book_project.add_results(project, machine=CPU, speedup=0.6)
    pages.write(project)
    found = values(project)
    assert found["metal.naive-sweep.two-caches.best_speedup"] == pytest.approx(
        1.3, rel=0.02
    )
    assert found["cpu.naive-sweep.two-caches.best_speedup"] == pytest.approx(
        0.6, rel=0.02
    )
    assert found["cuda.naive-sweep.two-caches.best_speedup"] is None
    for name in ("answer.md", "naive-sweep-runs.md"):
        assert "Testron 9000 (8 cores, 16 GB, CPU)" in generated(project, name)


def test_a_name_of_somebody_elses_choosing_is_shown_letter_by_letter(project):
    """A folder `<b>` made the rest of every page bold; `_x_` was slanted."""
    name = "x | `y` <b>_z_* {w} $v$"
    command = f"selfspec study --model '{name}'"
    run_id = book_project.add_results(project, command=command)
    [path] = (project / "results").glob("*/*/provenance.json")
    path.write_text(
        path.read_text().replace('"name": "tiny-0.5b"', f'"name": "{name}"')
    )
    add_page(project, run_id)
    pages.write(project)
    read = MarkdownIt().enable("table").render
    for place in ("answer.md", "naive-sweep-runs.md"):
        text = read(generated(project, place))
        assert "x | `y` &lt;b&gt;_z_* {w} $v$" in text, text
    [box] = (project / "book" / "_generated" / "runs").rglob("*.md")
    inner = re.search(r"note dropdown\n\n(.*)\n```", box.read_text(), re.DOTALL)[1]
    assert f"<code>{html.escape(command, quote=False)}</code>" in read(inner)


def test_texts_too_short_to_time_count_as_lossless_all_the_same(project):
    book_project.add_results(project)
    [path] = (project / "results").glob("*/*/naive-sweep.csv")
    rows = list(csv.DictReader(path.open()))
    for row in rows[:3]:
        row["speedup"] = row["predicted_speedup"] = ""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    pages.write(project)
    assert "Lossless in 12 of 12 pairs." in generated(project, "answer.md")
    assert values(project)["metal.naive-sweep.pairs"] == 12


def test_two_models_of_one_name_can_be_told_apart(project):
    """Two folders `tiny-0.5b`: the table would show one model twice."""
    book_project.add_results(project, model="tiny-0.5b-aaaaaa")
    book_project.add_results(project, model="tiny-0.5b-bbbbbb", speedup=0.5)
    pages.write(project)
    for name in ("answer.md", "naive-sweep-runs.md"):
        text = generated(project, name)
        assert "tiny-0.5b (tiny-0.5b-aaaaaa)" in text
        assert "tiny-0.5b (tiny-0.5b-bbbbbb)" in text
    shutil.rmtree(project / "results" / METAL / "tiny-0.5b-bbbbbb")
    pages.write(project)
    assert "(tiny" not in generated(project, "naive-sweep-runs.md")


def test_mac_that_nobody_measured_is_named_as_missing(project):
    book_project.add_results(project, machine=CPU)
    pages.write(project)
    assert "Apple silicon (Metal)**: not yet measured" in generated(
        project, "answer.md"
    )
    book_project.add_results(project)
    pages.write(project)
    assert "not yet measured" not in generated(project, "answer.md")


def test_too_few_prompts_get_no_verdict(project):
    book_project.add_results(project, prompts=2)
    pages.write(project)
    answer = generated(project, "answer.md")
    assert "Too few prompts for an interval" in answer and "[" not in answer
    assert values(project)["metal.naive-sweep.two-caches.best_low"] is None


def test_drift_beyond_the_bound_is_flagged(project):
    run_id = book_project.add_results(project, drift=-0.08)
    page = add_page(project, run_id)
    pages.write(project)
    name = page.relative_to(project / "book").with_suffix("").as_posix()
    assert "moved by -8%" in generated(project, f"{name}.md")
    assert "(drifted)" in generated(project, "naive-sweep-runs.md")


def test_uncommitted_code_is_shown(project):
    book_project.add_results(project, dirty=True)
    [record] = run_records.collect(project)
    assert "0123456789ab, with uncommitted changes" in fragments.origins(record, "x")


def test_counts_and_losslessness_come_from_the_rows(project):
    book_project.add_results(project)
    pages.write(project)
    answer = generated(project, "answer.md")
    assert "Faster than plain decoding: 0; no difference: 0; slower: 2." in answer
    assert "Lossless in 12 of 12 pairs." in answer


def test_mechanisms_are_told_apart_and_the_posts_comes_first(project):
    book_project.add_results(
        project, mechanisms=("one cache", "two caches"), speedup=0.7
    )
    pages.write(project)
    found = values(project)
    first = found["metal.naive-sweep.one-cache.best_speedup"]
    assert first == pytest.approx(0.7, rel=0.02)
    second = found["metal.naive-sweep.two-caches.best_speedup"]
    assert second == pytest.approx(0.9, rel=0.02)
    for name in ("answer.md", "naive-sweep-runs.md"):
        text = generated(project, name).lower()
        assert text.index("two caches") < text.index("one cache")
    assert "Lossless in 24 of 24 pairs" in generated(project, "answer.md")


def test_mechanisms_have_the_names_that_the_sweep_gives_them():
    from selfspec.study import naive_sweep

    assert sweep_summary.MECHANISMS == (naive_sweep.TWO_CACHES, naive_sweep.ONE_CACHE)


def test_post_figures_imply_a_costly_verification(project):
    pages.write(project)
    found = values(project)
    assert found["post.best_speedup"] == 0.8 and found["post.worst_speedup"] == 0.22
    assert round(found["post.best_rest"], 1) == 1.2
    assert round(found["post.worst_rest"]) == 3


def test_run_elsewhere_is_one_clear_line(tmp_path):
    with pytest.raises(StudyError, match="no book/index.md here. Way out"):
        pages.write(tmp_path)


def test_pages_come_in_the_order_of_the_book(project):
    pages.write(project)
    assert toc_files(project) == [
        *("method", "mathematics", "losslessness"),
        *("machine", "naive-sweep", "engine", "auto", "layerskip", "knapsack"),
        "fitted-exit",
        *("projection", "verdict", "claims"),
        *("add-your-machine", "contributing", "api", "glossary", "references"),
    ]


@pytest.mark.parametrize("experiment", ["machine", "auto"])
def test_a_run_of_drafts_stands_under_its_own_page_with_its_origins(
    project, experiment
):
    run_id = book_project.add_draft_results(project, experiment)
    page = add_page(project, run_id, experiment=experiment)
    name = page.relative_to(project / "book").with_suffix("").as_posix()
    pages.write(project)
    files = toc_files(project)
    if experiment in files:
        assert files[files.index(experiment) + 1] == name
    box = generated(project, f"{name}.md")
    assert f"tiny-0.5b/{experiment}.csv>" in box and run_id in box
    table = generated(project, f"{experiment}-runs.md")
    assert f"{{doc}}`default </{name}>`, 2026-11-30" in table
    assert "skip 10 %" in table if experiment == "auto" else "exit 2, 3" in table


def test_the_answer_and_its_table_are_of_the_naive_sweep_only(project):
    pages.write(project)
    before = {n: generated(project, n) for n in ("answer.md", "naive-sweep-runs.md")}
    for experiment in ("machine", "auto"):
        assert "Not yet measured" in generated(project, f"{experiment}-runs.md")
        book_project.add_draft_results(project, experiment)
    pages.write(project)
    assert {name: generated(project, name) for name in before} == before
    for experiment in ("machine", "auto"):
        assert "Not yet measured" not in generated(project, f"{experiment}-runs.md")


def test_fixed_lengths_of_other_runs_stand_beside_the_rule(project):
    book_project.add_draft_results(project, "auto", speedup=1.0)
    pages.write(project)
    assert "not timed" in generated(project, "auto-runs.md")
    both = ("two caches", "one cache")
    book_project.add_results(project, mechanisms=both, speedup=0.5)
    book_project.add_draft_results(project, "machine", speedup=0.9)
    pages.write(project)
    [line] = [
        line
        for line in generated(project, "auto-runs.md").splitlines()
        if "| skip 10 % |" in line
    ]
    assert re.search(r"\| 0\.(69|70|71) \(2 tokens\) to 0\.(89|90|91) \(2 tok", line)
    assert re.search(r"\[(0\.9|1\.0)\d, 1\.0\d\] \| (above|covers) \|", line)


def test_values_of_a_run_of_drafts(project):
    pages.write(project)
    empty = values(project)
    assert empty["auto.bound"] == 0.98
    for key in ("cpu.auto.worst_speedup", "metal.machine.prediction_error_percent"):
        assert empty[key] is None
    book_project.add_draft_results(project, "machine")
    book_project.add_draft_results(project, "auto", speedup=0.7)
    pages.write(project)
    found = values(project)
    assert set(empty) <= set(found)
    assert found["metal.machine.prediction_error_percent"] == pytest.approx(5, abs=0.1)
    assert found["metal.machine.held_out_error_percent"] == pytest.approx(10, abs=0.1)
    assert found["metal.machine.best_draft"] == "exit 2"
    assert found["metal.machine.best_num_draft_tokens"] == 3
    assert found["metal.machine.worst_speedup"] == pytest.approx(0.8, rel=0.02)
    assert found["metal.auto.worst_num_draft_tokens"] == "auto"
    assert found["metal.auto.below_bound"] == 2 and found["metal.auto.above_bound"] == 0
    assert found["metal.auto.budget_percent"] == 1
    assert found["metal.auto.allowance"] == 2.5 and found["metal.auto.tokens"] == 24
    assert found["cpu.auto.worst_speedup"] is None
    # each device's keys are the same whether measured or not
    keys = [
        {k.split(".", 1)[1] for k in found if k.startswith(f"{device}.")}
        for device in ("metal", "cpu", "cuda")
    ]
    assert keys[0] == keys[1] == keys[2]


def test_the_first_figure_shows_machine_runs_and_leaves_the_rule_out(project):
    book_project.add_results(project)
    pages.write(project)
    before = generated(project, "plane.svg")
    book_project.add_draft_results(project, "auto")
    pages.write(project)
    assert generated(project, "plane.svg") == before
    book_project.add_draft_results(project, "machine")
    pages.write(project)
    assert generated(project, "plane.svg") != before
    assert "exit 1." in generated(project, "plane.md")


def test_an_experiment_of_a_newer_version_is_named(project):
    book_project.add_results(project)
    [path] = (project / "results").glob("*/*/provenance.json")
    text = path.read_text()
    path.write_text(text.replace('"experiment": "naive-sweep"', '"experiment": "new"'))
    with pytest.raises(ResultsError, match="no experiment 'new' is known.*Way out"):
        pages.write(project)
