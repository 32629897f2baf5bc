"""What every experiment does around its pairs: order, resume, checks, drift."""

import itertools
import random
import shlex
from dataclasses import dataclass, replace

import pytest

from selfspec.study import arms, bench, fragments, run_records
from selfspec.study.draft_bench import measure
from selfspec.study.errors import StudyError
from selfspec.study.paired import Decoded
from selfspec.study.results import Run
from tests.costs import synthetic
from tests.study.drafts import one_case_grid


@dataclass(frozen=True)
class OnePair:
    configuration: str
    prompt: str

    @property
    def key(self):
        return (self.configuration, self.prompt)


PAIRS = [OnePair(c, p) for c in "ab" for p in ("1", "2", "3")]


def time_all(folder, ran, *, stop_after=None):
    """Run the protocol with arms that only note that they ran."""

    def arm(name, pair):
        def run():
            if stop_after is not None and len(ran) >= stop_after:
                raise KeyboardInterrupt
            ran.append((name, *pair.key))
            return Decoded((1, 2), 0.1, 1.0, 2, 1)

        return run

    with Run.open(
        folder, "e", ("c", "p", "order"), "same", total=len(PAIRS), provenance={}
    ) as run:
        bench.time_pairs(
            run,
            PAIRS,
            seed=0,
            key_of_row=lambda row: (row["c"], row["p"]),
            warm_up=lambda pair: {"w": arm("warm", pair)},
            arms=lambda pair: {n: arm(n, pair) for n in ("baseline", "draft")},
            rows=lambda pair, block: [
                {"c": pair.configuration, "p": pair.prompt, "order": block.order[0]}
            ],
        )
        return run.rows()


def test_every_pair_is_timed_once_and_each_configuration_warmed_up_once(tmp_path):
    ran = []
    rows = time_all(tmp_path, ran)
    assert [(row["c"], row["p"]) for row in rows] == [pair.key for pair in PAIRS]
    assert [entry for entry in ran if entry[0] == "warm"] == [
        ("warm", "a", "1"),
        ("warm", "b", "1"),
    ]
    assert len(ran) == 2 + 2 * len(PAIRS)


def test_the_order_is_that_of_the_pairs_seed_and_is_not_always_the_same(tmp_path):
    first = time_all(tmp_path / "one", [])
    again = time_all(tmp_path / "two", [])
    assert [r["order"] for r in first] == [r["order"] for r in again]
    drawn = [
        random.Random("/".join(["0", *pair.key])).sample(["baseline", "draft"], 2)
        for pair in PAIRS
    ]
    assert len({tuple(order) for order in drawn}) == 2


def test_an_interrupted_run_goes_on_with_the_pair_that_is_not_on_disk(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        time_all(tmp_path, [], stop_after=1 + 2 * 2 + 1)  # within the third pair
    ran = []
    rows = time_all(tmp_path, ran)
    assert [(row["c"], row["p"]) for row in rows] == [pair.key for pair in PAIRS]
    timed = {entry[1:] for entry in ran if entry[0] != "warm"}
    assert timed == {pair.key for pair in PAIRS[2:]}
    assert ran[0] == ("warm", "a", "3")  # cold after the break


def throttling(monkeypatch, by: float):
    """The baseline really decodes, on a clock that slows down by `by` every call."""
    calls, honest = itertools.count(), arms.plain

    def plain(*args, **options):
        out = honest(*args, **options)
        factor = (1 + by) ** next(calls)
        return replace(out, decode_seconds=0.01 * factor * out.decode_tokens)

    monkeypatch.setattr(arms, "plain", plain)


@pytest.mark.parametrize("by, flagged", [(0.02, True), (0.0, False)])
def test_a_run_that_throttles_is_flagged_and_its_page_says_so(
    tiny_loaded, tmp_path, monkeypatch, by, flagged
):
    throttling(monkeypatch, by)
    run = measure(
        tiny_loaded,
        experiment="auto",
        size="smoke",
        grid=one_case_grid(),
        profile=synthetic.profile(),
        results=tmp_path / "results",
    )
    [record] = run_records.collect(tmp_path)
    assert record.run_id == run.run_id and record.drifted == flagged
    assert (record.facts["drift"] > run_records.DRIFT_BOUND) == flagged
    assert ("The baseline moved by +" in fragments.origins(record, "x")) == flagged


def test_drift_is_the_move_of_the_baseline_either_way():
    assert bench.drift(0.010, 0.011)["drift"] == pytest.approx(0.1)
    assert bench.drift(0.010, 0.009)["drift"] == pytest.approx(-0.1)


def test_the_command_of_a_run_can_be_typed_and_names_no_place(tmp_path):
    folder = tmp_path / "My Model"
    folder.mkdir()
    mine = str(tmp_path / "mine.txt")
    shown = bench.command(str(folder), "machine", "smoke", mine)
    assert shlex.split(shown)[2:6] == ["--model", "My Model", "--size", "smoke"]
    assert "--experiment machine" in shown
    assert shown.endswith("--prompts mine.txt") and str(tmp_path) not in shown
    assert "--prompts" not in bench.command("smollm2-135m", "auto", "smoke", "")


def test_too_few_prompts_of_ones_own_are_refused(tmp_path):
    prompts = tmp_path / "mine.txt"
    prompts.write_text("one prompt only\n")
    assert len(bench.choose_prompts(str(prompts), 1)) == 1
    with pytest.raises(StudyError, match="has 1 prompts.*Way out.*num_prompts=1"):
        bench.choose_prompts(str(prompts), 2)
