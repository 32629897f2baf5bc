"""Problems with a known answer: a synthetic machine, a score that is a formula."""

import numpy as np

from selfspec.decoding.drafts import ShortlistDraft
from selfspec.selection.problem import Problem
from tests.costs import synthetic


def profile(num_layers: int = 4, **changes):
    """The synthetic machine with another number of layers."""
    kinds = dict(attention=("attention",) * num_layers, mlp=("mlp",) * num_layers)
    return synthetic.profile(**{**kinds, **changes})


def additive(num_layers: int, seed: int):
    """A score whose losses add up, so that the knapsack's assumption holds.

    Losses are small enough that the sum over all blocks stays under 1.
    """
    rng = np.random.default_rng(seed)
    attention, mlp = rng.uniform(0, 0.9 / (2 * num_layers), (2, num_layers))

    def score(draft) -> float:
        inner = draft.draft if isinstance(draft, ShortlistDraft) else draft
        lost = sum(attention[i] for i in inner.attention)
        lost += sum(mlp[i] for i in inner.mlp)
        return 1.0 - float(lost) - 0.01 * isinstance(draft, ShortlistDraft)

    return score


def interacting(num_layers: int, seed: int):
    """A score in which neighbours that are both left out cost more than their sum."""
    rng = np.random.default_rng(seed)
    alone = rng.exponential(0.08, 2 * num_layers)
    pairs = rng.exponential(0.1, (2 * num_layers, 2 * num_layers))

    def score(draft) -> float:
        inner = draft.draft if isinstance(draft, ShortlistDraft) else draft
        out = sorted([2 * i for i in inner.attention] + [2 * i + 1 for i in inner.mlp])
        lost = alone[out].sum()
        lost += sum(pairs[a, b] for a, b in zip(out, out[1:], strict=False))
        return float(np.exp(-lost))

    return score


def problem(num_layers: int = 4, score_seed: int = 0, score=None, **options) -> Problem:
    return Problem(
        score or interacting(num_layers, score_seed), profile(num_layers), **options
    )
