"""A run of drafts end to end on a tiny model: rows, predictions, resume, refusals."""

import json
import math

import pytest

from selfspec import models
from selfspec.costs import CostProfile
from selfspec.decoding import SkipDraft
from selfspec.study import arms, draft_rows, draft_summary
from selfspec.study.draft_bench import CALIBRATION_LENGTH, measure
from selfspec.study.draft_grid import Case
from selfspec.study.draft_rows import HeldOut
from selfspec.study.errors import StudyError
from selfspec.study.known_costs import DraftCosts
from selfspec.study.paired import Decoded
from selfspec.study.prompt_set import load_prompts
from selfspec.study.results import read_csv
from selfspec.study.row_table import load_rows, read_rounds
from tests.costs import synthetic
from tests.study.drafts import grid, mixed_grid, one_case_grid

PROFILE = synthetic.profile()


def run(loaded, folder, drafts=None, **changes):
    options = dict(
        experiment="machine",
        size="smoke",
        grid=drafts or mixed_grid(),
        profile=PROFILE,
        results=folder,
    )
    return measure(loaded, **{**options, **changes})


@pytest.fixture(scope="module")
def finished(tiny_loaded, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return run(tiny_loaded, folder, extra_facts={"policy": {"budget": 0.01}})


def test_every_case_and_prompt_has_one_row_with_the_columns_of_the_plan(finished):
    keys = ["draft", "num_draft_tokens", "prompt_id", "repeat"]
    assert len(finished.rows) == 4 * 2 and not finished.rows.duplicated(keys).any()
    assert list(finished.rows.columns) == ["schema", "run_id", *draft_rows.COLUMNS]
    assert finished.provenance["finished"] and "drift" in finished.provenance
    assert finished.provenance["policy"] == {"budget": 0.01}
    assert finished.provenance["experiment"] == "machine"
    assert set(finished.rows["device"]) and set(finished.rows["size"]) == {"smoke"}


def test_cases_of_a_group_ran_beside_one_baseline(finished):
    for _, part in finished.rows.groupby(["prompt_id", "order"]):
        assert len(part) == 2 and part["baseline_decode_seconds"].nunique() == 1
    orders = set(finished.rows["order"])
    assert all(order.count(" > ") == 2 and "baseline" in order for order in orders)


def test_rows_hold_their_own_arithmetic(finished):
    for row in finished.rows.to_dict("records"):
        rounds = read_rounds(row["drafted_accepted_per_round"])
        assert row["rounds"] == len(rounds)
        assert row["drafted"] == sum(d for d, _ in rounds)
        assert row["accepted"] == sum(a for _, a in rounds)
        empty = sum(d == 0 for d, _ in rounds)
        assert row["plain_tokens"] <= empty
        if row["num_draft_tokens"] != "auto":
            assert row["plain_tokens"] == 0  # a lookup that found nothing is a round
        elif row["draft"] != "lookup":
            assert row["plain_tokens"] == empty
        # a round emits what it kept and one token of the target's own
        assert row["tokens"] == sum(1 + a for _, a in rounds) == 20
        assert row["lossless"] in ("equal", "tie")


def drafts_by_name():
    return {case.name: case for case in mixed_grid().cases}


def test_predictions_come_from_the_profile_and_from_nothing_that_was_timed(
    finished, tiny_loaded
):
    cases = drafts_by_name()
    for row in finished.rows.to_dict("records"):
        case = cases[f"{row['draft']}, {row['num_draft_tokens']}"]
        known = DraftCosts(PROFILE, case.draft)
        context = mean_context(tiny_loaded, row["prompt_id"])
        rounds = read_rounds(row["drafted_accepted_per_round"])[1:]
        plain = sum(d == 0 for d, _ in rounds) if case.is_auto else 0
        expected = known.speedup(rounds, row["decode_tokens"], context, plain)
        assert row["predicted_speedup"] == pytest.approx(expected, rel=1e-4)
        held_out = HeldOut.from_json(finished.provenance["calibration"][case.name])
        expected = known.speedup(
            held_out.every_round, held_out.tokens, context, held_out.plain
        )
        assert row["predicted_held_out"] == pytest.approx(expected, rel=1e-4)
        assert row["overhead_ratio"] == pytest.approx(
            known.overhead_ratio(context), rel=1e-4
        )
        if case.is_auto:
            assert math.isnan(row["verify_ratio"])
        else:
            rows = case.num_draft_tokens + 1
            assert row["verify_ratio"] == pytest.approx(
                known.verify_ratio(rows, context), rel=1e-4
            )


def mean_context(loaded, prompt_id):
    [text] = [p.text for p in load_prompts() if p.id == prompt_id]
    return len(models.render_prompt(loaded.tokenizer, text)) + 20 // 2


def test_calibration_prompts_are_not_evaluated_and_their_rounds_are_kept(finished):
    known = finished.provenance
    assert not set(known["parameters"]["held_out"]) & set(finished.rows["prompt_id"])
    calibration = known["calibration"]
    assert set(calibration) == {
        *drafts_by_name(),
        f"skip 50 %, {CALIBRATION_LENGTH}",  # what the rule believes at first
    }
    for found in calibration.values():
        assert found["tokens"] == 12 and len(found["rounds"]) == 1
    assert CostProfile.from_json(known["profile"]) == PROFILE
    assert known["costs"]["verify_ratio"]["1"] == PROFILE.verify_ratio(1)


def test_held_out_rates_are_sums_over_sums():
    found = HeldOut(rounds=(((3, 3), (3, 1)), ((2, 0), (0, 0))), tokens=8, plain=1)
    assert found.acceptance_rate == 4 / 8
    # five tokens and two rejections were reached by verification
    assert found.per_token_acceptance == 4 / 6
    assert HeldOut.from_json(json.loads(json.dumps(found.to_json()))) == found
    nothing = HeldOut(rounds=(((0, 0),),), tokens=1)
    assert math.isnan(nothing.acceptance_rate)
    assert math.isnan(nothing.per_token_acceptance)


def test_an_interrupted_run_goes_on_with_the_costs_that_it_began_with(
    tiny_loaded, tmp_path, monkeypatch
):
    honest, calls = arms.plain, []

    def stops(*args, **options):
        if options["num_tokens"] == 20:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
        return honest(*args, **options)

    monkeypatch.setattr(arms, "plain", stops)
    with pytest.raises(KeyboardInterrupt):
        run(tiny_loaded, tmp_path)
    [path] = tmp_path.glob("*/*/machine.csv")
    before = read_csv(path)
    assert len(before) == 4
    monkeypatch.setattr(arms, "plain", honest)
    # a profile measured since is not the one that the first rows were predicted from
    other = synthetic.profile(step_seconds=2 * PROFILE.step_seconds)
    after = run(tiny_loaded, tmp_path, profile=other)
    rows = read_csv(path)
    assert rows[:4] == before and len(rows) == 8
    assert CostProfile.from_json(after.provenance["profile"]) == PROFILE
    # o depends on the prompt's length and the profile, whatever the draft
    by_prompt = after.rows.groupby("prompt_id")["overhead_ratio"]
    assert (by_prompt.nunique() == 1).all()
    assert len(set(after.rows["run_id"])) == 1


def test_a_finished_run_is_not_continued(tiny_loaded, tmp_path):
    first = run(tiny_loaded, tmp_path, one_case_grid())
    second = run(tiny_loaded, tmp_path, one_case_grid())
    assert first.run_id != second.run_id and len(second.rows) == 2


def test_a_text_that_is_not_the_targets_stops_the_run(
    tiny_loaded, tmp_path, monkeypatch
):
    honest = arms.one_cache

    def wrong(*args, **options):
        out = honest(*args, **options)
        if options["num_tokens"] < 20:
            return out
        tokens = (*out.tokens[:5], (out.tokens[5] + 1) % 258, *out.tokens[6:])
        return Decoded(tokens, 0.1, 1.0, 15, 1, out.rounds)

    monkeypatch.setattr(arms, "one_cache", wrong)
    with pytest.raises(StudyError, match="skip 50 %, auto.*token 5 is not the target"):
        run(tiny_loaded, tmp_path, one_case_grid())
    [path] = tmp_path.glob("*/*/provenance.json")
    assert not path.with_name("machine.csv").exists()


def test_texts_end_at_the_end_of_sequence_or_go_on_as_the_grid_says(
    tiny_loaded, tmp_path
):
    """Every token of the tiny model is made an end: one token a text, or all of them."""
    loaded = _ends_at_every_token(tiny_loaded)
    on = run(loaded, tmp_path, one_case_grid(stop_at_eos=False))
    assert set(on.rows["tokens"]) == {20}
    with pytest.raises(StudyError, match="nothing to time"):
        run(loaded, tmp_path, one_case_grid())


def _ends_at_every_token(loaded):
    from dataclasses import replace

    class Tokenizer:
        eos_token_ids = frozenset(range(258))

        def __getattr__(self, name):
            return getattr(loaded.tokenizer, name)

    return replace(loaded, tokenizer=Tokenizer())


def test_a_draft_of_another_model_is_refused_before_anything_is_measured(
    tiny_loaded, tmp_path
):
    cases = ((Case("skip 9", SkipDraft(frozenset({9})), 2),),)
    with pytest.raises(StudyError, match="skip 9.*Way out") as caught:
        run(tiny_loaded, tmp_path, grid(cases))
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


def test_too_few_prompts_of_ones_own_are_refused(tiny_loaded, tmp_path):
    prompts = tmp_path / "mine.txt"
    prompts.write_text("one prompt only\n")
    with pytest.raises(StudyError, match="has 1 prompts.*Way out"):
        run(tiny_loaded, tmp_path, prompts_file=str(prompts))


def test_the_evaluation_prompts_are_those_of_the_sweep(finished):
    ids = {prompt.id for prompt in load_prompts("evaluation", 2)}
    assert set(finished.rows["prompt_id"]) == ids


def test_the_summary_reads_what_was_written(finished):
    path = finished.folder / "machine.csv"
    table = draft_summary.summarise(load_rows(path, finished.run_id))
    assert list(table["draft"]) == ["skip 50 %", "skip 50 %", "exit 3", "lookup"]
    assert list(table["num_draft_tokens"]) == ["auto", 2, 2, 4]
    assert (table["pairs"] == 2).all() and (table["lossless"] == 2).all()
