"""The experiment of the rule that declines: its sizes, its drafts, a whole run."""

from types import SimpleNamespace

import pytest

from selfspec.costs import DeclinePolicy
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.study import auto_study, shortlist_tokens
from selfspec.study.errors import StudyError
from tests.costs import synthetic
from tests.tiny import save_tiny_model


def shape(size):
    grid = auto_study.SIZES[size]
    return len(grid.drafts), grid.num_prompts, grid.num_tokens


def test_sizes_are_those_of_the_plan():
    assert shape("default") == (3, 6, 48)
    drafts, prompts, tokens = shape("paper")
    assert drafts == 6 and prompts >= 8 and tokens >= 256
    smoke = shape("smoke")
    assert smoke[0] <= 2 and smoke[1] <= 2 and smoke[2] < 48


def test_paper_runs_good_drafts_and_bad_ones_two_to_a_baseline(tiny_loaded):
    grid = auto_study.make_grid(tiny_loaded, auto_study.SIZES["paper"])
    assert [[case.label for case in group] for group in grid.groups] == [
        ["skip 10 %", "skip 30 %"],
        ["skip 50 %", "exit 3"],
        ["shortlist 129", "lookup"],  # half of the tiny vocabulary
    ]
    drafts = [case.draft for case in grid.cases]
    assert drafts[0] == SkipDraft.middle(6, 0.1) and drafts[3] == ExitDraft(3)
    assert isinstance(drafts[4], ShortlistDraft) and len(drafts[4].tokens) == 129
    assert drafts[5] == LookupDraft()
    assert all(case.is_auto for case in grid.cases)
    assert not grid.stop_at_eos  # every text as long as the promise needs it


def test_the_shortlist_has_the_tokens_of_the_calibration_prompts_first(tiny_loaded):
    tokens = shortlist_tokens.shortlist_tokens(tiny_loaded)
    ids = tiny_loaded.tokenizer.encode("e a")  # letters of any English text
    assert set(ids) - {256, 257} <= set(tokens)
    assert len(set(tokens)) == len(tokens)


def test_a_large_vocabulary_is_cut_to_the_shortlist(tiny_loaded):
    wide = SimpleNamespace(
        model=lambda ids: SimpleNamespace(shape=(1, 1, 49152)),
        tokenizer=tiny_loaded.tokenizer,
    )
    assert len(shortlist_tokens.shortlist_tokens(wide)) == shortlist_tokens.SHORTLIST


def test_overrides_replace_only_what_they_name():
    smoke = auto_study.SIZES["smoke"]
    size = auto_study.resolve_size("smoke", num_tokens=40, repeats=None)
    assert size.num_tokens == 40 and size.drafts == smoke.drafts
    with pytest.raises(StudyError, match="size must be one of smoke, default, paper"):
        auto_study.resolve_size("huge")


def test_what_the_rule_may_lose_is_told_from_its_own_defaults():
    policy = DeclinePolicy(None, cost_ratio=0.5, verify_ratio=1.0)
    assert auto_study.policy_facts() == {
        "budget": policy.budget,
        "allowance": policy.account,
    }


def test_a_model_of_one_layer_has_nothing_to_leave_out(tmp_path):
    import selfspec

    folder = save_tiny_model(tmp_path / "one", num_hidden_layers=1)
    loaded = selfspec.load(folder)
    with pytest.raises(StudyError, match="one: .*leaves none of 1 layers.*Way out"):
        auto_study.make_grid(loaded, auto_study.SIZES["paper"])


def test_a_run_has_a_row_a_draft_and_prompt(tmp_path, monkeypatch):
    budgets = []

    def given(loaded, *, budget):
        budgets.append(budget)
        return synthetic.profile()

    monkeypatch.setattr(auto_study, "machine_profile", given)
    folder = save_tiny_model(tmp_path / "tiny-auto")
    run = auto_study.measure(str(folder), size="smoke", results=tmp_path / "results")
    assert budgets == [auto_study.SMOKE_BUDGET]
    assert len(run.rows) == 2 * 2 and set(run.rows["num_draft_tokens"]) == {"auto"}
    assert set(run.rows["tokens"]) == {24}
    assert run.provenance["policy"] == auto_study.policy_facts()
    assert run.folder.name.startswith("tiny-auto")
    assert "--experiment auto" in run.provenance["command"]


def test_a_bad_prompt_file_is_told_before_the_model_is_loaded(tmp_path):
    prompts = tmp_path / "mine.txt"
    prompts.write_text("one prompt only\n")
    with pytest.raises(StudyError, match="has 1 prompts.*Way out"):
        auto_study.measure("no-such-model", prompts_file=str(prompts), size="smoke")
