"""Layer dropout: a sample may leave out a layer while it trains, later ones more often.

    x_(l+1) = x_l + M f_l(x_l),  M = 0 with chance p(l, t) = S(t) D(l) p_max,
    D(l) = 2^(l / (L - 1)) - 1                    (arXiv 2404.16710, equations 1 to 3)

with no 1 / (1 - p) to make up for it. A dropped sample leaves the batch for that layer,
so what is dropped is not computed. Which are dropped is drawn here, on the host; a
layer knows it only while a step of training runs it, so nothing is ever dropped in
evaluation.

    rates = dropout_rates(recipe, num_layers=12, step=0, steps=500)
    kept = draw(rates, batch=32, rng=np.random.default_rng(0))
    layer = leaving_out(layer, kept[11])           # for one pass
"""

from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from selfspec.models.surgery import with_call
from selfspec.training.recipe import Recipe

Kept = np.ndarray | None  # the samples that run a layer; None for all of them


def depth_factor(num_layers: int, kind: str = "exponential") -> tuple[float, ...]:
    """D(l) of every layer: 0 at the first, 1 at the last; or their mean, everywhere.

    Raises:
        ValueError: fewer than two layers.
    """
    if num_layers < 2:
        raise ValueError(f"layer dropout needs two layers or more, got {num_layers}")
    rising = [2 ** (layer / (num_layers - 1)) - 1 for layer in range(num_layers)]
    if kind == "constant":
        return (sum(rising) / num_layers,) * num_layers
    return tuple(rising)


def time_factor(step: int, steps: int, kind: str = "constant") -> float:
    """S(t) at t = step of T = steps: 1, or 2^(t / (T - 1)) - 1."""
    if kind == "constant":
        return 1.0
    return 2 ** (min(step, steps - 1) / max(1, steps - 1)) - 1


def dropout_rates(
    recipe: Recipe, num_layers: int, *, step: int, steps: int
) -> tuple[float, ...]:
    """p(l, t) of every layer at a step."""
    if not recipe.max_dropout:
        return (0.0,) * num_layers
    now = time_factor(step, steps, recipe.dropout_time) * recipe.max_dropout
    return tuple(now * d for d in depth_factor(num_layers, recipe.dropout_depth))


def draw(
    rates: Sequence[float], *, batch: int, rng: np.random.Generator
) -> tuple[Kept, ...]:
    """Which samples run each layer, every sample drawn by itself."""
    stays = rng.random((len(rates), batch)) >= np.array(rates)[:, None]
    return tuple(None if row.all() else np.flatnonzero(row) for row in stays)


def share_run(kept: Sequence[Kept], batch: int) -> float:
    """Share of all layers of all samples that are run."""
    return sum(batch if k is None else len(k) for k in kept) / (len(kept) * batch)


def leaving_out(layer: nn.Module, kept: Kept) -> nn.Module:
    """The layer, run on the samples `kept` only; the others pass it by unchanged.

    Whatever comes a sample a row (a mask, positions) is chosen with them.
    """
    if kept is None:
        return layer

    def call(self, x, *args, **kwargs):  # x (B, T, dim)
        if not len(kept):
            return x
        rows = mx.array(kept)

        def chosen(value):
            by_sample = (
                isinstance(value, mx.array)
                and value.ndim >= 3  # a (T, T) mask is every sample's
                and value.shape[0] == x.shape[0]
            )
            return value[rows] if by_sample else value

        before = x[rows]
        after = layer(
            before,
            *map(chosen, args),
            **{name: chosen(value) for name, value in kwargs.items()},
        )
        return x.at[rows].add(after - before)

    return with_call(layer, call)
