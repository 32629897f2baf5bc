"""Claims are judged by their rule, from results alone."""

import math

import book_project
import pytest

from selfspec.study import claims, claims_exits, claims_page, claims_post, reference
from selfspec.study.claims import AGREES, DISAGREES, NOT_MEASURED, UNDECIDED, Finding
from selfspec.study.draft_summary import summarise
from selfspec.study.run_records import Record, collect, latest
from tests.study import exits

ROOT = reference.find_root()
HERE = dict(machine="apple-m3-16gb-metal", model="x")
CPU = dict(machine="testron-9000-8-cores-16gb-cpu", model="x")


def claim(rule, figure=math.nan, figure_to=math.nan):
    return claims.Claim("key", "source", "here", "It does", rule, figure, figure_to)


def found(**changes):
    return Finding("words", "data.csv", **changes)


def verdict(key, judged):
    [one] = [one for one in judged if one.claim.key == key]
    return one.verdict


@pytest.mark.parametrize(
    ("rule", "figures", "finding", "expected"),
    [
        ("every", (), dict(holds=3, cases=3), AGREES),
        ("every", (), dict(holds=2, cases=3), UNDECIDED),
        ("every", (), dict(holds=2, contradicted=1, cases=3), DISAGREES),
        ("direction", (1,), dict(value=1.2, low=1.1, high=1.3), AGREES),
        ("direction", (1,), dict(value=0.8, low=0.7, high=0.9), DISAGREES),
        ("direction", (1,), dict(value=1.0, low=0.9, high=1.1), UNDECIDED),
        ("direction", (1,), dict(value=1.2), UNDECIDED),  # no interval, no verdict
        ("direction", (1,), dict(value=0.8, low=0.7, high=0.9, below=True), AGREES),
        ("figure", (0.8,), dict(value=0.6, low=0.5, high=0.81), AGREES),
        ("figure", (0.8,), dict(value=0.73, low=0.7, high=0.75), AGREES),
        ("figure", (0.8,), dict(value=0.66, low=0.61, high=0.75), DISAGREES),
        ("figure", (0.8,), dict(value=0.81), AGREES),
        ("share", (0.06,), dict(value=0.015), AGREES),
        ("share", (0.68,), dict(value=0.575), DISAGREES),
        ("range", (0.25, 0.5), dict(value=0.45), AGREES),
        ("range", (0.25, 0.5), dict(value=0.55), DISAGREES),
    ],
)
def test_rules(rule, figures, finding, expected):
    assert claims.verdict(claim(rule, *figures), found(**finding)) == expected


def test_what_nobody_measured_is_said_so():
    assert claims.verdict(claim("every"), None) == NOT_MEASURED
    judged = claims.judge(ROOT, [])
    own = [one for one in judged if one.claim.key.startswith("post-")]
    assert {one.verdict for one in own} == {NOT_MEASURED}


def test_every_claim_has_its_function_and_every_function_its_claim():
    known = claims.load(ROOT)
    assert len(known) >= 30
    finders = {**claims_post.FINDERS, **claims_exits.FINDERS}
    assert {one.key for one in known} == set(finders)
    bibliography = (ROOT / "book" / "references.bib").read_text()
    for one in known:
        assert f"{{{one.source}," in bibliography
        assert math.isnan(one.figure) == (one.rule == "every"), one.key


def test_headline_figures_of_both_texts_are_among_them():
    figures = {(one.source, one.figure) for one in claims.load(ROOT)}
    for figure in (0.8, 0.22, 0.68, 0.06):
        assert ("post-2026-06-18", figure) in figures
    for figure in (2.16, 1.82, 2.0):
        assert ("layerskip", figure) in figures


def test_a_claim_turns_when_the_results_do(tmp_path):
    """Nothing is written by hand: other rows, other verdicts."""
    expected = {0.75: AGREES, 1.4: DISAGREES}
    for speedup, answer in expected.items():
        root = tmp_path / str(speedup)
        book_project.add_results(root, **HERE, speedup=speedup)
        judged = claims.judge(ROOT, latest(collect(root)))
        assert verdict("post-all-lose", judged) == answer
        assert verdict("post-lossless", judged) == AGREES
        assert verdict("ls-reuse", judged) == NOT_MEASURED


def test_a_mac_speaks_before_a_larger_run_elsewhere(tmp_path):
    book_project.add_results(tmp_path, **CPU, size="paper")
    book_project.add_results(tmp_path, **HERE, size="default")
    evidence = claims.Evidence(latest(collect(tmp_path)), None)
    assert evidence.run("naive-sweep").device == "metal"


def record(**changes):
    rows = exits.rows()
    facts = {
        **book_project.facts("cpu"),
        **exits.facts(),
        **changes,
    }
    return Record(
        machine="testron-cpu",
        model="layerskip-small",
        experiment="layerskip",
        run_id="1",
        facts=facts,
        rows=rows,
        table=summarise(rows),
    )


def test_claims_of_exits_come_from_a_run_of_a_taught_model():
    evidence = claims.Evidence([record()], exits.arms())
    known = {one.key: one for one in claims.load(ROOT)}

    def judged(key):
        finding = claims_exits.FINDERS[key](evidence)
        return claims.verdict(known[key], finding), finding

    best, finding = judged("ls-best-speedup")
    assert (
        best == AGREES and "exit 2 of 8 layers and 4 draft tokens" in finding.measured
    )
    assert judged("ls-lossless")[0] == AGREES
    assert judged("ls-quarter-speedup")[0] == AGREES
    assert judged("ls-half-speedup")[0] == DISAGREES
    assert judged("ls-late-speedup")[0] == NOT_MEASURED  # no such exit was timed
    assert judged("ls-code-speedup")[0] == NOT_MEASURED  # it was asked no code
    assert judged("ls-memory")[0] == AGREES
    assert judged("ls-training-helps")[0] == AGREES
    assert judged("ls-overhead")[0] == AGREES
    assert judged("ls-middle-worsens")[0] == AGREES
    assert judged("ls-both-parts")[0] == NOT_MEASURED  # that arm was not trained
    assert judged("ls-reuse")[1].cases == 2
    assert judged("ls-two-models")[0] == AGREES


def test_a_checkpoint_from_elsewhere_says_nothing_about_this_projects_training():
    other = record(subject={"task": "prompts", "layers": 8, "trained": {}})
    evidence = claims.Evidence([other], None)
    assert claims_exits.FINDERS["ls-best-speedup"](evidence) is None
    assert claims_exits.FINDERS["ls-layers-needed"](evidence) is not None


def test_the_page_has_a_row_a_claim_with_the_data_behind_it(tmp_path):
    book_project.add_results(tmp_path, **HERE)
    judged = claims.judge(ROOT, latest(collect(tmp_path)))
    lines = claims_page.table(judged).splitlines()[2:]
    assert len(lines) == len(judged)
    for one, line in zip(judged, lines, strict=True):
        assert one.verdict in line and f"{{cite:t}}`{one.claim.source}`" in line
        assert ("<../results/" in line) == (one.finding is not None)
    counted = claims_page.summary(judged)
    assert counted.startswith(f"Of {len(judged)} claims ")
    assert "not yet measured" in counted
