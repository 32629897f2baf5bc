"""The speedup identity: what a draft must be worth before it pays.

    S = (1 + A) / (c*D + v + o)

exact for any draft and any stopping rule, because it only counts what a round emits and
what it spends. Pure arithmetic: no model, no clock.

    speedup(accepted=1.36, drafted=2, cost_ratio=0.9, verify_ratio=1.15)   # 0.80
    round_remainder(speedup=0.8, accepted=1.36, drafted=2, cost_ratio=0.9) # v + o = 1.15
"""

import numpy as np


def speedup(
    *,
    accepted: float,
    drafted: float,
    cost_ratio: float,
    verify_ratio: float,
    overhead_ratio: float = 0.0,
) -> float:
    """S = (1 + A) / (c*D + v + o), the mean speedup of rounds that average these values.

    Scalars or arrays of equal shape.

    Args:
        accepted: A, drafted tokens kept per round.
        drafted: D, tokens drafted per round.
        cost_ratio: c, one draft step in units of one plain decoding step.
        verify_ratio: v, the verification pass over D + 1 rows in the same unit.
        overhead_ratio: o, everything else in a round, same unit.

    Raises:
        ValueError: accepted is negative or above drafted, or a round costs nothing.
    """
    kept, proposed = np.asarray(accepted, float), np.asarray(drafted, float)
    if np.any(kept < 0) or np.any(kept > proposed):
        raise ValueError(
            f"accepted must lie between 0 and drafted, got {kept} of {proposed}"
        )
    cost = cost_ratio * proposed + verify_ratio + overhead_ratio
    if np.any(np.asarray(cost) <= 0):
        raise ValueError(f"a round must cost more than nothing, got {cost}")
    result = (1 + kept) / cost
    return float(result) if np.ndim(result) == 0 else result


def round_remainder(
    *, speedup: float, accepted: float, drafted: float, cost_ratio: float
) -> float:
    """v + o, the part of a round that a published speedup implies beyond drafting.

    The identity solved for it: v + o = (1 + A) / S - c*D. In plain decoding steps.

    Raises:
        ValueError: speedup is not positive.
    """
    if speedup <= 0:
        raise ValueError(f"speedup must be positive, got {speedup}")
    return (1 + accepted) / speedup - cost_ratio * drafted


def weight_share_cost(
    *, num_layers: int, skipped_layers: int, layer_weights: float, head_weights: float
) -> float:
    """c of a draft that skips whole layers, if time were weights read.

    c = (head + kept layers) / (head + all layers): the head is always paid. This is the
    stand-in used for machines that nobody profiled; a measured c replaces it.

    Args:
        layer_weights: weights of all layers together (any unit).
        head_weights: weights of the output projection (same unit).
    """
    if not 0 <= skipped_layers <= num_layers:
        raise ValueError(
            f"skipped_layers must lie between 0 and {num_layers}, got {skipped_layers}"
        )
    kept = layer_weights * (num_layers - skipped_layers) / num_layers
    return (head_weights + kept) / (head_weights + layer_weights)
