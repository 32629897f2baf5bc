"""The runner: a template becomes a complete page, or nothing changes and one line says why.

Each refusal here is a case that papermill lets through (papermill issue numbers beside it).
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import book_project
import nbformat
import numpy as np
import pytest

from selfspec.study import page_check, runner
from selfspec.study.errors import StudyError

DEFAULTS = "model = 'unset'\nsize = 'smoke'\nskip_fractions = [0.1]\nseed = 0"


def run(root, template, parameters=None, **changes):
    options = {
        "page": runner.page_path(root, "m", "x", "e", "smoke"),
        "label": "m--x-e-smoke",
        "title": "E on m",
        "cwd": root,
        **changes,
    }
    return runner.run_notebook(template, parameters or {}, **options)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "project"


@pytest.fixture(autouse=True)
def folders(root):
    (root / "book" / "runs").mkdir(parents=True)


def make(root, *cells, **options):
    return book_project.template(root / "notebooks" / "e.ipynb", *cells, **options)


def nothing_written(root):
    return not [path for path in (root / "book").rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A page made with a decoy kernel registered as python3, and a local model folder."""
    root = tmp_path_factory.mktemp("finished")
    decoy = root / "jupyter" / "kernels" / "python3"
    decoy.mkdir(parents=True)
    spec = {"argv": ["false"], "display_name": "Wrong", "language": "python"}
    (decoy / "kernel.json").write_text(json.dumps(spec))
    (root / "results").mkdir()
    (root / "results" / "d.csv").write_text("a\n1\n")
    template = make(
        root,
        "# E\n\nSee {numref}`speedup`, [it](#speedup), {eq}`sum`.\n\n$$\na\n$$ (sum)",
        DEFAULTS,
        "import os, sys, warnings\n"
        "warnings.warn('odd')\n"
        "print('same interpreter:', sys.executable == os.environ['WANTED'])\n"
        "print('seen', os.path.basename(model), skip_fractions, type(seed).__name__)\n"
        "print('kept\\roverwritten')",
        "from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass",
        book_project.figure(csv="results/d.csv"),
        "",
        kernel={"name": "other-venv", "display_name": "Other", "language": "python"},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(root / "jupyter"))
        patch.setenv("WANTED", sys.executable)
        page = run(
            root,
            template,
            {
                "model": str(root / "models" / "my-model"),
                "skip_fractions": np.array([0.1, 0.5]),
                "seed": np.int64(3),
            },
        )
    return nbformat.read(page, as_version=4)


def text_of(notebook):
    return "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )


def test_runs_in_this_interpreter_whatever_kernels_are_registered(finished):
    """papermill 251, 638, 761: the kernel that a notebook names is not on this machine."""
    assert "same interpreter: True" in text_of(finished)


def test_page_names_the_kernel_that_ran(finished):
    """papermill 856: the notebook's metadata kept the old name."""
    assert finished.metadata.kernelspec.name == "python3"


def test_numpy_values_arrive_as_plain_ones(finished):
    assert "seen my-model [0.1, 0.5] int" in text_of(finished)


def test_local_folder_is_shown_by_its_name_only(finished):
    [cell] = [c for c in finished.cells if c.id == "injected-parameters"]
    assert 'model = "my-model"' in cell.source
    assert finished.metadata.selfspec.parameters.model == "my-model"


@pytest.mark.parametrize("name", ["模型", 'we"ird', "it's $x {y}", "back\\slash"])
def test_awkward_folder_is_hidden_too_and_keeps_its_name(root, name):
    """papermill escapes what is not ASCII: the page was refused after the measuring."""
    folder = root / "models" / name
    template = make(root, DEFAULTS, "import os\nprint(os.path.basename(model))")
    page = nbformat.read(run(root, template, {"model": str(folder)}), as_version=4)
    [cell] = [c for c in page.cells if c.id == "injected-parameters"]
    shown = {}
    exec(cell.source, shown)
    assert shown["model"] == name == text_of(page).strip()
    assert str(root) not in json.dumps(page, ensure_ascii=False)


def test_parameters_as_run_are_visible_and_defaults_are_folded(finished):
    """papermill 731: the injected cell loses the tags of the parameters cell."""
    tags = [cell.metadata.get("tags", []) for cell in finished.cells[1:3]]
    assert tags == [["parameters", "hide-input"], ["injected-parameters"]]


