"""A run with a fitted exit end to end on a tiny model, and what its page says of it."""

import json
import shutil

import book_project
import pandas as pd
import pytest

from selfspec.study import (
    draft_summary,
    figures,
    fit_run,
    fitted_figures,
    fitted_fragments,
    fitted_page,
    fitted_study,
    fitted_summary,
    reference,
)
from selfspec.study.errors import StudyError
from selfspec.study.fitted_values import FITTED_FIELDS, of_fitted
from tests.costs import synthetic
from tests.tiny import save_tiny_model

ROOT = book_project.ROOT
LENGTH = fitted_study.SIZES["smoke"].lengths[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A clone's folder with a tiny model beside it."""
    root = tmp_path_factory.mktemp("fitted")
    shutil.copytree(ROOT / "results" / "reference", root / "results" / "reference")
    save_tiny_model(root / "tiny-fitted", seed=2)
    return root


@pytest.fixture(scope="module")
def run(home):
    with pytest.MonkeyPatch.context() as patch:
        for module in (fitted_study, fit_run):
            patch.setattr(
                module, "machine_profile", lambda *_, **__: synthetic.profile()
            )
        patch.setattr(fit_run, "ANSWER", 12)
        patch.setattr(fit_run, "BATCH", 4)
        patch.setattr(reference, "find_root", lambda start=None: home)
        return fitted_study.measure(
            str(home / "tiny-fitted"), size="smoke", results=home / "results"
        )


def test_a_model_without_a_bridge_gets_one_and_every_case_is_lossless(run, home):
    [bridge] = home.glob("weights/bridges/*.safetensors")
    assert run.provenance["bridge"]["bytes"] == bridge.stat().st_size
    kinds = [draft_summary.method(d) for d in dict.fromkeys(run.rows["draft"])]
    assert sorted(kinds) == [
        *("exit", "fitted", "fitted", "knapsack", "lookup", "shortlist")
    ]
    table = draft_summary.summarise(run.rows)
    assert set(table["num_draft_tokens"]) == {LENGTH, "auto"}
    assert set(run.rows["lossless"]) <= {"equal", "tie"}
    best = fitted_summary.best(table)
    assert best["draft"].startswith("fitted exit ") and best["cost_ratio"] > 0


def test_its_facts_say_what_is_needed_and_what_it_takes(run):
    facts = json.loads(json.dumps(run.provenance))  # as the file has it
    assert 0 < facts["needs"]["cost_ratio"] < 1 and facts["needs"]["goal"] > 1
    assert facts["memory"]["fitted"] > facts["memory"]["bridge"] > 0
    [fitted] = filter(fitted_summary.is_fitted, facts["weight_shares"])
    assert facts["weight_shares"][fitted]["kept"] > 0
    layer = facts["bridge"]["exit_layer"]
    exits = facts["weight_shares"][f"exit {layer}"]
    assert facts["weight_shares"][fitted]["cost_ratio"] > exits["cost_ratio"]


def test_the_page_is_made_of_the_run(run):
    facts, table = run.provenance, draft_summary.summarise(run.rows)
    curve, published = (
        fitted_summary.curve(facts),
        reference.fitted_exits(ROOT),
    )
    figures.style()
    drawn = {
        fitted_figures.describe_learning(
            curve, facts["needs"]
        ): fitted_figures.learning(curve, facts["needs"]),
        fitted_figures.describe_speeds(table, published): fitted_figures.speeds(
            table, published
        ),
        fitted_figures.describe_path(curve, table): fitted_figures.path(curve, table),
        fitted_figures.describe_domains(run.rows, table): fitted_figures.domains(
            run.rows, table
        ),
    }
    for words, figure in drawn.items():
        assert len(words) > 60 and "nan" not in words
        assert "<svg" in figures.svg(figure)
    sentences = [
        fitted_page.sentence_on_bridge(facts),
        fitted_page.sentence_on_needs(facts),
        fitted_page.sentence_on_curve(facts),
        fitted_page.sentence_on_speed(run.rows, table),
        fitted_page.sentence_on_beside(table),
    ]
    assert all(s.endswith(".") and "nan" not in s for s in sentences)
    assert len(fitted_page.curve_table(facts)) == len(curve)
    assert len(fitted_page.speed_table(table)) == len(table)
    assert fitted_page.domain_table(run.rows, table)["prompts"].sum() == 2
    curves = reference.apple_curves(ROOT)
    projected = fitted_page.projection_table(run.rows, facts, curves)
    assert len(projected) == len(curves) and (projected["projected S"] != "-").any()
    found = of_fitted(facts, run.rows, table)
    assert set(found) == set(FITTED_FIELDS)
    for name in (
        "fitted_speedup",
        "held_out_percent",
        "lookup_speedup",
        "memory_ratio",
    ):
        assert found[name] > 0
    assert found["reached"] == "not reached"  # two prompts are no interval


def test_without_a_run_nothing_is_made_up():
    assert set(of_fitted({}, None, None).values()) == {None}
    assert fitted_fragments.runs([], ()).startswith("Not yet measured")
    assert "Kangaroo" in fitted_fragments.published(ROOT)
    assert "up to 1.68" in fitted_fragments.published(ROOT)


def facts_of(agreed, needed, tokens=None):
    tokens = tokens or [1000 * 2**i for i in range(len(agreed))]
    rows = [
        {"step": i, "tokens": t, "seconds": 60.0 * i, "agreed": a}
        for i, (t, a) in enumerate(zip(tokens, agreed, strict=True))
    ]
    return {"bridge": {"curve": rows}, "needs": {"needed": needed, "goal": 1.2}}


def test_a_straight_line_asks_for_what_it_asks_for():
    """Ten points more with every doubling: three doublings to 0.9 from 0.6."""
    rising = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    asked = fitted_summary.tokens_needed(facts_of(rising, 0.9))
    assert asked.tokens == pytest.approx(1000 * 2**9, rel=1e-6)
    assert asked.low == pytest.approx(asked.tokens) == pytest.approx(asked.high)
    rough = [0.0, 0.1, 0.2, 0.3, 0.42, 0.49, 0.61, 0.68]
    asked = fitted_summary.tokens_needed(facts_of(rough, 0.9))
    low, high = sorted((asked.low, asked.high))
    assert low < asked.tokens < high
    assert "million tokens (" in fitted_summary.needed_in_words(asked)


@pytest.mark.parametrize(
    "agreed, needed, words",
    [
        ([0.3] * 8, 0.6, "has stopped rising"),
        ([0.3, 0.4], 0.6, "so short a curve"),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], None, "no acceptance is enough"),
    ],
)
def test_a_line_that_leads_nowhere_says_so(agreed, needed, words):
    asked = fitted_summary.tokens_needed(facts_of(agreed, needed))
    assert words in fitted_summary.needed_in_words(asked)


