"""What `selfspec study` hands to the runner, and a preset of which one model fails."""

from pathlib import Path

import pytest

from selfspec import cli, models
from selfspec.study import study
from selfspec.study.errors import StudyError
from selfspec.study.experiments import EXPERIMENTS

FIRST, SECOND = study.PRESETS["post"]


@pytest.fixture
def handed(monkeypatch, tiny_loaded):
    """What run_study gives to the runner; nothing runs and no page is written."""
    seen = []

    def run_notebook(template, parameters, **options):
        seen.append((template, parameters, options))
        return options["page"]

    monkeypatch.setattr(study.runner, "run_notebook", run_notebook)
    monkeypatch.setattr(study.pages, "write", lambda root: None)
    monkeypatch.setattr(study, "_source", lambda model: tiny_loaded.source)
    return seen


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_runs_its_own_template_under_its_own_title(
    handed, tmp_path, name
):
    study.run_study("m", size="smoke", root=tmp_path, experiment=name)
    [(template, parameters, options)] = handed
    assert template == tmp_path / "notebooks" / f"{name}.ipynb"
    assert parameters == {"model": "m", "size": "smoke"}
    assert options["title"].startswith(f"{EXPERIMENTS[name].title}: tiny-study on ")
    assert options["page"].name == f"{name}-smoke.ipynb"
    assert options["progress"].name == f".{name}.unfinished.json"


def test_unknown_names_are_one_line(tmp_path):
    with pytest.raises(StudyError, match="no experiment 'magic'.*naive-sweep, machine"):
        study.run_study("m", size="smoke", root=tmp_path, experiment="magic")
    with pytest.raises(StudyError, match="no size 'huge'"):
        study.run_study("m", size="huge", root=tmp_path)
    with pytest.raises(StudyError, match="no preset 'none'.*Way out: one of post"):
        study.run_preset("none", size="smoke", root=tmp_path)


def test_a_relative_folder_or_gguf_file_is_found_wherever_the_notebook_runs(
    handed, tmp_path, monkeypatch
):
    """A relative file was looked for in the notebook's folder, and not found."""
    monkeypatch.chdir(tmp_path)
    Path("model.gguf").write_bytes(b"")
    Path("folder").mkdir()
    Path("smollm2-135m").write_bytes(b"")  # a file does not hide an alias
    given = ["model.gguf", "folder", "smollm2-135m", "owner/name", "no-such.gguf"]
    for model in given:
        study.run_study(model, size="smoke", root=tmp_path)
    assert [parameters["model"] for _, parameters, _ in handed] == [
        str(tmp_path / "model.gguf"),
        str(tmp_path / "folder"),
        *given[2:],
    ]


def preset(monkeypatch, failing: dict):
    """run_study that fails for some models."""
    ran = []

    def run_study(model, **options):
        ran.append(model)
        if model in failing:
            raise failing[model]
        return options["root"] / "book" / f"{model.split('/')[1]}.ipynb"

    monkeypatch.setattr(study, "run_study", run_study)
    return ran


def test_a_model_that_fails_does_not_stop_the_preset(monkeypatch, tmp_path):
    """The second model was never tried when the first could not be fetched."""
    ran = preset(monkeypatch, {FIRST: models.ModelError("no network. Way out: wait")})
    told = []
    with pytest.raises(StudyError) as caught:
        study.run_preset("post", size="smoke", root=tmp_path, finished=told.append)
    assert ran == [FIRST, SECOND] and len(told) == 1
    text = str(caught.value)
    assert "1 of 2 models of the preset were not measured" in text
    assert f"{FIRST}: no network. Way out: wait" in text and "\n" not in text


def test_ctrl_c_stops_the_whole_preset(monkeypatch, tmp_path):
    ran = preset(monkeypatch, {FIRST: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        study.run_preset("post", size="smoke", root=tmp_path)
    assert ran == [FIRST]


def test_the_command_shows_what_was_measured_and_exits_non_zero(monkeypatch, capsys):
    preset(monkeypatch, {FIRST: StudyError("broken. Way out: mend it")})
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    assert cli.main(["study", "--preset", "post"]) == cli.EXIT_ERROR
    out = capsys.readouterr()
    assert "page: book/" in out.out and SECOND.split("/")[1] in out.out
    assert f"{FIRST}: broken" in out.err and "next:" not in out.out


def test_the_command_runs_any_experiment(monkeypatch, capsys):
    ran = preset(monkeypatch, {})
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    words = ["study", "--model", "owner/name", "--experiment", "auto"]
    assert cli.main([*words, "--size", "smoke"]) == 0
    assert ran == ["owner/name"] and "next: selfspec book" in capsys.readouterr().out


def test_all_experiments_have_their_turn_each_with_its_own_model(monkeypatch, tmp_path):
    asked = []

    def run_study(model, *, experiment, **options):
        asked.append((model, experiment))
        if experiment == "machine":
            raise StudyError("broken. Way out: mend it")
        return tmp_path / experiment

    monkeypatch.setattr(study, "run_study", run_study)
    with pytest.raises(StudyError, match="1 of . experiments were not .* machine: bro"):
        study.run_all(None, size="smoke", root=tmp_path)
    assert [experiment for _, experiment in asked] == list(EXPERIMENTS)
    assert all(EXPERIMENTS[e].model == model for model, e in asked)


def test_all_experiments_of_one_model(monkeypatch, capsys):
    asked = []
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setattr(
        study, "run_study", lambda m, **k: asked.append(m) or root / "book" / "page"
    )
    monkeypatch.chdir(root)
    assert cli.main(["study", "--experiment", "all", "--model", "owner/name"]) == 0
    assert asked == ["owner/name"] * len(EXPERIMENTS)
    words = ["study", "--experiment", "all", "--preset", "post"]
    assert cli.main(words) == cli.EXIT_ERROR
    assert "Way out: one experiment" in capsys.readouterr().err
