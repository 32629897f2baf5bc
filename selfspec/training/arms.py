"""The arms that are compared: what each adds to the same training. No MLX.

From scratch, so dropout grows with time (S exponential, as the paper trains from
scratch); p_max and e_scale are those of its TOPv2 run, because a shallow model's earlier
exits weigh little at a small e_scale. Every exit has its loss at every step: e(l) gives
the first ones little, by turns they would get a fraction of it, and a head over a few
hundred words is cheap.

    ARMS["ld-ee"]
    plan()[:3]                     # [("baseline", 0), ("ld-ee", 0), ("ld", 0)]
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from selfspec.training.recipe import Recipe

_DROPOUT = Recipe(max_dropout=0.2, dropout_time="exponential")
_EXITS = Recipe(early_exit=True, exit_scale=1.0, curriculum="all")
_BOTH = replace(
    _EXITS, max_dropout=_DROPOUT.max_dropout, dropout_time=_DROPOUT.dropout_time
)

ARMS: Mapping[str, Recipe] = {
    "baseline": Recipe(),
    "ld": _DROPOUT,
    "ee": _EXITS,
    "ld-ee": _BOTH,
    "constant-ld": replace(_DROPOUT, dropout_depth="constant"),
    "distilled": replace(_BOTH, distillation=0.5),
}

# The model is trained already, so nothing grows with time.
FINETUNE = Recipe(max_dropout=0.1, early_exit=True, exit_scale=1.0, rotation=8)

SEEDS = {"baseline": 6, "ld-ee": 6}  # enough for an interval
FEWER_SEEDS = 3


def plan(
    names: Iterable[str] = tuple(ARMS), seeds: Iterable[int] | None = None
) -> list[tuple[str, int]]:
    """(arm, seed) of a series, seed by seed, so that a part of it can be compared.

    Arms with the most seeds come first within a seed.

    Args:
        seeds: the same for every arm; None for each arm's own number.
    """
    own = {name: SEEDS.get(name, FEWER_SEEDS) for name in names}
    names = sorted(own, key=own.get, reverse=True)  # stable
    if seeds is not None:
        return [(name, seed) for seed in seeds for name in names]
    return [
        (name, seed)
        for seed in range(max(own.values(), default=0))
        for name in names
        if seed < own[name]
    ]
