"""The engine's benchmark runs on any model, and the book finds its figures by key."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from selfspec.study import engine_values
from selfspec.study.results import ResultsError

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "decoding.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """What the benchmark prints last, of a tiny random model."""
    model = tiny.save_tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama")
    words = ["--tokens", "8", "--prompts", "2", "--prompt-tokens", "70"]
    words += ["--profile-seconds", "2"]
    out = subprocess.run(
        [sys.executable, BENCHMARK, "--model", model, "--skip", "0.3", *words],
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout.splitlines()[-1])


def keep(root: Path, result: dict, **changes) -> None:
    folder = root / "results" / f"machine-{len(list(root.rglob('*.json')))}" / "m"
    folder.mkdir(parents=True)
    (folder / engine_values.FILE).write_text(json.dumps(result | changes))


def test_the_benchmark_fills_every_key_of_the_page(result, tmp_path):
    keep(tmp_path, result)
    found = engine_values.values(tmp_path)
    missing = {key for key, value in found.items() if value is None}
    # two prompts give no interval, and nobody measured the other devices
    mine = {k for k in missing if k.startswith(f"{result['machine']['device']}.")}
    assert all(key.endswith(("_low", "_high")) for key in mine)
    device = result["machine"]["device"]
    assert found[f"{device}.engine.skip.speedup"] > 0
    assert found[f"{device}.engine.prompts"] == 2
    assert {f"{device}.engine.{key}" for key in engine_values.keys()} <= set(found)


def test_the_draft_that_skips_nothing_but_the_head_is_accepted_every_time(result):
    # the shortlist holds the whole vocabulary of so small a model
    assert result["drafts"]["shortlist"]["acceptance_rate"] == 1


def test_the_benchmark_compares_equal_texts_and_tells_copied_rows_apart(result):
    assert {row["texts_that_differ"] for row in result["drafts"].values()} == {0}
    copied = {n for n, row in result["drafts"].items() if row["shortlist_bytes"]}
    assert copied == {"shortlist"}


def test_without_a_benchmark_every_key_is_there_and_empty(tmp_path):
    found = engine_values.values(tmp_path)
    assert "metal.engine.skip.measured_over_predicted" in found
    assert set(found.values()) == {None}


def test_the_latest_benchmark_of_a_device_is_quoted(result, tmp_path):
    machine = {**result["machine"], "device": "metal"}
    for date, tokens in (("2026-02-01", 3), ("2026-03-01", 5), ("2026-01-01", 7)):
        keep(tmp_path, result, date=date, tokens=tokens, machine=machine)
    found = engine_values.values(tmp_path)
    assert found["metal.engine.tokens"] == 5
    assert found["cuda.engine.tokens"] is None


def test_a_broken_benchmark_file_is_named(result, tmp_path):
    keep(tmp_path, {"machine": 1})
    with pytest.raises(ResultsError, match=f"{engine_values.FILE}.*Way out"):
        engine_values.values(tmp_path)
