"""Teaching a loaded model: before and after, gone on with, refused where it cannot be."""

import json
from dataclasses import replace

import mlx.core as mx
import pandas as pd
import pytest

import selfspec
from selfspec.study import finetune
from selfspec.training import TrainingError, save_small
from selfspec.training.settings import Settings
from tests.tiny import save_tiny_model

SETTINGS = Settings(steps=6, batch=2, warmup=1, learning_rate=5e-3, checkpoint_every=2)
FEW = dict(scored=4, counted=2, num_tokens=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("hub") / "tiny"))


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "mine.jsonl"
    lines = [
        json.dumps({"prompt": f"ask {i}", "completion": "aaaa"}) for i in range(20)
    ]
    path.write_text("\n".join(lines))
    return str(path)


def tuned(model, root, data="", **options):
    options = {"settings": SETTINGS, **FEW, **options}
    return finetune.finetune(model, root=root, data=data, say=lambda _: None, **options)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_exits_are_scored_before_and_after_and_their_losses_fall(
    model, data, tmp_path, method
):
    done = tuned(model, tmp_path, data, method=method)
    rows = pd.read_csv(done.csv)
    assert rows["when"].tolist() == ["before"] * 6 + ["after"] * 6
    loss = (rows["surprise"] / rows["positions"]).to_numpy().reshape(2, 6)
    assert (loss[1] < loss[0]).all()
    drafted = rows[rows["drafted"].notna()]
    assert set(drafted["exit_layer"]) == {2, 3, 4} == set(drafted["exit_layer"])
    assert (drafted["accepted"] <= drafted["drafted"]).all()
    told = finetune.summary(done.rows)
    assert told[-1].startswith("exit 6 of 6: loss") and len(told) == 4
    assert "accepted" in told[0] and "->" in told[0]


def test_the_model_that_came_out_is_the_one_that_was_scored(model, data, tmp_path):
    done = tuned(model, tmp_path, data)
    loaded = selfspec.load(done.folder)
    assert not any("lora_a" in m for _, m in loaded.model.named_modules())
    again = finetune.score(
        loaded.model, *held_out(loaded, data), when="after", step=6, num_tokens=8
    )
    for own, wanted in zip(again, done.rows[6:], strict=True):
        assert own["surprise"] == pytest.approx(wanted["surprise"], rel=1e-4)


def held_out(loaded, data):
    _, samples = finetune._samples(data, loaded.tokenizer, 0)
    texts = [finetune.Text(s.ids, s.start) for s in samples[:4]]
    return texts, [finetune._asked(s) for s in samples[:2]]


def test_a_stopped_run_goes_on_and_ends_the_same(model, data, tmp_path):
    class Stopped(Exception):
        pass

    def stop(step, steps, loss):
        if step == 5:
            raise Stopped

    whole = tuned(model, tmp_path / "whole", data)
    with pytest.raises(Stopped):
        tuned(model, tmp_path / "parts", data, progress=stop)
    steps = []
    parts = tuned(
        model, tmp_path / "parts", data, progress=lambda step, *_: steps.append(step)
    )
    assert steps == [5, 6]
    assert parts.rows == whole.rows


def test_the_task_is_taught_where_no_data_are_given(model, tmp_path, monkeypatch):
    task = finetune.make_task
    monkeypatch.setattr(
        finetune, "make_task", lambda s: task(s, num_train=8, num_test=4)
    )
    done = tuned(model, tmp_path, settings=replace(SETTINGS, steps=1))
    facts = json.loads(done.csv.with_suffix(".json").read_text())
    assert facts["texts"] == {"train": 8, "scored": 4, "counted": 2}
    assert facts["configuration"]["data"] == "task"


def test_quantised_weights_take_adapters_only(model, tmp_path, data):
    from mlx import nn

    loaded = selfspec.load(model)
    nn.quantize(loaded.model, group_size=32, bits=4)
    with pytest.raises(TrainingError, match="quantised weights"):
        save_small(loaded.model, loaded.tokenizer, tmp_path / "q", {})
    assert mx.array(1).item() == 1
    with pytest.raises(TrainingError, match="method must be lora or full, got 'x'"):
        tuned(model, tmp_path, data, method="x")
