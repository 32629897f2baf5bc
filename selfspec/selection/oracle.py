"""Every skip set there is, where there are few: the optimum that regret is told from.

2^(2L) sets for L layers, each scored. Refused beyond a stated number, because an
"oracle" that tried some of them would be just another search.
"""

from itertools import combinations

from selfspec.selection.frontier import Frontier
from selfspec.selection.items import draft_of
from selfspec.selection.problem import Problem

MOST = 2**12  # sets: six layers


def select(problem: Problem) -> Frontier:
    """All sets of blocks, with each shortlist and without.

    Raises:
        ValueError: more sets than can be tried.
    """
    blocks, lists = problem.blocks, [i for i in problem.items if i.tokens]
    count = 2 ** len(blocks) * (1 + len(lists))
    if count > MOST * (1 + len(lists)):
        raise ValueError(
            f"{len(blocks)} blocks make {count} sets, more than the {MOST} that can all "
            "be tried. Way out: a smaller model, or protected layers"
        )
    began = problem.start()
    drafts = [
        draft_of([*chosen, *shortlist])
        for size in range(len(blocks) + 1)
        for chosen in combinations(blocks, size)
        for shortlist in ([], *([item] for item in lists))
    ]
    return problem.frontier("oracle", drafts, began)
