"""The selectors by name: each takes a `Problem` and returns a `Frontier`.

Costs nothing to import: a selector's module is looked up when it is called.

    SELECTORS["knapsack"](problem).best_under(0.7)
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module

from selfspec.selection.frontier import Frontier
from selfspec.selection.problem import Problem

_MODULES = {
    "middle": "middle",
    "suffix": "suffix",
    "random": "random_sets",
    "greedy": "greedy",
    "knapsack": "knapsack",
    "beam": "beam",
    "clasp": "clasp",
    "search": "search",
    "oracle": "oracle",
}


def _select(module: str, problem: Problem, **options) -> Frontier:
    return import_module(f"selfspec.selection.{module}").select(problem, **options)


SELECTORS: dict[str, Callable[..., Frontier]] = {
    name: partial(_select, module) for name, module in _MODULES.items()
}
