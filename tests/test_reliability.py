"""What goes wrong on a reader's machine: one clear line, an exit code, nothing lost.

Many a mishap is tested beside the code that meets it (tests/study/test_results.py,
tests/models, tests/notebooks/test_runner.py). Here they come through the command or a
whole experiment.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import book_project
import pandas as pd
import pytest
from tiny import save_tiny_model

import selfspec
from selfspec import cli
from selfspec.study import (
    figures,
    layerskip_figures,
    naive_sweep,
    provenance,
    run_records,
    runner,
    study,
    sweep_page,
)
from selfspec.study.errors import StudyError
from selfspec.study.results import ResultsError, read_csv, read_provenance

KILLER = Path(__file__).with_name("kill_loop.py")
SWEEP = dict(
    size="smoke", num_prompts=2, num_tokens=8, skip_fractions=[0.5], draft_lengths=[2]
)
FEW = dict(size="smoke", num_prompts=2, num_tokens=24)
EXPERIMENTS = {
    "naive-sweep": ("naive_sweep", SWEEP | {"num_prompts": 4}),
    "machine": ("machine_study", FEW),
    "auto": ("auto_study", FEW),
    "knapsack": ("knapsack_study", {"size": "smoke", "num_prompts": 2}),
    "layerskip": ("layerskip_study", FEW),
}
KEY = ("mechanism", "skip_fraction", "draft", "num_draft_tokens", "temperature")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-mishaps"))


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text and "Way out" in text
    return text


def configurations(rows) -> list[tuple]:
    names = [name for name in (*KEY, "prompt_id", "repeat") if name in rows[0]]
    return sorted(tuple(row[name] for name in names) for row in rows)


@pytest.mark.skipif(
    "SELFSPEC_KILLS" not in os.environ,
    reason="a minute long: SELFSPEC_KILLS=1 asks for it",
)
def test_ten_kills_lose_no_row_and_repeat_none(tiny, tmp_path):
    """kill -9 twice in every experiment, at random moments, then to the end."""
    job = {"model": tiny, "kills": 2, "seed": 7, "experiments": {}}
    for name, (module, options) in EXPERIMENTS.items():
        folders = {key: str(tmp_path / name / key) for key in ("whole", "killed")}
        job["experiments"][name] = {"module": module, "options": options, **folders}
    place = tmp_path / "job.json"
    place.write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, str(KILLER), str(place)],
        capture_output=True,
        text=True,
        env={**os.environ, "SELFSPEC_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["experiment"] for line in told] == list(EXPERIMENTS)
    assert sum(len(line["rows"]) for line in told) == 10
    assert any(rows for line in told for rows in line["rows"]), "none had rows yet"
    for name, experiment in job["experiments"].items():
        found = {}
        for which in ("whole", "killed"):
            [path] = Path(experiment[which]).glob(f"*/*/{name}.csv")
            runs = read_provenance(path.parent)
            [run_id] = [key for key, run in runs.items() if run["finished"]]
            rows = [row for row in read_csv(path) if row["run_id"] == run_id]
            found[which] = configurations(rows)
            assert len(set(found[which])) == len(rows), f"{name}: a row twice"
            assert not list(path.parent.glob(".*.unfinished.json"))
        assert found["killed"] == found["whole"], f"{name}: not the same configurations"


def test_a_kill_on_the_embedded_model_loses_no_row(embedded, tmp_path):
    code = (
        "from selfspec.study import naive_sweep\n"
        f"naive_sweep.measure(results={str(tmp_path)!r}, size='smoke', num_tokens=8, "
        "skip_fractions=[0.1], draft_lengths=[2])"
    )

    def rows():
        found = list(tmp_path.glob("*/*/naive-sweep.csv"))
        return read_csv(found[0]) if found else []

    first = subprocess.Popen([sys.executable, "-c", code])
    while not rows():
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = rows()
    subprocess.run([sys.executable, "-c", code], check=True)
    after = rows()
    assert after[: len(before)] == before and len(before) < len(after)
    mechanisms = {row["mechanism"] for row in after}
    prompts = {row["prompt_id"] for row in after}
    assert len(set(configurations(after))) == len(after)
    assert len(after) == len(mechanisms) * len(prompts) == 4
    assert len({row["run_id"] for row in after}) == 1


def test_a_full_disk_keeps_what_was_measured_and_the_run_goes_on(
    tiny, tmp_path, monkeypatch
):
    """The disk fills up after three rows; with room again the same command ends it."""
    real, wrote = os.replace, []

    def replace(source, target):
        if str(target).endswith("naive-sweep.csv"):
            if len(wrote) == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            wrote.append(target)
        return real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    options = SWEEP | {"num_prompts": 4}
    with pytest.raises(ResultsError) as caught:
        naive_sweep.measure(tiny, results=tmp_path, **options)
    text = one_line(caught)
    assert "No space left" in text and "what was measured so far is kept" in text
    monkeypatch.undo()
    [path] = tmp_path.glob("*/*/naive-sweep.csv")
    before = read_csv(path)
    assert before and not list(path.parent.glob("*.tmp"))
    naive_sweep.measure(tiny, results=tmp_path, **options)
    after = read_csv(path)
    assert after[: len(before)] == before and len({r["run_id"] for r in after}) == 1
    assert len(set(configurations(after))) == len(after) == 8


def test_a_real_full_disk_is_one_line(tiny, tmp_path):
    """A file system of 256 KB, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system here")
    try:
        (disk / "fill").write_bytes(b"x" * (256 * 1024 - 4 * 4096))
        with pytest.raises(ResultsError) as caught:
            naive_sweep.measure(tiny, results=disk, **SWEEP | {"num_prompts": 8})
        assert "No space left" in one_line(caught)
        for path in disk.glob("*/*/naive-sweep.csv"):
            read_csv(path)  # whole
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_results_folder_that_cannot_be_written_is_one_line(
    tiny, tmp_path, monkeypatch
):
    def refuse(self, *_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ResultsError) as caught:
        naive_sweep.measure(tiny, results=tmp_path / "results", **SWEEP)
    assert "Read-only file system" in one_line(caught)
    monkeypatch.undo()
    assert not (tmp_path / "results").exists()


