"""What holds for every selector: middle is never better, protection, seeds, refusals."""

import math

import made
import pytest

from selfspec.decoding.drafts import ShortlistDraft, SkipDraft
from selfspec.selection import (
    greedy,
    knapsack,
    middle,
    oracle,
    random_sets,
    search,
    suffix,
)

MODEL_FREE = {
    "middle": middle.select,
    "suffix": suffix.select,
    "random": random_sets.select,
    "greedy": greedy.select,
    "knapsack": knapsack.select,
    "search": lambda problem: search.select(problem, trials=30),
    "oracle": oracle.select,
}
each = pytest.mark.parametrize("name", MODEL_FREE)


def left_out(draft):
    inner = draft.draft if isinstance(draft, ShortlistDraft) else draft
    return inner.attention | inner.mlp


@each
@pytest.mark.parametrize("seed", range(5))
def test_no_selector_is_below_middle_at_equal_cost(name, seed):
    frontier = MODEL_FREE[name](made.problem(4, seed))
    for candidate in middle.select(made.problem(4, seed)).candidates:
        best = frontier.best_under(candidate.cost_ratio)
        assert best.agreement >= candidate.agreement


@each
def test_a_frontier_tells_who_made_it_what_it_took_and_dearest_first(name):
    problem = made.problem(3)
    frontier = MODEL_FREE[name](problem)
    assert frontier.selector == name
    assert frontier.seconds > 0
    assert frontier.evaluations == problem.evaluations > 0
    costs = [c.cost_ratio for c in frontier.candidates]
    assert costs == sorted(costs, reverse=True)
    assert len({c.draft for c in frontier.candidates}) == len(costs)


@each
def test_protected_layers_stay(name):
    frontier = MODEL_FREE[name](made.problem(4, protected={0, 3}))
    assert frontier.candidates
    for candidate in frontier.candidates:
        assert not left_out(candidate.draft) & {0, 3}


@each
def test_every_selector_but_the_middle_offers_its_sets_with_a_shortlist(name):
    lists = {64: tuple(range(64)), 128: tuple(range(128))}
    frontier = MODEL_FREE[name](made.problem(3, shortlists=lists))
    drafts = [c.draft for c in frontier.candidates]
    skips = [d for d in drafts if isinstance(d, ShortlistDraft) and left_out(d)]
    assert bool(skips) == (name != "middle")


@each
def test_everything_protected_leaves_the_whole_model(name):
    frontier = MODEL_FREE[name](made.problem(2, protected={0, 1}))
    assert [c.draft for c in frontier.candidates] == [SkipDraft()]
    assert frontier.candidates[0].agreement == 1


@each
def test_a_model_of_one_layer(name):
    frontier = MODEL_FREE[name](made.problem(1))
    assert frontier.best_under(math.inf).agreement == 1


@each
def test_budget_0_asks_for_nothing(name):
    frontier = MODEL_FREE[name](made.problem(3, budgets=[0.0]))
    assert SkipDraft() in [c.draft for c in frontier.candidates]


@each
def test_the_same_seed_gives_the_same_frontier(name):
    one, two = (MODEL_FREE[name](made.problem(4, 3, seed=7)) for _ in range(2))
    assert one.candidates == two.candidates


@each
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.1, 1.1])
def test_a_score_that_is_no_share_is_refused(name, wrong):
    problem = made.problem(3, score=lambda draft: wrong)
    with pytest.raises(ValueError, match="no share of tokens"):
        MODEL_FREE[name](problem)


@each
def test_ctrl_c_comes_through(name):
    def stop(draft):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MODEL_FREE[name](made.problem(3, score=stop))


@pytest.mark.parametrize("name", ["knapsack", "greedy", "search", "random"])
def test_a_selector_beats_middle_where_the_middle_matters_most(name):
    def score(draft):  # the outer layers do nothing
        return 1 - 0.3 * len(left_out(draft) & {2, 3})

    problem = made.problem(6, score=score)
    ours, post = MODEL_FREE[name](problem), middle.select(problem)
    assert ours.best_under(0.75).agreement > post.best_under(0.75).agreement


def test_greedy_that_scores_everything_does_not_miss_what_became_harmless():
    def score(draft):  # layer 2's MLP is harmful alone and harmless without layer 1's
        out = draft.mlp
        lost = 0.5 * (2 in out and 1 not in out) + 0.01 * len(draft.attention)
        return 1 - lost - 0.02 * len(out - {1, 2})

    narrow = greedy.select(made.problem(4, score=score), width=1)
    wide = greedy.select(made.problem(4, score=score), width=None)
    assert wide.evaluations > narrow.evaluations
    assert any({1, 2} <= c.draft.mlp and c.agreement > 0.9 for c in wide.candidates)


def test_an_oracle_of_too_many_sets_is_refused():
    with pytest.raises(ValueError, match="more than the 4096.*Way out"):
        oracle.select(made.problem(7))


def test_an_oracle_scores_every_set():
    assert oracle.select(made.problem(3)).evaluations == 2**6


def test_search_of_a_few_seconds_ends_by_itself():
    frontier = search.select(made.problem(3, seconds=0.5))
    assert frontier.evaluations > 3
