"""The sweep end to end on a tiny model: grid, rows, resume, losslessness."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import mlx.core as mx
import pandas as pd
import pytest

from selfspec.study import naive_sweep, row_table, sweep_summary
from selfspec.study.errors import StudyError
from selfspec.study.paired import Decoded
from selfspec.study.results import read_csv, read_provenance
from selfspec.study.sweep_grid import SIZES, resolve_grid
from selfspec.study.sweep_rows import predicted
from tests.tiny import save_tiny_model

MECHANISMS = ("two caches", "one cache")
SMALL = dict(size="smoke", num_tokens=16)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama")


@pytest.fixture(scope="module")
def sweep(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    return naive_sweep.measure(
        str(tiny),
        skip_fractions=[0.2, 0.5],
        draft_lengths=[2, 3],
        num_prompts=3,
        results=out,
        **SMALL,
    )


def test_every_configuration_and_prompt_has_one_row_a_mechanism(sweep):
    keys = ["mechanism", "skip_fraction", "num_draft_tokens", "prompt_id", "repeat"]
    expected = 2 * 2 * 3 * len(MECHANISMS)
    assert len(sweep.rows) == expected
    assert not sweep.rows.duplicated(keys).any()
    assert set(sweep.rows["skip_fraction"]) == {0.2, 0.5}
    assert sweep.provenance["finished"] and "drift" in sweep.provenance


def test_rows_hold_their_own_arithmetic(sweep):
    for row in sweep.rows.to_dict("records"):
        rounds = [
            tuple(map(int, r.split(":")))
            for r in row["drafted_accepted_per_round"].split()
        ]
        assert row["rounds"] == len(rounds)
        assert row["drafted"] == sum(d for d, _ in rounds)
        assert row["accepted"] == sum(a for _, a in rounds)
        assert row["first_accepted"] == sum(a > 0 for _, a in rounds)
        assert row["tokens"] == row["baseline_tokens"] == 16
        assert row["lossless"] in ("equal", "tie")
        base = row["baseline_decode_seconds"] / row["baseline_decode_tokens"]
        own = row["decode_seconds"] / row["decode_tokens"]
        assert row["speedup"] == pytest.approx(base / own, rel=1e-4)
        assert row["predicted_speedup"] > 0


def test_orders_vary_and_nothing_personal_is_kept(sweep):
    assert sweep.rows["order"].nunique() > 1
    text = (sweep.folder / "provenance.json").read_text()
    text += (sweep.folder / "naive-sweep.csv").read_text()
    private = (
        str(sweep.folder.parents[2]),
        os.uname().nodename,
        os.path.expanduser("~"),
    )
    assert not [word for word in private if word in text]


def test_summary_counts_sums_over_sums(sweep):
    table = sweep_summary.summarise(sweep.rows)
    assert len(table) == 4 * len(MECHANISMS)
    for line in table.to_dict("records"):
        part = sweep.rows[
            (sweep.rows["skip_fraction"] == line["skip_fraction"])
            & (sweep.rows["num_draft_tokens"] == line["num_draft_tokens"])
            & (sweep.rows["mechanism"] == line["mechanism"])
        ]
        assert line["acceptance_rate"] == part["accepted"].sum() / part["drafted"].sum()
        assert line["speedup"] == pytest.approx(part["speedup"].median())
        assert line["verdict"] == "too few prompts" and math.isnan(line["low"])
        assert line["pairs"] == line["lossless"] == 3


def test_mechanisms_are_compared_within_a_block(sweep):
    comparison = sweep_summary.compare_mechanisms(sweep.rows)
    assert len(comparison) == 4
    line = comparison.iloc[0]
    part = sweep.rows[
        (sweep.rows["skip_fraction"] == line["skip_fraction"])
        & (sweep.rows["num_draft_tokens"] == line["num_draft_tokens"])
    ].pivot(index="prompt_id", columns="mechanism")
    per_token = part["decode_seconds"] / part["decode_tokens"]
    ratios = per_token["two caches"] / per_token["one cache"]
    assert line["decode"] == pytest.approx(ratios.median(), rel=1e-3)
    alone = sweep.rows[sweep.rows["mechanism"] == "one cache"]
    assert sweep_summary.compare_mechanisms(alone).empty


def test_prediction_sums_costs_over_the_timed_rounds():
    decoded = Decoded(
        (0,) * 12, 0.1, 1.0, 8, 1, rounds=((3, 3), (3, 1), (3, 3), (2, 2))
    )
    value = predicted(decoded, cost_ratio=0.5, verify_ratio={3: 1.1, 4: 1.2})
    assert value == pytest.approx(8 / (1.5 + 1.2 + 1.5 + 1.2 + 1.0 + 1.1))
    only_first = Decoded((0,) * 4, 0.1, 0.0, 0, 1, rounds=((3, 3),))
    assert math.isnan(predicted(only_first, cost_ratio=0.5, verify_ratio={4: 1.0}))


def test_sizes_are_those_of_the_design():
    shape = {
        name: (len(grid.configurations), grid.num_prompts, grid.num_tokens)
        for name, grid in SIZES.items()
    }
    assert shape == {"smoke": (2, 2, 16), "default": (6, 6, 24), "paper": (12, 8, 64)}
    paper = SIZES["paper"]
    assert paper.skip_fractions == (0.1, 0.2, 0.3, 0.5)
    assert paper.draft_lengths == (2, 3, 5)


@pytest.mark.parametrize(
    "change, rule",
    [
        ({"size": "huge"}, "size must be one of"),
        ({"skip_fractions": [1.5]}, "skip_fractions"),
        ({"skip_fractions": []}, "skip_fractions"),
        ({"draft_lengths": [0]}, "draft_lengths"),
        ({"num_prompts": 0}, "num_prompts"),
        ({"num_tokens": 3}, "num_tokens"),
        ({"repeats": 0}, "repeats"),
    ],
)
def test_a_bad_grid_is_one_line(change, rule):
    with pytest.raises(StudyError, match=rule) as caught:
        resolve_grid(**{"size": "smoke", **change})
    assert "\n" not in str(caught.value)


def test_overrides_replace_only_what_they_name():
    grid = resolve_grid("smoke", num_tokens=40, repeats=None)
    assert grid == replace(SIZES["smoke"], num_tokens=40)


def test_a_text_that_is_not_the_targets_stops_the_run(tiny, tmp_path, monkeypatch):
    from selfspec.study import arms

    honest = arms.shorter_list

    def wrong(*args, **kwargs):
        out = honest(*args, **kwargs)
        if len(out.tokens) < 16:  # warming up
            return out
        tokens = (*out.tokens[:5], (out.tokens[5] + 1) % 258, *out.tokens[6:])
        return Decoded(tokens, 0.1, 1.0, 15, 1, out.rounds)

    monkeypatch.setattr(arms, "shorter_list", wrong)
    with pytest.raises(StudyError, match="token 5 is not the target's own"):
        naive_sweep.measure(str(tiny), results=tmp_path, **SMALL)
    assert csv_rows(tmp_path) == []


def test_a_model_that_ends_every_text_at_once_is_named(tmp_path):
    """Every token ends the text: one token a text, and no time between two tokens."""
    folder = save_tiny_model(tmp_path / "mute", eos_token_id=list(range(258)))
    with pytest.raises(StudyError, match="nothing to time.*has 1 tokens.*Way out"):
        naive_sweep.measure(str(folder), results=tmp_path / "results", **SMALL)
    assert {row["speedup"] for row in csv_rows(tmp_path / "results")} == {""}


def test_a_model_that_is_all_nan_is_blamed_for_it(tmp_path):
    folder = save_tiny_model(tmp_path / "broken")
    weights = mx.load(str(folder / "model.safetensors"))
    weights["lm_head.weight"] = mx.full(weights["lm_head.weight"].shape, float("nan"))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    with pytest.raises(StudyError, match="broken computes infinite or undefined.*Way"):
        naive_sweep.measure(str(folder), results=tmp_path / "results", **SMALL)


def test_a_model_of_one_layer_has_nothing_to_leave_out(tmp_path):
    folder = save_tiny_model(tmp_path / "one", num_hidden_layers=1)
    with pytest.raises(StudyError, match="one: .*leaves none of 1 layers.*Way out"):
        naive_sweep.measure(str(folder), results=tmp_path / "results", **SMALL)


def test_texts_too_short_to_time_are_empty_cells_and_counted_all_the_same(
    tiny, tmp_path
):
    """Some texts end within their first round: rows without a speedup, no NaN on disk."""
    plain = naive_sweep.measure(str(tiny), results=tmp_path / "plain", **SMALL)
    first = plain.rows["prompt_id"].iloc[0]
    ends = first_tokens(tiny, first)[1]  # the second token of one prompt's text
    folder = save_tiny_model(tmp_path / "curt", eos_token_id=[257, ends])
    sweep = naive_sweep.measure(str(folder), results=tmp_path / "curt-results", **SMALL)
    short = sweep.rows[sweep.rows["prompt_id"] == first]
    assert short["speedup"].isna().all() and sweep.rows["speedup"].notna().any()
    assert "nan" not in (sweep.folder / "naive-sweep.csv").read_text()
    again = row_table.load_rows(sweep.folder / "naive-sweep.csv", sweep.run_id)
    table = sweep_summary.summarise(again)
    assert (table["pairs"] == 2).all() and table["speedup"].notna().all()


def first_tokens(folder, prompt_id):
    from selfspec import load, models
    from selfspec.study import arms, prompt_set

    loaded = load(folder)
    [prompt] = [p for p in prompt_set.load_prompts() if p.id == prompt_id]
    ids = models.render_prompt(loaded.tokenizer, prompt.text)
    return arms.plain(loaded.model, ids, num_tokens=4).tokens


SCRIPT = """
from selfspec.study import naive_sweep
naive_sweep.measure({model!r}, results={out!r}, size="smoke", num_tokens=16,
                    skip_fractions=[0.2, 0.5], draft_lengths=[2], num_prompts=8)
