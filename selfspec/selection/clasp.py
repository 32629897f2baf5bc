"""CLaSp's selector: whole layers, judged by the hidden state of one token.

The published program keeps one survivor for each number of layers left out and compares
it with the verifier's state of the last accepted token; here that is the last row of
every window.
"""

from selfspec.selection.beam import best_at_budgets, items_of_layer, texts_of
from selfspec.selection.frontier import Frontier
from selfspec.selection.hidden_states import Stage, follow
from selfspec.selection.items import draft_of
from selfspec.selection.problem import Problem


def select(problem: Problem, *, only_last_row: bool = True) -> Frontier:
    """One set of whole layers for every number of them."""
    began = problem.start()
    stages = [
        Stage((2 * layer, 2 * layer + 1), items_of_layer(problem, layer))
        for layer in range(problem.num_layers)
    ]
    dearest = max((stage.saved for stage in stages), default=0)
    survivors = follow(
        texts_of(problem),
        stages,
        unit=max(1, dearest),
        most=round(max(problem.budgets, default=0.0) * problem.total) + dearest,
        only_last_row=only_last_row,
    )
    drafts = [draft_of(s.items) for s in best_at_budgets(problem, survivors, 1)]
    return problem.frontier("clasp", drafts, began)
