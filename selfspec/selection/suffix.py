"""Untrained early exit: the last layers, whole, for every number of them.

As a skip set, so that it costs and scores like the others; drafted as an `ExitDraft` it
can keep what its first layers computed.
"""

from selfspec.selection.frontier import Frontier
from selfspec.selection.problem import Problem


def select(problem: Problem) -> Frontier:
    """Suffixes of every length that leave protected layers in."""
    began = problem.start()
    last = problem.num_layers
    drafts = problem.whole_layers(range(f, last) for f in range(last - 1, 0, -1))
    return problem.frontier("suffix", drafts, began)