def test_page_has_no_warnings_bars_dates_or_durations(finished):
    assert page_check.problems(finished) == []
    assert "odd" not in text_of(finished)
    assert "overwritten" in text_of(finished) and "kept" not in text_of(finished)
    dumped = json.dumps(finished)
    for word in ("start_time", "duration", "iopub", "input_path", "0%|"):
        assert word not in dumped


def test_labels_and_every_use_of_them_end_in_the_pages_own_label(finished):
    prose = finished.cells[0].source
    assert "{numref}`speedup-m--x-e-smoke`" in prose
    assert "[it](#speedup-m--x-e-smoke)" in prose
    assert "{eq}`sum-m--x-e-smoke`" in prose and "(sum-m--x-e-smoke)" in prose


def test_figure_words_move_to_where_the_book_looks(finished):
    [cell] = [c for c in finished.cells if "mystnb" in c.metadata]
    assert cell.metadata.mystnb.image.alt == "A line that rises: speedup."
    assert cell.metadata.mystnb.figure.name == "speedup-m--x-e-smoke"
    assert "<../../../results/d.csv>" in cell.metadata.mystnb.figure.caption


def test_heading_is_the_title_and_the_origins_stand_below_it(finished):
    first = finished.cells[0].source
    assert first.startswith(
        "# E on m\n\n```{include} ../../_generated/runs/m--x/e-smoke.md"
    )


@pytest.mark.parametrize(
    "cells",
    [["x = 1"], [DEFAULTS, DEFAULTS], ["# model = prose only"]],
    ids=["none", "two", "prose"],
)
def test_template_needs_exactly_one_parameters_cell(root, cells):
    """papermill 245: without one it runs on with the notebook's own defaults."""
    with pytest.raises(StudyError, match="exactly one"):
        run(root, make(root, *cells), {"model": "m"})
    assert nothing_written(root)


def test_unknown_parameter_is_refused_and_the_known_ones_are_named(root):
    with pytest.raises(StudyError, match="no parameter sede.*seed"):
        run(root, make(root, DEFAULTS), {"sede": 1})


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        ((1, 2), "tuple.*use a list"),  # papermill 586: arrives as text
        ([1, (2,)], "tuple.*use a list"),
        ({1, 2}, "set.*use a list"),
        ({1: 2}, "dict.*text as keys"),
        (Path("a"), "use a number, text"),
        (float("nan"), "use None"),
        (np.float64("inf"), "use None"),
        (b"x", "use a number, text"),
    ],
)
def test_value_that_a_notebook_cannot_hold_is_refused(value, way_out):
    with pytest.raises(StudyError, match=way_out):
        runner.plain_value("seed", value)


def test_plain_values_pass_unchanged():
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": []}}
    assert runner.plain_value("v", value) == value
    assert type(runner.plain_value("v", np.bool_(True))) is bool


@pytest.mark.parametrize("kernel", [None, {"name": "ir", "language": "R"}])
def test_template_needs_a_python_kernel(root, kernel):
    with pytest.raises(StudyError, match="names no Python kernel.*kernelspec"):
        run(root, make(root, DEFAULTS, kernel=kernel))


def test_missing_and_broken_templates_are_named(root):
    with pytest.raises(StudyError, match="no template nowhere.ipynb"):
        run(root, root / "nowhere.ipynb")
    broken = root / "broken.ipynb"
    broken.write_text("{")
    with pytest.raises(StudyError, match="broken.ipynb is not a notebook"):
        run(root, broken)


def test_failing_cell_is_one_line_and_the_old_page_stays(root):
    page = runner.page_path(root, "m", "x", "e", "smoke")
    page.parent.mkdir(parents=True)
    page.write_text("old page")
    template = make(root, DEFAULTS, "print(1)", "raise ValueError('too hot\\nmore')")
    with pytest.raises(StudyError) as caught:
        run(root, template, {"seed": 1}, page=page)  # cells as the template counts them
    assert str(caught.value) == "e.ipynb stopped in cell 3: ValueError: too hot"
    assert page.read_text() == "old page"
    assert [path.name for path in page.parent.iterdir()] == [page.name]


