"""The experiment "machine": its drafts for any model, its sizes, a whole small run."""

import math

import pytest

from selfspec import blas, costs
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.study import machine_facts, machine_grid, machine_study, shortlist_tokens
from selfspec.study.errors import StudyError
from selfspec.study.known_costs import DraftCosts
from selfspec.study.machine_grid import SIZES, make_drafts, make_grid
from tests.costs import synthetic
from tests.tiny import save_tiny_model


class Source:
    name = "thirty"
    num_layers = 30


class Thirty:
    source = Source()


@pytest.fixture
def thirty(monkeypatch):
    """Thirty layers and a shortlist, without a model."""
    monkeypatch.setattr(machine_grid, "shortlist_tokens", lambda _: tuple(range(99)))
    return Thirty()


def test_paper_has_thirty_configurations_of_twelve_drafts_and_a_lookup(thirty):
    grid = make_grid(make_drafts(thirty), SIZES["paper"])
    assert len(grid.cases) >= 30 and grid.num_prompts == 8 and grid.num_tokens == 24
    assert (grid.calibration_prompts, grid.calibration_tokens) == (4, 24)
    drafts = {case.draft for case in grid.cases}
    assert sum(not isinstance(draft, LookupDraft) for draft in drafts) >= 12
    for group in grid.groups:  # each draft alone with its lengths
        assert len({case.draft for case in group}) == 1


def test_drafts_of_thirty_layers_are_those_of_the_plan(thirty):
    found = {label: draft for label, draft in make_drafts(thirty).values()}
    assert found["skip 30 %"] == SkipDraft.middle(30, 0.3)
    assert found["skip layer 14"] == SkipDraft({14}, {14})
    assert found["skip MLP of 13 to 15"] == SkipDraft(mlp={13, 14, 15})
    assert found["skip attention of 12 to 17"] == SkipDraft(attention=range(12, 18))
    exits = [label for label, d in found.items() if isinstance(d, ExitDraft)]
    assert exits == ["exit 15", "exit 24", "exit 28"]
    short = found["shortlist 99 on skip 10 %"]
    assert isinstance(short, ShortlistDraft) and short.draft == found["skip 10 %"]
    assert found["shortlist 99"].draft == SkipDraft()


@pytest.mark.parametrize("num_layers", [2, 3, 6, 80])
def test_any_model_gets_different_drafts_that_fit_it(thirty, monkeypatch, num_layers):
    monkeypatch.setattr(Source, "num_layers", num_layers)
    drafts = make_drafts(thirty)
    assert len(set(d for _, d in drafts.values())) == len(drafts)
    assert len({label for label, _ in drafts.values()}) == len(drafts)
    kinds = ("attention",) * num_layers
    machine = synthetic.profile(
        attention=kinds, mlp=("mlp",) * num_layers, vocab_size=258
    )
    for _, draft in drafts.values():
        cost = DraftCosts(machine, draft).cost_ratio(100)
        assert math.isfinite(cost) and cost >= 0
    make_grid(drafts, SIZES["paper"])


def test_one_layer_leaves_nothing_to_leave_out(thirty, monkeypatch):
    monkeypatch.setattr(Source, "num_layers", 1)
    with pytest.raises(StudyError, match="thirty has 1 layer.*Way out"):
        make_drafts(thirty)


def test_smaller_sizes_are_in_proportion(thirty):
    drafts = make_drafts(thirty)
    default = make_grid(drafts, SIZES["default"])
    assert (len(default.cases), default.num_prompts, default.num_tokens) == (8, 6, 24)
    smoke = make_grid(drafts, SIZES["smoke"])
    assert (len(smoke.cases), smoke.num_prompts, smoke.num_tokens) == (2, 2, 16)
    size = machine_grid.resolve_size("smoke", num_tokens=20, repeats=None)
    assert size.num_tokens == 20 and size.drafts == SIZES["smoke"].drafts
    with pytest.raises(StudyError, match="size must be one of smoke, default, paper"):
        machine_grid.resolve_size("huge")


