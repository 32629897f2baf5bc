"""The dynamic program is exact, whatever the numbers; `milp` is the other opinion."""

import math
from types import SimpleNamespace

import made
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from selfspec.decoding.drafts import ShortlistDraft, SkipDraft
from selfspec.selection import knapsack
from selfspec.selection.knapsack import solve


def by_milp(losses, saved, budget, alternatives=()) -> float:
    """The least loss, by an integer program; infinite if the budget is out of reach."""
    count = len(losses)
    rules = [LinearConstraint(np.array([saved]), lb=budget)]
    if alternatives:
        row = np.isin(np.arange(count), alternatives).astype(float)
        rules.append(LinearConstraint(row[None], ub=1))
    found = milp(
        np.asarray(losses, float),
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=rules,
    )
    return float(found.fun) if found.success else math.inf


@pytest.mark.parametrize("seed", range(200))
def test_the_dynamic_program_is_as_good_as_an_integer_program(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 16))
    losses = rng.exponential(0.1, count)
    saved = rng.integers(0, 60, count)
    alternatives = list(range(max(0, count - int(rng.integers(0, 4))), count))
    budget = int(rng.integers(0, 1 + int(saved.sum())))
    [taken] = solve(losses, saved, [budget], alternatives=alternatives)
    best = by_milp(losses, saved, budget, alternatives)
    if taken is None:
        assert best == math.inf
        return
    assert sum(saved[i] for i in taken) >= budget
    assert len(set(taken) & set(alternatives)) <= 1
    assert sum(losses[i] for i in taken) == pytest.approx(best, abs=1e-6)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12)), min_size=1, max_size=8),
    st.integers(0, 100),
)
def test_no_subset_beats_it(items, budget):
    losses, saved = zip(*items, strict=True)
    [taken] = solve(losses, saved, [budget])
    every = [
        [i for i in range(len(items)) if bits >> i & 1]
        for bits in range(2 ** len(items))
    ]
    fitting = [s for s in every if sum(saved[i] for i in s) >= budget]
    if not fitting:
        assert taken is None
    else:
        best = min(sum(losses[i] for i in s) for s in fitting)
        assert sum(losses[i] for i in taken) == pytest.approx(best, abs=1e-12)


def test_every_budget_is_answered_in_one_go():
    losses, saved = [0.3, 0.1, 0.2], [4, 3, 2]
    found = solve(losses, saved, [0, 1, 3, 4, 6, 9, 10])
    assert found == [(), (1,), (1,), (0,), (0, 1), (0, 1, 2), None]


def test_items_of_no_cost_are_left_alone_unless_nothing_is_lost_by_either():
    assert solve([0.5, 0.1], [0, 5], [5]) == [(1,)]
    assert solve([0.5], [0], [0]) == [()]


def test_equal_costs_take_the_least_losses():
    assert solve([0.4, 0.1, 0.3, 0.2], [7, 7, 7, 7], [14]) == [(1, 3)]


def test_of_equal_losses_the_one_that_saves_least_beyond_the_budget():
    assert solve([0.2, 0.2], [9, 6], [5]) == [(1,)]


def test_no_items_at_all():
    assert solve([], [], [0, 1]) == [(), None]


@pytest.mark.parametrize(
    ("losses", "saved", "complaint"),
    [
        ([math.nan], [1], "losses must be numbers from 0"),
        ([-0.1], [1], "losses must be numbers from 0"),
        ([0.1], [-1], "savings must be whole numbers"),
        ([0.1], [1.5], "savings must be whole numbers"),
        ([0.1, 0.2], [1], "one loss and one saving"),
        ([0.1], [10**10], "coarser unit"),
    ],
)
def test_nonsense_is_refused(losses, saved, complaint):
    with pytest.raises(ValueError, match=complaint):
        solve(losses, saved, [1])


@pytest.mark.parametrize("seed", range(10))
def test_where_losses_add_up_the_selector_finds_the_optimum(seed):
    problem = made.problem(4, score=made.additive(4, seed))
    frontier = knapsack.select(problem)
    every = made.problem(4, score=made.additive(4, seed))
    best = knapsack_oracle(every)
    for budget in problem.budgets:
        wanted = round(budget * problem.total)
        ours = max(c.agreement for c in frontier.candidates if c.saved >= wanted)
        assert ours == pytest.approx(best(wanted), abs=1e-9)


def knapsack_oracle(problem):
    from selfspec.selection import oracle

    candidates = oracle.select(problem).candidates
    return lambda saved: max(c.agreement for c in candidates if c.saved >= saved)


def test_a_shortlist_is_an_item_like_any_other():
    lists = {64: tuple(range(64)), 128: tuple(range(128))}
    problem = made.problem(2, score=made.additive(2, 1), shortlists=lists)
    frontier = knapsack.select(problem)
    drafts = [c.draft for c in frontier.candidates]
    assert any(isinstance(draft, ShortlistDraft) for draft in drafts)
    assert any(isinstance(draft, SkipDraft) and draft.mlp for draft in drafts)


def test_of_equal_losses_the_block_that_changes_less_goes():
    class Scorer:
        def score(self, draft):
            changes = 9.0 if 1 not in draft.mlp and draft.mlp else 1.0
            return SimpleNamespace(agreement=0.5 if draft.mlp else 0.1, kl=changes)

    problem = made.problem(3, score=Scorer(), budgets=[0.05])
    drafts = [c.draft for c in knapsack.select(problem).candidates]
    assert SkipDraft(mlp={1}) in drafts and SkipDraft(mlp={0}) not in drafts


def test_everything_protected_leaves_only_the_whole_model():
    frontier = knapsack.select(made.problem(3, protected=range(3)))
    assert [c.draft for c in frontier.candidates] == [SkipDraft()]


def test_one_layer():
    frontier = knapsack.select(made.problem(1))
    assert SkipDraft(mlp={0}) in [c.draft for c in frontier.candidates]