def test_the_studys_own_refusal_is_told_as_it_is(root):
    cell = (
        "from selfspec.study.errors import StudyError\nraise StudyError('no, because')"
    )
    with pytest.raises(StudyError) as caught:
        run(root, make(root, DEFAULTS, cell))
    assert str(caught.value) == "no, because"


def test_own_errors_are_those_that_the_command_knows():
    from selfspec import models
    from selfspec.study.prompt_set import PromptError
    from selfspec.study.results import ResultsError

    known = [models.ModelError, models.UnsupportedModelError, StudyError]
    known += [PromptError, ResultsError]
    assert sorted(runner._OWN_ERRORS) == sorted(error.__name__ for error in known)


def test_a_kernel_that_dies_is_told_so(root):
    with pytest.raises(StudyError, match="died.*Way out"):
        run(root, make(root, DEFAULTS, "import os; os._exit(9)"))
    assert nothing_written(root)


def test_absolute_path_in_an_output_keeps_the_page_out(root):
    template = make(root, DEFAULTS, "print('loaded from /Users/kim/models/x')")
    with pytest.raises(StudyError, match="cell 2 shows '/Users/kim/models/x'.*Way out"):
        run(root, template)
    assert nothing_written(root)


def test_figure_without_alt_text_and_two_figures_in_a_cell_are_refused(root):
    bare = "from IPython.display import SVG, display\ndisplay(SVG('''%s'''))"
    bare = bare % book_project.PICTURE
    with pytest.raises(StudyError, match="cell 2 has no alt text"):
        run(root, make(root, DEFAULTS, bare))
    two = book_project.figure("a") + "\n" + book_project.figure("b")
    with pytest.raises(StudyError, match="cell 2 shows 2 figures"):
        run(root, make(root, DEFAULTS, two))


def test_second_page_with_the_same_title_gets_another(root):
    template = make(root, "# E", DEFAULTS)
    run(root, template)
    other = runner.page_path(root, "m", "y", "e", "smoke")
    run(root, template, page=other, label="m--y-e-smoke")
    again = run(root, template)  # a re-run does not collide with its own old page
    titles = [
        nbformat.read(page, as_version=4).cells[0].source.splitlines()[0]
        for page in (again, other)
    ]
    assert titles == ["# E on m", "# E on m (m--y-e-smoke)"]


def test_label_of_another_page_is_refused_before_anything_runs(root):
    other = nbformat.v4.new_notebook(metadata={"selfspec": {"label": "m--x-e-smoke"}})
    page = runner.page_path(root, "m", "y", "e", "smoke")
    page.parent.mkdir(parents=True)
    nbformat.write(other, page)
    with pytest.raises(StudyError, match="m--y/e-smoke.ipynb has the label.*Way out"):
        run(root, make(root, DEFAULTS, "raise ValueError"))


def test_rerun_gives_the_same_bytes(root):
    template = make(root, "# E", DEFAULTS, "print(seed)", book_project.figure())
    first = run(root, template, {"seed": 1}).read_bytes()
    assert run(root, template, {"seed": 1}).read_bytes() == first


def test_interrupt_leaves_nothing_at_the_destination(root, tmp_path):
    started = tmp_path / "started"
    template = make(
        root,
        DEFAULTS,
        f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text("
        "str(os.getpid()))\ntime.sleep(600)",
    )
    script = (  # a test run in the background is born deaf to Ctrl-C
        "import signal, sys, pathlib\nfrom selfspec.study import runner\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "try:\n"
        "    runner.run_notebook(pathlib.Path(sys.argv[2]), {}, label='l', title='t',\n"
        "        page=runner.page_path(root, 'm', 'x', 'e', 'smoke'), cwd=root)\n"
        "except KeyboardInterrupt:\n    sys.exit(130)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(root), str(template)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for(started.exists, process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert said == "", "the kernel's own complaints are no reader's business"
    assert nothing_written(root)
    assert not list(scratch.glob("selfspec-*"))
    _wait_for(lambda: not _alive(int(started.read_text())), None)


def _wait_for(condition, process, limit=60):
    """Give a slow machine time; the promise is that it happens, not when."""
    end = time.monotonic() + limit
    while not condition():
        assert process is None or process.poll() is None, "ended early"
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.05)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
        return not Path("/proc").is_dir()
    except ProcessLookupError:
        return False
