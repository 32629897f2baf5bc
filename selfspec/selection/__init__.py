"""Which blocks to leave out: naive, greedy, knapsack, search, and the optimum where known.

windows.py makes the text that drafts are scored on, scores.py scores them, problem.py
puts costs beside the score, and every selector turns a `Problem` into a `Frontier`, one
file each. objective.py says what a draft is then worth. Knows drafts and costs, and of
models only how to run them; no files. Names are looked up on first use.
"""

from importlib import import_module

# name -> the module that defines it
_PUBLIC = {
    "Candidate": "selfspec.selection.frontier",
    "Frontier": "selfspec.selection.frontier",
    "Gap": "selfspec.selection.gap",
    "Item": "selfspec.selection.items",
    "Known": "selfspec.selection.online",
    "OnlinePolicy": "selfspec.selection.online",
    "Plan": "selfspec.selection.objective",
    "Problem": "selfspec.selection.problem",
    "SELECTORS": "selfspec.selection.selectors",
    "Score": "selfspec.selection.scores",
    "Scorer": "selfspec.selection.scores",
    "Window": "selfspec.selection.windows",
    "choose": "selfspec.selection.objective",
    "draft_of": "selfspec.selection.items",
    "items_of": "selfspec.selection.items",
    "make_windows": "selfspec.selection.windows",
    "overlap": "selfspec.selection.windows",
    "plan": "selfspec.selection.objective",
    "split": "selfspec.selection.gap",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfspec.selection' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