def test_a_full_disk_loses_no_page(tmp_path, monkeypatch):
    page = tmp_path / "book" / "runs" / "m--x" / "auto-smoke.ipynb"
    page.parent.mkdir(parents=True)
    page.write_text("old")

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    template = book_project.template(tmp_path / "t.ipynb", "model = 'm'", "1 + 1")
    monkeypatch.setattr(runner.os, "replace", full)
    with pytest.raises(StudyError) as caught:
        runner.run_notebook(template, {}, page=page, label="x", title="X")
    assert "No space left" in one_line(caught)
    assert page.read_text() == "old" and list(page.parent.iterdir()) == [page]


@pytest.mark.parametrize(
    "text, says",
    [
        ("schema,run_id\n99,a\n", "has schema 99, this version reads up to 1"),
        ("schema,run_id\n1\n", "cannot be read (line 2 is incomplete)"),
        ("\x00\xff", "cannot be read"),
    ],
)
def test_results_that_cannot_be_used_stop_before_anything_is_measured(
    tiny, tmp_path, text, says, monkeypatch
):
    source = selfspec.load(tiny).source
    machine = provenance.machine_slug(provenance.machine())
    path = tmp_path / machine / source.slug / "naive-sweep.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    timed = []
    monkeypatch.setattr(
        naive_sweep.bench, "time_pairs", lambda *_, **__: timed.append(1)
    )
    with pytest.raises(ResultsError) as caught:
        naive_sweep.measure(tiny, results=tmp_path, **SWEEP)
    assert says in one_line(caught)
    assert path.read_bytes() == text.encode("latin-1") and not timed


def test_two_studies_at_once_on_one_folder(tiny, tmp_path, monkeypatch):
    """The second one is told so at once; the first one ends as if alone."""
    real, told = naive_sweep.bench.time_pairs, []

    def time_pairs(*words, **options):
        if not told:
            told.append("")  # the second study stops before its pairs
            with pytest.raises(ResultsError) as caught:
                naive_sweep.measure(tiny, results=tmp_path, **SWEEP)
            told[0] = one_line(caught)
        return real(*words, **options)

    monkeypatch.setattr(naive_sweep.bench, "time_pairs", time_pairs)
    first = naive_sweep.measure(tiny, results=tmp_path, **SWEEP)
    assert "another study of naive-sweep writes to" in told[0]
    assert len(first.rows) == 4 and first.provenance["finished"]


def test_a_clock_that_is_set_back_changes_no_order(tmp_path):
    """The run that was begun last is the latest one, whatever its date says."""
    for date, speedup in (("2031-01-01", 0.5), ("2026-12-01", 0.9)):
        last = book_project.add_results(
            tmp_path, speedup=speedup, date=f"{date}T00:00:00+00:00"
        )
    [record] = run_records.latest(run_records.collect(tmp_path))
    assert record.run_id == last and record.date == "2026-12-01"


