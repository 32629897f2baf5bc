"""A run of exits end to end on a tiny model that nobody taught anything."""

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from selfspec import models
from selfspec.study import (
    draft_bench,
    draft_summary,
    layerskip_study,
    layerskip_subject,
    layerskip_summary,
)
from selfspec.study.errors import StudyError
from selfspec.study.exit_scores import Text
from selfspec.study.layerskip_grid import SIZES
from tests.costs import synthetic
from tests.tiny import save_tiny_model

CHECKPOINT = "facebook/layerskip-llama3.2-1B"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layerskip")
    model = save_tiny_model(folder / "tiny-exits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            layerskip_study, "machine_profile", lambda *_, **__: synthetic.profile()
        )
        return layerskip_study.measure(
            str(model), size="smoke", results=folder / "results"
        )


def test_a_run_has_every_case_of_its_grid(run):
    cases = {
        (row.draft, row.num_draft_tokens, row.temperature)
        for row in run.rows.itertuples()
    }
    [knapsack] = [c for c in cases if c[0].startswith("knapsack")]
    assert cases - {knapsack} == {
        ("exit 2", 2, 0.0),
        ("exit 2, nothing kept", 2, 0.0),
        ("dynamic, exits 1 to 4, confidence 0.8", 2, 0.0),
        ("dynamic, exits 1 to 4, 2 agreeing", 2, 0.0),
        ("exit 2", "auto", 0.0),
        ("exit 2", 2, 0.6),
    }
    greedy = run.rows[run.rows["temperature"] == 0]
    assert set(greedy["lossless"]) <= {"equal", "tie"}
    sampled = run.rows[run.rows["temperature"] > 0]
    assert set(sampled["lossless"]) == {"sampled"}
    assert (run.rows["speedup"] > 0).all()


def test_what_needs_no_clock_is_in_the_runs_facts(run):
    facts = run.provenance
    counted = layerskip_summary.counted(facts)
    assert counted["draft"].tolist()[:2] == ["plain", "exit 2"]
    assert set(counted["lossless"]) == set(counted["texts"]) == {2}
    scores = layerskip_summary.scores(facts)
    assert scores["exit_layer"].tolist() == [1, 2, 3, 4, 5, 6]
    assert scores["agreement"].iloc[-1] == 1
    assert sum(facts["depths"]["counts"]) == scores["positions"].iloc[0]
    assert [line["exit_layer"] for line in facts["alone"]] == [2]
    assert 0 < facts["dispatch"]["share"] < 2
    assert set(facts["memory"]) == {"plain", "exit"} and facts["small_model"] is None
    assert 0 <= facts["knapsack"]["agreement"] <= 1
    assert (
        facts["knapsack"]["cost_ratio"] <= 1.001 * facts["knapsack"]["exit_cost_ratio"]
    )
    assert facts["subject"]["trained"] == {} and facts["subject"]["layers"] == 6


def test_the_baseline_is_the_faster_plain_loop(run):
    plain = dict(run.provenance["plain"])
    chosen = plain.pop("chosen")
    assert set(plain) == {"mlx-lm", "this engine"}
    assert plain[chosen] == min(plain.values())


def test_c_of_a_chosen_exit_is_timed_on_held_out_text(run):
    table = draft_summary.summarise(run.rows)
    dynamic = table[table["draft"].str.startswith("dynamic")]
    assert (dynamic["cost_ratio"] > 0).all()
    assert run.provenance["timed_costs"].keys() == set(dynamic["draft"])


def test_sampled_draws_are_the_same_for_whoever_runs_them(tiny_loaded):
    case = draft_bench.Case("exit 2", None, 2, 0.6)
    prompt = layerskip_subject.on_prompts(tiny_loaded, SIZES["smoke"]).prompts[0]
    one, other = (draft_bench.Group((case,), prompt, repeat) for repeat in (0, 1))
    assert one.sampling == draft_bench.Group((case,), prompt, 0).sampling
    assert one.sampling["seed"] != other.sampling["seed"]
    greedy = draft_bench.Group((draft_bench.Case("x", None, 2),), prompt, 0)
    assert greedy.sampling == {}


def test_any_model_is_scored_on_the_prompts_own_text(tiny_loaded):
    subject = layerskip_subject.on_prompts(tiny_loaded, SIZES["smoke"])
    assert len(subject.prompts) == len(subject.texts) == 2
    assert not {p.id for p in subject.prompts} & {p.id for p in subject.held_out}
    text = subject.texts[0]
    assert isinstance(text, Text) and text.start == 1
    assert len(text.ids) <= layerskip_subject.TEXT_TOKENS
    shown = tiny_loaded.tokenizer.decode(list(text.ids))
    assert subject.prompts[0].text.startswith(shown.strip()[:40])
    assert subject.answers == () and subject.small is None


def test_a_size_that_does_not_exist_is_told_before_a_model_is_loaded():
    with pytest.raises(StudyError, match="size must be one of"):
        layerskip_study.measure("no-such-model", size="huge")


def test_a_checkpoint_in_the_hubs_cache_goes_the_same_way(tmp_path, monkeypatch):
    """A tiny stand-in in the hub's layout, by the name of the real one, offline."""
    place = tmp_path / ("models--" + CHECKPOINT.replace("/", "--"))
    save_tiny_model(place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        layerskip_study, "machine_profile", lambda *_, **__: synthetic.profile()
    )
    run = layerskip_study.measure(
        CHECKPOINT, size="smoke", num_prompts=1, results=tmp_path / "results"
    )
    assert run.folder.name == "facebook-layerskip-llama3.2-1b"
    assert run.provenance["model"]["revision"] == COMMIT
    assert f"--model {CHECKPOINT}" in run.provenance["command"]
    assert "--experiment layerskip" in run.provenance["command"]
    assert (
        layerskip_summary.best(draft_summary.summarise(run.rows))["draft"] == "exit 2"
    )


def test_a_gated_checkpoint_says_in_one_line_what_to_do(monkeypatch):
    """The real ones want a licence accepted first."""

    def refuse(*_, **__):
        request = httpx2.Request("GET", "https://hub.invalid/api")
        response = httpx2.Response(403, request=request)
        raise errors.GatedRepoError("403 Client Error", response=response)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(models.ModelError) as caught:
        layerskip_study.measure(CHECKPOINT, size="smoke")
    message = str(caught.value)
    assert "\n" not in message and f"{CHECKPOINT} is gated" in message
    assert (
        f"https://huggingface.co/{CHECKPOINT}" in message and "hf auth login" in message
    )