"""


def start(tiny, out):
    code = textwrap.dedent(SCRIPT).format(model=str(tiny), out=str(out))
    environment = {**os.environ, "TQDM_DISABLE": "1"}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def csv_rows(out):
    found = list(out.glob("*/*/naive-sweep.csv"))
    return read_csv(found[0]) if found else []


def test_a_killed_sweep_resumes_without_losing_or_repeating_a_pair(tiny, tmp_path):
    """kill -9 in the middle; a second start ends with every pair exactly once."""
    process = start(tiny, tmp_path)
    deadline = time.monotonic() + 120
    while len(csv_rows(tmp_path)) < 3 and process.poll() is None:
        assert time.monotonic() < deadline, "nothing was measured"
        time.sleep(0.01)
    assert process.poll() is None, "it ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = csv_rows(tmp_path)
    total = 16 * len(MECHANISMS)
    assert 3 <= len(before) < total
    assert start(tiny, tmp_path).wait(timeout=240) == 0
    after = csv_rows(tmp_path)
    assert after[: len(before)] == before  # measured once, kept as it was
    keys = [
        (r["mechanism"], r["skip_fraction"], r["num_draft_tokens"], r["prompt_id"])
        for r in after
    ]
    assert len(keys) == len(set(keys)) == total
    assert len({r["run_id"] for r in after}) == 1
    [provenance] = tmp_path.glob("*/*/provenance.json")
    [run] = read_provenance(provenance.parent).values()
    assert run["finished"]
    # costs come from before the first pair, so both halves share them
    assert len({r["verify_ratio"] for r in after}) == 1


def test_a_fresh_clone_measures_anew_beside_the_committed_run(tiny, tmp_path):
    """The committed files (no marker), same machine, same model, same size: not ours."""
    clone = tmp_path / "clone"
    common = dict(results=clone, skip_fractions=[0.5], draft_lengths=[2], **SMALL)
    theirs = naive_sweep.measure(str(tiny), **common)
    committed = (theirs.folder / "naive-sweep.csv").read_text()
    mine = naive_sweep.measure(str(tiny), **common)
    assert mine.run_id != theirs.run_id
    assert len(mine.rows) == len(theirs.rows)
    assert set(mine.rows["run_id"]) == {mine.run_id}
    assert (mine.folder / "naive-sweep.csv").read_text().startswith(committed)
    assert set(json.loads((mine.folder / "provenance.json").read_text())["runs"]) == {
        mine.run_id,
        theirs.run_id,
    }


def test_a_committed_unfinished_run_is_not_continued_either(tiny, tmp_path):
    common = dict(results=tmp_path, skip_fractions=[0.5], draft_lengths=[2], **SMALL)
    theirs = naive_sweep.measure(str(tiny), **common)
    path = theirs.folder / "naive-sweep.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]))  # header and one row: as if it was cut short
    mine = naive_sweep.measure(str(tiny), **common)
    assert mine.run_id != theirs.run_id and len(mine.rows) == len(theirs.rows)


def test_too_few_prompts_of_ones_own_are_refused(tiny, tmp_path):
    prompts = tmp_path / "mine.txt"
    prompts.write_text("one prompt only\n")
    with pytest.raises(StudyError, match="has 1 prompts.*Way out"):
        naive_sweep.measure(
            str(tiny), prompts_file=str(prompts), results=tmp_path, **SMALL
        )


def test_summary_of_nothing_timed_is_empty(sweep):
    rows = sweep.rows.assign(speedup=float("nan"))
    assert isinstance(sweep_summary.summarise(rows), pd.DataFrame)
    assert sweep_summary.summarise(rows).empty


def test_one_mechanism_alone_can_be_asked_for(tiny, tmp_path):
    common = dict(results=tmp_path, skip_fractions=[0.5], draft_lengths=[2], **SMALL)
    alone = naive_sweep.measure(str(tiny), mechanisms=["two caches"], **common)
    assert set(alone.rows["mechanism"]) == {"two caches"}
    assert set(alone.rows["order"]) <= {
        "baseline > two caches",
        "two caches > baseline",
    }
    for wrong in (["three caches"], []):
        with pytest.raises(StudyError, match="mechanism"):
            naive_sweep.measure(str(tiny), mechanisms=wrong, **common)
