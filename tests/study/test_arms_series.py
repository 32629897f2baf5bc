"""A series of arms: stopped and gone on with, its rows, and the weights it keeps."""

import json
from dataclasses import replace

import pytest

from selfspec.study import arms_series, arms_table, trained
from selfspec.study.arms_series import Series
from selfspec.study.errors import StudyError
from selfspec.training import ARMS, Settings, arms, load_small

SETTINGS = Settings(steps=4, batch=4, warmup=1)
TINY = dict(layers=3, width=16, num_train=20, num_test=10)


@pytest.fixture
def series(tmp_path):
    return Series(tmp_path, SETTINGS, **TINY)


def quiet(line):
    pass


def test_every_arm_is_scored_on_the_way_and_read_back(series, tmp_path):
    said = []
    series.run(arms.plan(seeds=[0]), say=said.append)
    found = arms_table.load(tmp_path)
    assert arms_table.names(found) == list(ARMS)
    assert set(found.exits["step"]) == {1, 2, 3, 4}
    assert set(found.exits["exit_layer"]) == {1, 2, 3} == set(range(1, 4))
    assert (found.training["steps"] == 4).all() and len(found.training) == len(ARMS)
    assert len(said) == len(ARMS) and "baseline, seed 0 (1 of 6): 4 steps" in said[0]
    assert found.about["configuration"]["recipes"]["ld"] == ARMS["ld"].to_json()
    cost = arms_table.overhead(found).set_index("arm")
    assert cost.loc["baseline", "seconds"] == 1 and (cost["seconds"] > 0).all()


def test_what_is_trained_already_is_left_alone(series):
    series.run([("baseline", 0)], say=quiet)
    before = {p: p.read_bytes() for p in series.folder.glob("*.csv")}
    said = []
    series.run([("baseline", 0), ("ld", 0)], say=said.append)
    assert "trained already" in said[0] and "4 steps" in said[1]
    for path, content in before.items():
        assert path.read_bytes().startswith(content)


def test_a_stopped_series_ends_with_the_same_rows(tmp_path, monkeypatch):
    whole, parts = (Series(tmp_path / n, SETTINGS, **TINY) for n in ("whole", "parts"))
    jobs = [("ld-ee", 0), ("baseline", 0)]
    whole.run(jobs, say=quiet)
    for place in (2, 5, 6):  # visits: within the first arm, then within the second
        calls = iter(range(100))
        score = arms_series.exit_scores.score_exits

        def stopping(*args, calls=calls, place=place, score=score):
            if next(calls) == place:
                raise KeyboardInterrupt
            return score(*args)

        with monkeypatch.context() as patch:
            patch.setattr(arms_series.exit_scores, "score_exits", stopping)
            try:
                parts.run(jobs, say=quiet)
            except KeyboardInterrupt:
                pass
    parts.run(jobs, say=quiet)
    rows = [(s.folder / arms_table.EXITS).read_text() for s in (whole, parts)]
    assert rows[0] == rows[1]
    for name in (trained.TAUGHT, trained.UNTAUGHT):
        saved = [r / "weights" / name for r in (whole.root, parts.root)]
        saved = [(f / "model.safetensors").read_bytes() for f in saved]
        assert saved[0] == saved[1]


def test_the_weights_of_seed_0_are_kept_and_scored_as_they_are_read(series, tmp_path):
    series.run([("ld-ee", 0), ("ld-ee", 1), ("ee", 0)], say=quiet)
    series.small_draft(say=quiet)
    kept = sorted(path.name for path in (tmp_path / "weights").iterdir())
    assert kept == [trained.TAUGHT, trained.SMALL_DRAFT]
    loaded = load_small(tmp_path / "weights" / trained.TAUGHT)
    scores = arms_series.exit_scores.score_exits(loaded.model, series.texts)
    table = arms_table.at_the_end(arms_table.load(tmp_path))
    own = table[(table["arm"] == "ld-ee") & (table["seed"] == 0)]
    assert own["exact_match"].tolist() == [s.exact_match for s in scores]
    assert own["agreement"].tolist() == [s.agreement for s in scores]
    small = load_small(tmp_path / "weights" / trained.SMALL_DRAFT)
    assert small.source.num_layers == arms_series.DRAFT_LAYERS


def test_lost_weights_are_written_again_without_training(series, tmp_path):
    series.run([("ld-ee", 0)], say=quiet)
    weights = tmp_path / "weights" / trained.TAUGHT / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    series.run([("ld-ee", 0)], say=quiet)
    assert weights.read_bytes() == content


def test_the_small_draft_is_trained_once(series, tmp_path):
    said = []
    series.small_draft(say=said.append)
    series.small_draft(say=said.append)
    assert "4 steps" in said[0] and "trained already" in said[1]
    about = json.loads((series.folder / arms_table.ABOUT).read_text())
    assert about["small_draft"]["layers"] == arms_series.DRAFT_LAYERS


def test_rows_of_another_configuration_are_not_added_to(series, tmp_path):
    series.run([("baseline", 0)], say=quiet)
    other = Series(tmp_path, replace(SETTINGS, steps=5), **TINY)
    with pytest.raises(StudyError, match="arms of other settings. Way out"):
        other.run([("baseline", 1)], say=quiet)
    with pytest.raises(StudyError, match="no arm 'magic'. Way out: one of baseline"):
        series.run([("magic", 0)], say=quiet)
