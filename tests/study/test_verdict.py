"""A verdict: chosen on some prompts, judged on others, said in one paragraph."""

import pandas as pd
import pytest

from selfspec.study import verdict
from selfspec.study.candidates import Offer
from selfspec.study.verdict import CHOOSING, JUDGING, Verdict
from tests.costs import synthetic
from tests.study import drafts

FACTS = {
    "machine": {"chip": "Apple M3", "device": "metal"},
    "model": {"name": "some-model"},
    "costs": {"step_seconds": 0.02},
}


def rows(**speedups) -> pd.DataFrame:
    """Rows of drafts, a speedup for each of twelve prompts."""
    return pd.concat(
        [drafts.rows(draft, 3, speedups=values) for draft, values in speedups.items()],
        ignore_index=True,
    )


PROFILE = synthetic.profile()
CHOOSING_IDS = [f"chat-{number}" for number in range(CHOOSING)]
STEADY = [1.2 + 0.01 * i for i in range(12)]


def said(table, best, passed=()) -> str:
    chosen = Offer("lookup", None, 3, float("nan"), "selfspec.LookupDraft()")
    return Verdict(table, best, chosen, passed, FACTS, None).paragraph()


def test_the_best_of_the_choosing_prompts_is_judged_on_the_others():
    """What looked best by luck is judged by texts that had no part in that."""
    lucky = [1.9] * CHOOSING + [0.8] * JUDGING
    table, best = verdict.judge(rows(lucky=lucky, steady=STEADY), CHOOSING_IDS)
    assert set(table["draft"]) == {"lucky", "steady"} and table["prompts"].max() == 4
    assert (best["draft"], best["verdict"]) == ("lucky", "slower")
    assert best["speedup"] == pytest.approx(0.8) and best["prompts"] == JUDGING


def test_a_draft_that_pays_is_named_with_its_interval_and_its_code():
    table, best = verdict.judge(rows(lookup=STEADY), CHOOSING_IDS)
    text = said(table, best)
    assert text == (
        "some-model on Apple M3 (Metal GPU) decodes about 50 tokens/s plainly. "
        "Self-speculation pays: lookup with 3 draft tokens: "
        f"{best['speedup']:.2f} times the plain speed, "
        f"95 % interval {best['low']:.2f} to {best['high']:.2f} over 8 prompts, with "
        "40% of its tokens kept. In a program: draft=selfspec.LookupDraft(), "
        "num_draft_tokens=3."
    )
    assert Verdict(table, best, None, (), FACTS, None).pays


@pytest.mark.parametrize("speedup", [0.9, 1.0])
def test_where_nothing_pays_it_says_so_and_what_was_not_tried(speedup):
    values = [speedup + 0.02 * (i % 3 - 1) for i in range(12)]
    table, best = verdict.judge(rows(lookup=values), CHOOSING_IDS)
    passed = (Offer("exit 4", None, 2, 0.61, ""),)
    text = said(table, best, passed)
    assert "Nothing pays here: the best of 1 timed draft is lookup" in text
    assert text.endswith(
        "Not timed, because too little is expected of them: exit 4 (0.61 expected)."
    )
    assert not Verdict(table, best, None, (), FACTS, None).pays


def test_texts_too_short_to_time_give_no_verdict():
    nothing = rows(lookup=[float("nan")] * 12)
    table, best = verdict.judge(nothing, CHOOSING_IDS)
    assert best is None
    found = Verdict(table, best, None, (), FACTS, None)
    assert not found.pays and "no draft could be timed" in found.paragraph()


def test_prompts_are_of_all_domains_and_the_shortest():
    prompts = verdict.short_prompts(CHOOSING + JUDGING)
    for part, each in ((prompts[:CHOOSING], 1), (prompts[CHOOSING:], 2)):
        domains = [prompt.domain for prompt in part]
        assert {domains.count(domain) for domain in domains} == {each}
        assert len(set(domains)) == 4
    first, later = prompts[0], prompts[4]
    assert first.domain == later.domain and len(first.text) <= len(later.text)


@pytest.mark.parametrize("step, tokens", [(1.0, 16), (0.01, 64), (0.025, 40)])
def test_texts_are_as_long_as_the_time_allows(step, tokens):
    profile = synthetic.profile(step_seconds=step)
    assert verdict.tokens_for(profile, 4, 12, seconds=60) == tokens


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path))
    return tmp_path


def test_a_verdict_on_a_tiny_model_and_an_interrupted_one_goes_on(
    tiny_loaded, cache, monkeypatch
):
    real = verdict.draft_bench.bench.run_block
    count = []

    def interrupted(*words):
        count.append(1)
        if len(count) == 6:
            raise KeyboardInterrupt
        return real(*words)

    monkeypatch.setattr(verdict.draft_bench.bench, "run_block", interrupted)
    monkeypatch.setattr(verdict, "machine_profile", lambda *_, **__: PROFILE)
    with pytest.raises(KeyboardInterrupt):
        verdict.reach(tiny_loaded, seconds=0.5)
    found = verdict.reach(tiny_loaded, seconds=0.5)
    assert len(count) == CHOOSING + JUDGING + 1  # no pair was timed again
    assert found.facts["finished"] and found.folder.is_relative_to(cache)
    assert found.best["prompts"] == JUDGING and found.chosen is not None
    assert found.facts["command"] == "selfspec verdict --model tiny-study"
    assert "tiny-study on" in found.paragraph()
