"""A model of the project's own: trained for a moment, asked the task, by its name."""

from pathlib import Path

import pytest

from selfspec import models
from selfspec.study import (
    draft_summary,
    layerskip_study,
    layerskip_subject,
    layerskip_summary,
    reference,
    trained,
)
from selfspec.study.arms_series import DRAFT_LAYERS, Series
from selfspec.study.errors import StudyError
from selfspec.study.layerskip_grid import SIZES
from selfspec.training import Settings
from tests.costs import synthetic

LAYERS = 6  # of the synthetic profile


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A clone whose models were trained for a few steps only."""
    root = tmp_path_factory.mktemp("clone")
    settings = Settings(steps=3, batch=4, warmup=1)
    tiny = dict(layers=LAYERS, width=32, num_train=40, num_test=30)
    series = Series(root, settings, **tiny)
    series.run([("ld-ee", 0)], say=lambda line: None)
    series.small_draft(say=lambda line: None)
    return root


@pytest.fixture(autouse=True)
def here(root, monkeypatch):
    monkeypatch.setattr(reference, "find_root", lambda *_: root)


def test_a_trained_model_is_found_by_name_and_others_are_left_alone(root, monkeypatch):
    folder = Path(trained.located(trained.TAUGHT, root))
    assert folder.is_absolute() and (folder / "model.safetensors").is_file()
    assert trained.located("smollm2-135m", root) == "smollm2-135m"
    with pytest.raises(StudyError, match="layerskip-small-baseline is not in weights/"):
        trained.located(trained.UNTAUGHT, root)
    monkeypatch.chdir(root / "weights")  # a folder of that name where one stands wins
    assert trained.located(trained.TAUGHT, root) == trained.TAUGHT


def test_utterances_are_asked_as_they_were_trained():
    size = SIZES["default"]
    subject = layerskip_subject.find(trained.TAUGHT, size)
    assert len(subject.prompts) == 30 - size.calibration_prompts
    asked = {p.text for p in subject.prompts}
    assert not asked & {p.text for p in subject.held_out}
    for prompt, text, answer in zip(
        subject.prompts, subject.texts, subject.answers, strict=True
    ):
        ids = subject.ids(prompt)
        assert list(text.ids) == [*ids, *answer] and text.start == len(ids)
        assert answer[-1] in subject.eos
    assert [subject.words(i) for i in subject.answers[0][:2]] == ["[", "IN:"]
    assert subject.trained["arm"] == "ld-ee" and subject.trained["steps"] == 3
    assert subject.facts()["trained"]["seed"] == 0


def test_weights_are_float32_wherever_they_are_measured():
    import mlx.core as mx
    from mlx.utils import tree_flatten

    subject = layerskip_subject.find(trained.TAUGHT, SIZES["smoke"])
    arrays = dict(tree_flatten(subject.loaded.model.parameters()))
    assert {a.dtype for a in arrays.values()} == {mx.float32}
    assert subject.small().source.num_layers == DRAFT_LAYERS
    draft = layerskip_subject.find(trained.SMALL_DRAFT, SIZES["smoke"])
    assert draft.small is None  # it is nobody's big brother


def test_the_readers_own_prompts_take_the_tasks_place(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("call my sister\nplay some jazz music\n")
    subject = layerskip_subject.find(
        trained.TAUGHT, SIZES["smoke"], prompts_file=str(file)
    )
    assert [p.text for p in subject.prompts][0] == "call my sister"
    assert subject.answers == () and subject.trained == {}


def test_a_run_on_the_task_has_answers_and_a_second_model(root, monkeypatch):
    monkeypatch.setattr(
        layerskip_study, "machine_profile", lambda *_, **__: synthetic.profile()
    )
    run = layerskip_study.measure(size="smoke", results=root / "results")
    facts = run.provenance
    assert run.folder.name.startswith("layerskip-small-")
    assert "--model layerskip-small --size smoke" in facts["command"]
    assert facts["small_model"]["layers"] == DRAFT_LAYERS
    assert set(facts["memory"]) == {"plain", "exit", "two models"}
    assert "small model" in set(run.rows["draft"])
    counted = layerskip_summary.counted(facts)
    assert counted["exact_match"].notna().all()
    assert set(counted["lossless"]) == {2}
    table = draft_summary.summarise(run.rows)
    small = table[table["draft"] == "small model"].iloc[0]
    assert small["cost_ratio"] > 0  # timed: no profile of the target knows it
    assert models.ModelSource.from_json(facts["model"]).slug == run.folder.name
