"""KnapSpec's selector: attention and MLP as items of their own, cosine as the score.

Width 1 is the published program; 2, 4 and 8 go beyond it. Cells are as fine as a share
of what can be saved, not as coarse as the published whole-number ratio of attention to
MLP. Of the survivors at each budget the best are scored by agreement.
"""

from collections.abc import Sequence

from selfspec.selection.frontier import Frontier
from selfspec.selection.hidden_states import Stage, Survivor, follow
from selfspec.selection.items import ATTENTION, Item, draft_of
from selfspec.selection.passes import TargetText
from selfspec.selection.problem import Problem

CELLS = 64
WIDTH = 1


def select(problem: Problem, *, width: int = WIDTH, cells: int = CELLS) -> Frontier:
    """The beam's choice at every budget.

    Args:
        width: survivors a cell.
        cells: into which all that can be saved is divided.

    Raises:
        TypeError: the problem's scorer is a plain function, without hidden states.
    """
    began = problem.start()
    found = search(problem, width=width, cells=cells)
    drafts = [draft_of(s.items) for s in best_at_budgets(problem, found, width)]
    return problem.frontier("beam", drafts, began)


def search(
    problem: Problem, *, width: int = WIDTH, cells: int = CELLS
) -> list[Survivor]:
    """What survives of the program over single blocks."""
    stages = []
    known = {(item.kind, item.index): item for item in problem.blocks}
    for depth in range(2 * problem.num_layers):
        layer, is_mlp = divmod(depth, 2)
        item = known.get(("mlp" if is_mlp else ATTENTION, layer))
        stages.append(Stage((depth,), (item,) if item else ()))
    return follow(
        texts_of(problem),
        stages,
        unit=max(1, problem.total // cells),
        most=round(max(problem.budgets, default=0.0) * problem.total)
        + max((i.microseconds for i in problem.blocks), default=0),
        width=width,
    )


def texts_of(problem: Problem) -> Sequence[TargetText]:
    """The windows with their hidden states.

    Raises:
        TypeError: the scorer has none.
    """
    texts = getattr(problem.scorer, "texts", None)
    if texts is None:
        raise TypeError(
            "hidden states are followed, and a plain function has none. "
            "Way out: a Problem with a selfspec.selection.Scorer"
        )
    return texts


def best_at_budgets(
    problem: Problem, survivors: Sequence[Survivor], count: int
) -> list[Survivor]:
    """Of the survivors that save each budget, but not the next one, the best few."""
    edges = [round(budget * problem.total) for budget in problem.budgets]
    found: list[Survivor] = []
    for low, high in zip(edges, [*edges[1:], float("inf")], strict=True):
        cell = [s for s in survivors if low <= s.saved < high and s.items]
        found += sorted(cell, key=lambda s: -s.cosine)[:count]
    return found


def items_of_layer(problem: Problem, layer: int) -> tuple[Item, ...]:
    """Both blocks of a layer, or nothing where it is protected."""
    both = tuple(item for item in problem.blocks if item.index == layer)
    return both if len(both) == 2 else ()