def test_a_shortlist_is_at_most_half_of_the_vocabulary(tiny_loaded):
    assert len(shortlist_tokens.shortlist_tokens(tiny_loaded)) == synthetic.VOCAB // 2


def test_curves_are_of_every_thread_count_and_leave_the_threads_alone(
    tiny_loaded, monkeypatch
):
    asked = []
    real = blas.set_threads
    monkeypatch.setattr(
        blas, "set_threads", lambda count: (asked.append(count), real(count))
    )
    monkeypatch.setattr(costs, "thread_counts", lambda: [1, 2], raising=False)
    before = blas.threads()
    found = machine_facts.verify_curves(tiny_loaded.model, list(range(1, 30)), 1)
    assert asked == [1, 2, max(1, before)]
    assert list(found) == ["1", "2"] and blas.threads() == before
    for curve in found.values():
        assert set(curve["verify_ratio"]) == {str(m) for m in range(1, 17)}
        assert all(math.isfinite(v) and v > 0 for v in curve["verify_ratio"].values())


def test_thread_counts_run_from_one_where_they_can_be_set(monkeypatch):
    from selfspec.costs import timing

    monkeypatch.setattr(timing, "_physical_cores", lambda: 3)
    monkeypatch.setattr(blas, "info", lambda: {"name": "OpenBLAS 0.3"})
    assert timing.thread_counts() == [1, 2, 3]
    monkeypatch.setattr(timing.device, "kind", lambda: "metal")
    assert timing.thread_counts() == [blas.threads()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole smoke run with a lookup, its profile given."""
    given = []

    def known(loaded, *, budget, told):
        given.append(budget)
        told("nothing was measured yet")
        return synthetic.profile()

    patch = pytest.MonkeyPatch()
    patch.setattr(machine_facts, "machine_profile", known)
    patch.setitem(SIZES["smoke"].drafts, "lookup", (2,))
    folder = save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-machine")
    try:
        yield machine_study.measure(
            str(folder), size="smoke", results=tmp_path_factory.mktemp("results")
        )
    finally:
        patch.undo()
    assert given == [SIZES["smoke"].budget]


def test_a_run_has_a_row_a_configuration_and_prompt(run):
    assert len(run.rows) == 3 * 2
    assert set(run.rows["draft"]) == {"skip 10 %", "exit 5", "lookup"}
    assert set(run.rows["lossless"]) <= {"equal", "tie"}
    assert "--experiment machine" in run.provenance["command"]


def test_its_facts_say_what_was_measured_beforehand(run):
    facts = run.provenance
    assert facts["finished"] and facts["profile_origin"]["measured_now"]
    assert facts["profile_origin"]["why"] == "nothing was measured yet"
    assert [c["label"] for c in facts["checks"]] == ["skip 10 %", "exit 5"]
    machine = synthetic.profile()
    skip = SkipDraft.middle(6, 0.1)
    expected = machine.cost_ratio(skip, facts["check_context"], num_draft_tokens=4)
    assert facts["checks"][0]["predicted"] == expected
    assert facts["copy_bytes_per_second"] > 0
    assert str(facts["chosen_threads"]) in facts["verify_curves"]


def test_weights_are_told_of_every_draft_also_of_those_not_timed(run):
    shares = run.provenance["weight_shares"]
    assert {"skip 10 %", "skip 30 %", "skip 50 %", "exit 5", "lookup"} <= set(shares)
    assert shares["lookup"] == {"cost_ratio": 0.0, "kept": 0.0}
    assert 0 < shares["exit 5"]["kept"] < shares["exit 5"]["cost_ratio"] < 1
    assert run.provenance["step_bytes"] > 0


def test_a_bad_prompt_file_is_told_before_the_model_is_loaded(tmp_path):
    prompts = tmp_path / "mine.txt"
    prompts.write_text("one prompt only\n")
    with pytest.raises(StudyError, match="has 1 prompts.*Way out"):
        machine_study.measure("no-such-model", prompts_file=str(prompts), size="smoke")
