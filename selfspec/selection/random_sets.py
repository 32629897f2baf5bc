"""Random skip sets, the least that a selector has to beat.

At every budget a few random orders of the items are cut off where they save enough.
"""

import random

from selfspec.selection.frontier import Frontier
from selfspec.selection.items import draft_of
from selfspec.selection.problem import Problem

TRIES = 4  # random sets a budget


def select(problem: Problem, *, tries: int = TRIES) -> Frontier:
    """`tries` random sets at every budget, by the problem's seed."""
    began = problem.start()
    rng = random.Random(f"{problem.seed}/random")
    drafts = []
    for budget in problem.budgets:
        for _ in range(tries):
            drafts.append(draft_of(random_items(problem, budget, rng)))
    return problem.frontier("random", drafts, began)


def random_items(problem: Problem, budget: float, rng: random.Random) -> list:
    """Items in random order until they save `budget` of what all blocks cost.

    Of the shortlists the first that comes is taken, and no other.
    """
    order = rng.sample(problem.items, len(problem.items))
    taken, saved = [], 0
    for item in order:
        if saved >= budget * problem.total:
            break
        if item.tokens and any(other.tokens for other in taken):
            continue
        taken.append(item)
        saved += item.microseconds
    return taken
