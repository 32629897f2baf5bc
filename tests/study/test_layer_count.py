"""Layers counted while decoding, against the arithmetic of what a draft runs."""

import pytest

from selfspec.decoding import DynamicExitDraft, ExitDraft, SkipDraft
from selfspec.study import layerskip_counts
from selfspec.study.draft_grid import Case
from selfspec.study.errors import StudyError
from selfspec.study.layer_count import counting

PROMPTS = [list(range(40, 52)), [7], [60, 61, 62]]
LAYERS, LENGTH = 6, 24


def counted(model, *cases, **options):
    given = {"num_tokens": LENGTH, **options}
    return layerskip_counts.count_cases(model, cases, PROMPTS, **given)


@pytest.fixture(scope="module")
def model(tiny_loaded):
    return tiny_loaded.model


def test_a_pass_counts_a_layer_once_and_its_rows_each(model):
    import mlx.core as mx

    copy, count = counting(model)
    logits = copy(mx.array([[1, 2, 3]]))
    assert (count.evaluations, count.rows) == (LAYERS, 3 * LAYERS)
    assert mx.array_equal(logits, model(mx.array([[1, 2, 3]])))
    count.reset()
    assert (count.evaluations, count.rows) == (0, 0)


def test_plain_decoding_runs_every_layer_for_every_token(model):
    [plain] = counted(model)
    assert plain["evaluations"] == plain["rows"] == LAYERS * plain["tokens"]
    assert plain["tokens"] == LENGTH * len(PROMPTS)


@pytest.mark.parametrize("exit_layer", [1, 4])
@pytest.mark.parametrize("reuse", [True, False])
def test_an_exit_runs_its_layers_a_drafted_token_and_all_of_them_a_round(
    model, exit_layer, reuse
):
    """k E + L a round; with rows kept no row runs a layer twice."""
    case = Case("exit", ExitDraft(exit_layer, reuse=reuse), 3)
    _, line = counted(model, case)
    drafted, rounds = line["drafted"], line["rounds"]
    assert line["evaluations"] == drafted * exit_layer + rounds * LAYERS
    rows = (drafted + rounds) * LAYERS
    assert line["rows"] == rows + (0 if reuse else drafted * exit_layer)
    assert line["equal"] == line["texts"] == len(PROMPTS)
    assert 0 < line["accepted"] < drafted


def test_half_a_layer_left_out_is_half_a_layer(model):
    _, line = counted(model, Case("skip", SkipDraft(attention={2, 3}, mlp={3}), 2))
    whole = line["rounds"] * LAYERS
    assert line["evaluations"] == line["drafted"] * (LAYERS - 1.5) + whole


def test_an_exit_chosen_for_each_token_runs_between_the_two_ends(model):
    draft = DynamicExitDraft((1, 2, 4), confidence=0.5)
    _, line = counted(model, Case("dynamic", draft, 3))
    whole = line["rounds"] * LAYERS
    drafting = (line["evaluations"] - whole) / line["drafted"]
    assert 1 <= drafting <= 4
    assert line["rows"] == (line["drafted"] + line["rounds"]) * LAYERS


def test_only_greedy_cases_of_a_fixed_length_are_counted_and_each_once(model):
    one = Case("exit 2", ExitDraft(2), 2)
    others = Case("exit 2", ExitDraft(2), "auto"), Case("exit 2", ExitDraft(2), 2, 0.6)
    assert len(counted(model, one, *others, one)) == 2


def test_texts_are_compared_with_their_answers(model):
    plain = [layerskip_counts.arms.plain(model, p, num_tokens=8) for p in PROMPTS]
    answers = [list(p.tokens) for p in plain]
    answers[1][-1] += 1
    lines = counted(
        model, Case("exit 2", ExitDraft(2), 2), num_tokens=8, answers=answers
    )
    assert [line["exact"] for line in lines] == [2, 2]
    assert counted(model)[0]["exact"] is None


def test_a_text_that_is_not_the_targets_ends_the_run(model, monkeypatch):
    own = layerskip_counts._write

    def lying(*args, **options):
        return [token ^ 1 for token in own(*args, **options)]

    monkeypatch.setattr(layerskip_counts, "_write", lying)
    with pytest.raises(StudyError, match="exit 2, 2 draft tokens: token 0.*Way out"):
        counted(model, Case("exit 2", ExitDraft(2), 2))


def test_a_draft_step_on_held_out_text_takes_time(model):
    case = Case("exit 2", ExitDraft(2), 2)
    assert 0 < layerskip_counts.draft_seconds(model, case, PROMPTS, 8) < 1