def test_a_wrong_bridge_and_a_wrong_size_are_one_line(home, tmp_path):
    model = str(home / "tiny-fitted")
    with pytest.raises(StudyError, match="there is no no-such.safetensors in"):
        fitted_study.measure(
            model, size="smoke", bridge="no-such.safetensors", results=tmp_path
        )
    with pytest.raises(StudyError, match="size must be one of smoke, default, paper"):
        fitted_study.resolve_size("huge")


def test_texts_that_loop_are_left_out_by_name():
    rows = pd.DataFrame(
        {
            "draft": "fitted exit 2",
            "num_draft_tokens": 2,
            "prompt_id": [f"p{i}" for i in range(8)],
            "speedup": [1.3] * 7 + [3.0],
            "repeated_ngram_share": [0.1] * 7 + [0.9],
            "domain": ["chat", "code"] * 4,
            "drafted": 10,
            "accepted": 5,
        }
    )
    line = {"draft": "fitted exit 2", "num_draft_tokens": 2}
    calm = fitted_summary.without_loops(rows, line)
    assert (calm.value, calm.count) == (1.3, 7)
    domains = fitted_summary.by_domain(rows, line).set_index("domain")
    assert domains["looping"].to_dict() == {"chat": 0, "code": 1}
    assert domains["acceptance_rate"].to_dict() == {"chat": 0.5, "code": 0.5}
