"""`selfspec fit` from end to end on a tiny model, and what it says before it trains."""

import json

import mlx.core as mx
import pytest

import selfspec
from selfspec import cli
from selfspec.study import fit_run
from selfspec.training import card_of
from selfspec.training.bridge_data import Shards
from selfspec.training.bridge_text import Reading
from tests.costs.synthetic import profile
from tests.tiny import save_tiny_model


@pytest.fixture(autouse=True)
def known_costs(monkeypatch):
    monkeypatch.setattr(fit_run, "machine_profile", lambda loaded, **options: profile())
    monkeypatch.setattr(fit_run, "ANSWER", 12)
    monkeypatch.setattr(fit_run, "BATCH", 4)


def fit(tmp_path, *words):
    folder = tmp_path / "tiny"
    if not folder.exists():
        save_tiny_model(folder, seed=2)
    common = ["--model", str(folder), "--root", str(tmp_path), "--minutes", "0.03"]
    return cli.main(["fit", *common, *words])


def test_it_says_what_is_needed_writes_fits_and_keeps_the_bridge(tmp_path, capsys):
    assert fit(tmp_path) == 0
    said = capsys.readouterr()
    lines = said.err.splitlines()
    needs = [line for line in lines if "breaks even at" in line and "needs" in line]
    first = next(i for i, line in enumerate(lines) if "step 0 of" in line)
    assert len(needs) > 4 and all(lines.index(line) < first for line in needs)
    [path] = tmp_path.glob("weights/bridges/*.safetensors")
    card = card_of(path)
    assert card.data["tokens"] > 100 and card.data["held_out_texts"] > 0
    assert card.curve[0]["step"] == 0 and card.curve[-1]["step"] > 0
    assert 0 < card.settings["needs"]["needed"]
    loaded = selfspec.load(tmp_path / "tiny")
    draft = selfspec.load_bridge(path, loaded)
    assert len(draft.tokens) == card.shortlist == 64
    assert str(path) in said.out
    # again it is all there already: no more text, the same bridge
    before = mx.load(str(path))
    assert fit(tmp_path) == 0
    after = mx.load(str(path))
    assert before.keys() == after.keys()
    assert all(mx.array_equal(before[name], after[name]) for name in before)
    assert "written" not in capsys.readouterr().err


def test_a_small_disk_ends_the_writing_and_so_does_the_time(tmp_path):
    """Every shard is as large as the others; the third one would not fit."""

    class Quick(fit_run._Writer):
        def __init__(self):
            pass

        def shard(self, number, ids):
            streams = mx.ones((50, 32)), mx.ones((50, 32))
            return [Reading(tuple(range(51)), 3, *streams)]

    said = []
    shards = Shards(tmp_path / "disk", {})
    Quick().fill(shards, [], 60.0, 20_000, said.append)
    assert len(shards.paths) == len(said) == 2 and shards.nbytes <= 20_000
    again = Shards(tmp_path / "disk", {})
    Quick().fill(again, [], 60.0, 20_000, said.append)  # nothing is left to do
    assert len(again.paths) == len(said) == 2
    short = Shards(tmp_path / "time", {})
    Quick().fill(short, [], 0.0, 20_000, said.append)
    assert len(short.paths) == 1  # without any text there is nothing to learn


def test_what_is_asked_stands_in_the_place_of_the_choice(tmp_path):
    assert fit(tmp_path, "--exit-layer", "2", "--bridge", "mlp", "--loss", "ce") == 0
    [card] = tmp_path.glob("weights/bridges/*.json")
    known = json.loads(card.read_text())
    assert (known["exit_layer"], known["kind"]) == (2, "mlp")
    assert known["settings"]["loss"] == "ce"


@pytest.mark.parametrize(
    "words, says",
    [
        (["--minutes", "0"], "minutes must be above 0"),
        (["--exit-layer", "6"], "--exit-layer must be from 1 to 5"),
        (["--data", "no-such.txt"], "there is no prompt file no-such.txt"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, words, says):
    assert fit(tmp_path, *words) == 1
    assert says in capsys.readouterr().err.splitlines()[-1]
