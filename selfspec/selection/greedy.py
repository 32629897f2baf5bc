"""Backward elimination: leave out, one at a time, what costs the least agreement.

Of the items that are left the one with the smallest loss added for each microsecond
saved goes next. Scoring all of them at every step is quadratic in the layers, so only
the `width` that looked best last time are scored again; a width of None scores all. An
item that looked bad early and became harmless since can be missed, and
`Frontier.evaluations` says what that saved.
"""

from selfspec.selection.frontier import Frontier
from selfspec.selection.items import draft_of
from selfspec.selection.problem import Problem

WIDTH = 6


def select(problem: Problem, *, width: int | None = WIDTH) -> Frontier:
    """One set at every step, until the largest budget is reached."""
    if width is not None and width < 1:
        raise ValueError(f"width must be 1 or more, or None, got {width}")
    began = problem.start()
    # loss added by each item that is left, as last seen
    added = {item: problem.loss([item]) for item in problem.items}
    taken, lost, saved, drafts = [], 0.0, 0, []
    most = max(problem.budgets, default=0.0) * problem.total
    while added and saved < most:

        def price(item, added=added):
            return added[item] / max(1, item.microseconds), -item.microseconds

        for item in sorted(added, key=price)[: width or len(added)]:
            added[item] = problem.loss([*taken, item]) - lost
        best = min(sorted(added, key=price)[: width or len(added)], key=price)
        lost += added.pop(best)
        saved += best.microseconds
        taken.append(best)
        drafts.append(draft_of(taken))
        if best.tokens:  # a draft has one shortlist at most
            added = {item: loss for item, loss in added.items() if not item.tokens}
    return problem.frontier("greedy", drafts, began)