def test_a_clock_that_runs_backwards_while_measuring(tiny, tmp_path, monkeypatch):
    now = time.time()
    ticks = iter(range(10_000_000))
    monkeypatch.setattr(time, "time", lambda: now - 3600 * next(ticks))
    run = naive_sweep.measure(tiny, results=tmp_path, **SWEEP)
    assert (run.rows["decode_seconds"].dropna() > 0).all() and len(run.rows) == 4


def broken(tiny, tmp_path, change) -> Path:
    folder = tmp_path / "broken"
    folder.mkdir()
    for path in Path(tiny).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change(folder)
    return folder


def without_weights(folder):
    (folder / "model.safetensors").unlink()


def cut_short(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickled(folder):
    without_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/x'\ntR.")


@pytest.mark.parametrize(
    "change, says",
    [
        (without_weights, "weights are read from model*.safetensors and there is none"),
        (cut_short, "model.safetensors is truncated"),
        (pickled, "only pytorch_model.bin, which can run code when read"),
    ],
)
@pytest.mark.parametrize(
    "words", [["study"], ["generate", "--prompt", "x"], ["verdict"]]
)
def test_a_broken_model_folder_is_one_line_in_every_command(
    tiny, tmp_path, change, says, words, capsys, monkeypatch
):
    monkeypatch.chdir(book_project.ROOT)
    folder = broken(tiny, tmp_path, change)
    assert cli.main([*words, "--model", str(folder)]) == cli.EXIT_ERROR
    last = capsys.readouterr().err.splitlines()[-1]
    assert says in last and "Way out" in last and str(tmp_path) not in last


def test_no_code_of_a_model_is_ever_trusted():
    """mlx-lm and transformers run a repository's own code where they are told to."""
    package = Path(selfspec.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text()
        assert "trust_remote_code=True" not in text, path.name
        assert '"trust_remote_code": True' not in text, path.name
        for reader in ("pickle.load", "torch.load", "np.load(", "joblib"):
            assert reader not in text, f"{path.name}: {reader}"


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "holds no prompts"),
        (b"\n \n", "holds no prompts"),
        ("Zwölf".encode("latin-1"), "is not UTF-8 text"),
        (b'{"text": ""}', "must be a text that is not empty"),
    ],
)
def test_a_bad_prompt_file_is_told_before_a_model_is_loaded(
    tmp_path, content, says, capsys, monkeypatch
):
    monkeypatch.chdir(book_project.ROOT)
    monkeypatch.setattr(study, "run_study", None)  # would fail if it were reached
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    assert cli.main(["study", "--prompts", str(path)]) == cli.EXIT_ERROR
    [line] = capsys.readouterr().err.strip().splitlines()[-1:]
    assert says in line


def test_an_edited_template_is_told_before_anything_runs(
    tiny, tmp_path, capsys, monkeypatch
):
    """A reader's second parameters cell; papermill would take the first and say nothing."""
    (tmp_path / "results" / "reference").mkdir(parents=True)
    cells = ("model = 'm'", "model = 'other'")
    book_project.template(tmp_path / "notebooks" / "naive-sweep.ipynb", *cells)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["study", "--model", tiny]) == cli.EXIT_ERROR
    last = capsys.readouterr().err.splitlines()[-1]
    assert "2 cells tagged `parameters` and needs exactly one. Way out" in last
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "reference"
    ]


HOSTILE = ["<script>alert(1)</script>", "-->", "]]>", "$\\frac", "\x00\x1b", "a & b"]


def test_what_a_model_says_is_text_on_a_page_and_nothing_else():
    """Tokens stand under the bars of a figure and in the cells of tables."""
    found = {
        "layers": 8,
        "examples": [{"tokens": HOSTILE, "depths": [1] * len(HOSTILE)}],
    }
    drawn = figures.svg(layerskip_figures.depths(found))
    tags = {
        element.tag.split("}")[-1] for element in ElementTree.fromstring(drawn).iter()
    }
    assert "script" not in tags and "path" in tags


def test_what_a_model_is_called_is_text_in_a_table(monkeypatch):
    from IPython import display

    shown = []
    monkeypatch.setattr(display, "display", lambda html, **_: shown.append(html.data))
    sweep_page.show_table(pd.DataFrame({"draft": HOSTILE}))
    assert "<script" not in shown[0] and "&lt;script&gt;" in shown[0]
