"""Untrained early exit: the last layers, whole, for every number of them.

As a skip set, so that it costs and scores like the others; drafted as an `ExitDraft` it
can keep what its first layers computed.
"""

from selfspec.decoding.drafts import SkipDraft
from selfspec.selection.frontier import Frontier
from selfspec.selection.problem import Problem


def select(problem: Problem) -> Frontier:
    """Suffixes of every length that leave protected layers in."""
    began = problem.start()
    drafts = []
    for first in range(1, problem.num_layers):
        run = frozenset(range(first, problem.num_layers))
        if not run & problem.protected:
            drafts.append(SkipDraft(run, run))
    return problem.frontier("suffix", drafts, began)
