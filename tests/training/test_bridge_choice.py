"""Which exit: from costs alone, the latest whose need is within reach."""

import pytest

import selfspec
from selfspec.costs import best_draft_length
from selfspec.decoding import AdapterDraft, Bridge
from selfspec.models.blocks import find_stack
from selfspec.training.bridge_choice import GOAL, Option, choices, choose, in_words
from tests.costs.synthetic import profile
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-choice")
    return find_stack(selfspec.load(folder).model)


def test_what_is_needed_reaches_the_goal_and_no_less_does(stack):
    for option in choices(stack, profile()):
        draft = AdapterDraft(option.exit_layer, Bridge.like(stack, option.kind))
        costs = profile().costs_of(draft)
        for needed, goal in ((option.break_even, 1.0), (option.needed, GOAL)):
            if needed > 1:  # nothing reaches it
                assert best_draft_length(1.0, limit=15, **costs).speedup < goal
                continue
            reached = best_draft_length(needed, limit=15, **costs).speedup
            assert reached == pytest.approx(goal, rel=1e-6)
            less = best_draft_length(0.98 * needed, limit=15, **costs).speedup
            assert less < goal or goal == 1.0


def test_a_shortlist_makes_every_choice_cheaper(stack):
    whole = choices(stack, profile(), exits=[2])
    few = choices(stack, profile(), exits=[2], shortlist=32)
    for one, other in zip(whole, few, strict=True):
        assert other.cost_ratio < one.cost_ratio and other.needed < one.needed
    assert {o.kind for o in few} == {"layer", "mlp"}
    assert few[0].num_parameters > few[1].num_parameters


def option(exit_layer, needed, parameters=10):
    return Option(exit_layer, "layer", parameters, 0.3, needed - 0.1, needed)


def test_the_latest_exit_within_reach_is_chosen():
    options = [option(2, 0.4), option(4, 0.55), option(6, 0.8)]
    assert choose(options, reachable=0.6) is options[1]
    larger = option(4, 0.59, parameters=30)
    assert choose([*options, larger], reachable=0.6) is larger
    assert choose(options, reachable=0.3) is options[0]  # none is: the least


def test_a_line_says_cost_and_needs():
    line = in_words(option(4, 0.55))
    assert "exit  4" in line and "45%" in line and "55%" in line
    assert "more than all" in in_words(option(4, float("inf")))
