"""The knapsack: leave out what costs most and matters least, solved exactly.

    minimise   sum of loss_i * x_i     subject to   sum of saved_i * x_i >= budget

with loss_i the share of tokens lost without item i alone, measured, and saved_i its
measured whole microseconds: an additive 0/1 knapsack (in its covering form), of which
one dynamic program solves every budget at once. Exact for the sum; that losses add up is
the assumption, and `Problem.agreement` of what comes out says what it was worth. Of the
shortlists one is taken at most. `solve` is pure: numbers in, sets out.

    solve(losses=[0.1, 0.3], saved=[5, 9], budgets=[6])    # [(1,)]
"""

from collections.abc import Sequence

import numpy as np

from selfspec.selection.frontier import Frontier
from selfspec.selection.items import draft_of
from selfspec.selection.problem import Problem

CELLS = 200_000_000  # of the table of decisions, a byte each
# a few windows know losses in steps of a token: of equal sums the smaller divergence
TIE = 1e-6


def select(problem: Problem) -> Frontier:
    """The knapsack's choice at every budget of the problem."""
    began = problem.start()
    items = problem.items
    losses = [
        problem.loss([item]) + TIE * problem.divergence(draft_of([item]))
        for item in items
    ]
    chosen = solve(
        losses,
        [item.microseconds for item in items],
        [round(budget * problem.total) for budget in problem.budgets],
        alternatives=[i for i, item in enumerate(items) if item.tokens],
    )
    drafts = [
        draft_of(items[i] for i in taken) for taken in chosen if taken is not None
    ]
    return problem.frontier("knapsack", drafts, began)


def solve(
    losses: Sequence[float],
    saved: Sequence[int],
    budgets: Sequence[int],
    *,
    alternatives: Sequence[int] = (),
) -> list[tuple[int, ...] | None]:
    """For each budget the items of least summed loss that save at least that much.

    Args:
        losses: of each item alone, 0 or more.
        saved: whole units that each saves, 0 or more.
        budgets: in the same unit.
        alternatives: items of which one may be taken at most.

    Returns:
        For each budget the numbers of the items, ascending; None where all of them
        together save less. Of equal losses the one that saves least beyond the budget.

    Raises:
        ValueError: a loss or a saving that is negative or no number, or a table that
            would not fit into memory.
    """
    values, weights = np.asarray(losses, float), np.asarray(saved)
    if values.shape != weights.shape or values.ndim != 1:
        raise ValueError(
            f"one loss and one saving an item, got {values.shape} and {weights.shape}"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(f"losses must be numbers from 0, got {values.tolist()}")
    if weights.size and (weights.dtype.kind not in "iu" or (weights < 0).any()):
        raise ValueError(f"savings must be whole numbers from 0, got {list(saved)}")
    stages = _stages(len(values), alternatives)
    size = int(weights.sum()) + 1
    if size * max(1, len(stages)) > CELLS:
        raise ValueError(
            f"{len(stages)} items and {size - 1} units make too large a table. "
            "Way out: a coarser unit"
        )
    least, decisions = _table(values, weights, stages, size)
    # best loss at that saving or a larger one, and where it stands
    best, where = _suffix_minimum(least)
    out: list[tuple[int, ...] | None] = []
    for budget in budgets:
        first = max(0, int(budget))
        if first >= size or not np.isfinite(best[first]):
            out.append(None)
        else:
            out.append(_trace_back(int(where[first]), weights, stages, decisions))
    return out


def _stages(count: int, alternatives: Sequence[int]) -> list[list[int]]:
    """Items one by one, and the alternatives together: of a stage one is taken."""
    together = sorted(set(alternatives))
    alone = [[i] for i in range(count) if i not in together]
    return alone + ([together] if together else [])


def _table(values, weights, stages, size) -> tuple[np.ndarray, list[np.ndarray]]:
    """Least loss at exactly each saving, and which item of each stage led there.

    A decision is 0 for none of them, else 1 + the item's place in its stage.
    """
    least = np.full(size, np.inf)
    least[0] = 0.0
    decisions = []
    for stage in stages:
        after, taken = least.copy(), np.zeros(size, np.uint8)
        for place, item in enumerate(stage):
            weight, value = int(weights[item]), values[item]
            offered = least[: size - weight] + value
            better = offered < after[weight:]
            after[weight:][better] = offered[better]
            taken[weight:][better] = 1 + place
        least = after
        decisions.append(taken)
    return least, decisions


def _suffix_minimum(least) -> tuple[np.ndarray, np.ndarray]:
    """For each saving the least loss at it or beyond, and the nearest place of it."""
    best, where = least.copy(), np.arange(len(least))
    reversed_best = np.minimum.accumulate(best[::-1])[::-1]
    # the nearest place from the right: the last index at which the minimum is renewed
    renewed = np.where(best == reversed_best, where, len(least))
    return reversed_best, np.minimum.accumulate(renewed[::-1])[::-1]


def _trace_back(saving: int, weights, stages, decisions) -> tuple[int, ...]:
    taken = []
    for stage, choices in zip(reversed(stages), reversed(decisions), strict=True):
        place = int(choices[saving])
        if place:
            item = stage[place - 1]
            taken.append(item)
            saving -= int(weights[item])
    return tuple(sorted(taken))
