"""The early-exit loss: what the text says to every exit, deeper ones weighing more.

    J = sum over l of w(l) CE(g(x_(l+1)), Y),  w = C e / sum of C e     (equations 4, 5)
    e(l) = e_scale l (l + 1) / 2                           for the earlier exits
    e(L-1) = (L - 1) + e_scale (L - 1) (L - 2) / 2         for the last

g: the model's own final norm and head, shared by all exits. e(0) = 0, so the exit after
one layer is taught only by what the deeper ones ask of it. Logits are read in float32,
whatever the model computes in.

    weights = exit_weights(exit_scales(12, 1.0), enabled)
    loss = total_loss(weights, logits_of, targets, distillation=0.0)
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import mlx.nn as nn


def exit_scales(num_layers: int, exit_scale: float) -> tuple[float, ...]:
    """e(l) of every exit."""
    last = num_layers - 1
    earlier = [exit_scale * layer * (layer + 1) / 2 for layer in range(last)]
    return (*earlier, last + exit_scale * last * (last - 1) / 2)


def exit_weights(scales: Sequence[float], enabled: Sequence[bool]) -> tuple[float, ...]:
    """C e of every exit over their sum.

    Raises:
        ValueError: no exit that weighs anything is enabled (the first alone, say).
    """
    chosen = [s if on else 0.0 for s, on in zip(scales, enabled, strict=True)]
    whole = sum(chosen)
    if not whole > 0:
        raise ValueError(
            "a step must enable an exit that weighs more than 0; the first weighs nothing"
        )
    return tuple(value / whole for value in chosen)


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """Mean over N positions of -log of the target's chance, in nats.

    Args:
        logits: (N, V).
        targets: (N,).
    """
    losses = nn.losses.cross_entropy(logits.astype(mx.float32), targets)
    return losses.mean()


def divergence(teacher: mx.array, logits: mx.array) -> mx.array:
    """Mean over N positions of KL(teacher || exit); the teacher is not taught by it."""
    teacher = mx.stop_gradient(teacher.astype(mx.float32))
    log_teacher = teacher - mx.logsumexp(teacher, axis=-1, keepdims=True)
    own = logits.astype(mx.float32)
    log_own = own - mx.logsumexp(own, axis=-1, keepdims=True)
    return (mx.exp(log_teacher) * (log_teacher - log_own)).sum(axis=-1).mean()


def total_loss(
    weights: Sequence[float],
    logits_of: Callable[[int], mx.array],
    targets: mx.array,
    *,
    distillation: float = 0.0,
) -> tuple[mx.array, mx.array]:
    """J, and beside it the last exit's own cross-entropy.

    Args:
        weights: w of every exit.
        logits_of: exit -> logits (N, V); asked only for exits that weigh something.
        targets: (N,).
        distillation: share of an earlier exit's loss that is its divergence from the
            last exit.
    """
    last = len(weights) - 1
    final = logits_of(last)
    last_loss = cross_entropy(final, targets)
    loss = weights[last] * last_loss
    for layer in range(last):
        if not weights[layer]:
            continue
        logits = logits_of(layer)
        own = (
            (1 - distillation) * cross_entropy(logits, targets)
            if distillation < 1
            else 0
        )
        if distillation:
            own = own + distillation * divergence(final, logits)
        loss = loss + weights[layer] * own
    return loss, last_loss
