"""A model that cannot be measured: a page that says so, and no trace when it is removed."""

import json
import shutil

import book_project
import pytest
import yaml

from selfspec import cli, models
from selfspec.study import (
    pages,
    refusals,
    results_check,
    run_records,
    runner,
    study,
)
from selfspec.study.errors import RefusedModelError
from selfspec.study.results import read_provenance
from tests.tiny import save_tiny_model

REASON = "its cache cannot be rolled back (MambaCache). Way out: another model"


@pytest.fixture
def root(tmp_path):
    """What a study needs of a clone, without runs."""
    ignored = shutil.ignore_patterns("_build", "runs", "assets", "_generated")
    for name in ("book", "results/reference", "notebooks"):
        source = book_project.ROOT / name
        shutil.copytree(source, tmp_path / name, symlinks=True, ignore=ignored)
    pages.write(tmp_path)
    return tmp_path


def everything(root):
    return {
        path.relative_to(root): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture
def refusing(monkeypatch, tiny_loaded):
    """A notebook that finds that the model cannot be drafted with."""

    def run_notebook(*_, **__):
        raise RefusedModelError(REASON)

    monkeypatch.setattr(study.runner, "run_notebook", run_notebook)
    monkeypatch.setattr(study, "_source", lambda model: tiny_loaded.source)


def test_the_page_says_why_and_goes_with_the_result(root, refusing):
    before = everything(root)
    for experiment in ("naive-sweep", "auto", "auto"):  # told once each
        with pytest.raises(RefusedModelError, match="see book/runs/.*refused.md"):
            study.run_study("m", size="smoke", root=root, experiment=experiment)
    [page] = (root / "book" / "runs").glob("*/refused.md")
    text = page.read_text()
    assert "# tiny-study on " in text and ": not measured" in text
    assert text.count("MambaCache") == 2 and "Naive layer skip" in text
    name = page.relative_to(root / "book").with_suffix("").as_posix()
    assert name in (root / "_toc.yml").read_text()
    assert "nan" not in (root / "book" / "_generated" / "answer.md").read_text().lower()
    assert results_check.faults(root) == []
    assert run_records.collect(root) == []
    assert pages.write(root).changed == ()
    [folder] = (root / "results").glob("*/tiny-study*")
    assert len(read_provenance(folder)) == 2
    shutil.rmtree(folder.parent)
    pages.write(root)
    assert everything(root) == before


def test_the_command_is_one_line_and_non_zero(root, refusing, monkeypatch, capsys):
    monkeypatch.chdir(root)
    assert cli.main(["study", "--model", "m", "--size", "smoke"]) == cli.EXIT_ERROR
    last = capsys.readouterr().err.splitlines()[-1]
    assert "MambaCache" in last and "kept as a result" in last


def test_an_architecture_that_nobody_knows_gets_a_page_too(root, tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("m") / "new-kind")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "novel"}))
    with pytest.raises(RefusedModelError, match="does not know the architecture"):
        study.run_study(str(folder), size="smoke", root=root)
    [page] = (root / "book" / "runs").glob("*/refused.md")
    assert "# new-kind on " in page.read_text()
    assert "novel" in page.read_text() and str(folder.parent) not in page.read_text()
    assert results_check.faults(root) == []


def test_a_model_that_is_only_broken_gets_none(root, tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("m") / "cut")
    (folder / "model.safetensors").write_bytes(b"x")
    with pytest.raises(models.ModelError, match="truncated") as caught:
        study.run_study(str(folder), size="smoke", root=root)
    assert not isinstance(caught.value, models.UnsupportedModelError)
    assert not list((root / "book" / "runs").glob("*/refused.md"))


def test_the_notebooks_refusal_is_told_apart_from_its_failures(tmp_path):
    """The error crosses from the notebook's process to ours by its name."""
    template = book_project.template(
        tmp_path / "t.ipynb",
        "model = 'm'",
        "from selfspec.models.errors import UnsupportedModelError\n"
        f"raise UnsupportedModelError({REASON!r})",
    )
    with pytest.raises(RefusedModelError) as caught:
        runner.run_notebook(
            template,
            {},
            page=runner.page_path(tmp_path, "m", "x", "auto", "smoke"),
            label="x",
            title="X",
        )
    assert str(caught.value) == REASON


def test_a_page_of_a_refused_model_is_in_the_book_once(root):
    facts = book_project.facts()
    for machine in ("one", "two"):
        folder = root / "results" / machine / "mamba"
        refusals.record(folder, "auto", facts, REASON)
    found = refusals.pages(root)
    assert list(found) == ["runs/one--mamba/refused", "runs/two--mamba/refused"]
    labels = [text.splitlines()[0] for text in found.values()]
    assert len(set(labels)) == 2
    pages.write(root)
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    assert "runs/one--mamba/refused" in str(toc)
