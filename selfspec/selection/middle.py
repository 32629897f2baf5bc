"""The post's choice: a contiguous run of whole layers in the middle.

Nothing is asked of the model; what is in every selector's frontier stands here alone.
"""

from selfspec.selection.frontier import Frontier
from selfspec.selection.problem import Problem


def select(problem: Problem) -> Frontier:
    """Middle runs of every length that leave protected layers in."""
    began = problem.start()
    return problem.frontier("middle", [], began)
