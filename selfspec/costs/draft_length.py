"""How many tokens to draft: the identity under one acceptance for every token.

With alpha the chance that a token which verification reaches is kept, k drafted tokens
yield on average

    A(k) = alpha + alpha^2 + ... + alpha^k          (Leviathan et al. 2023, eq. 1, less 1)
    S(k) = (1 + A(k)) / (c*k + v(k + 1) + o),   S(0) = 1.

Real acceptance comes in runs, so these are for planning; what is measured goes through
`identity.speedup`. Pure arithmetic: no model, no clock.

    best_draft_length(0.9, cost_ratio=0.7)               # Plan(2, 1.13)
    required_acceptance(1.2, cost_ratio=0.7, limit=10)   # 0.952
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# v: one number for any width, or measured values by rows (see `verify_at`).
Verify = float | Mapping[int, float]

LIMIT = 10  # longest draft considered, where nothing else is said


class Plan(NamedTuple):
    """A draft length and its expected speedup; length 0 declines and is worth 1."""

    num_draft_tokens: int
    speedup: float


def verify_at(verify_ratio: Verify, rows: int) -> float:
    """v(rows): straight lines between measured widths, the last one prolonged.

    A mapping without an entry for one row counts as 1 there, plain decoding's own cost.
    """
    if not isinstance(verify_ratio, Mapping):
        return float(verify_ratio)
    if rows in verify_ratio:
        return float(verify_ratio[rows])
    if rows < 1 or not verify_ratio:
        raise ValueError(
            f"verify_ratio has {len(verify_ratio)} widths; one or more are needed, and "
            f"rows from 1, got {rows}"
        )
    known = sorted({1: 1.0, **verify_ratio}.items())
    if len(known) == 1:
        return known[0][1]
    after = next((i for i, (m, _) in enumerate(known) if m > rows), len(known) - 1)
    (m0, v0), (m1, v1) = known[max(0, after - 1)], known[after]
    return v0 + (v1 - v0) * (rows - m0) / (m1 - m0)


def expected_accepted(acceptance: float, num_draft_tokens: int) -> float:
    """A(k): accepted tokens a round.

    Args:
        acceptance: alpha, per-token acceptance (not accepted / drafted).
        num_draft_tokens: k.
    """
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance must be from 0 to 1, got {acceptance}")
    if num_draft_tokens < 0:
        raise ValueError(f"num_draft_tokens must be 0 or more, got {num_draft_tokens}")
    return sum(acceptance**i for i in range(1, num_draft_tokens + 1))


def round_cost(
    num_draft_tokens: int,
    *,
    cost_ratio: float,
    verify_ratio: Verify = 1.0,
    overhead_ratio: float = 0.0,
) -> float:
    """c*k + v(k + 1) + o, in plain decoding steps; one step where k is 0."""
    if num_draft_tokens == 0:
        return 1.0
    verify = verify_at(verify_ratio, num_draft_tokens + 1)
    return cost_ratio * num_draft_tokens + verify + overhead_ratio


def expected_speedup(acceptance: float, num_draft_tokens: int, **costs) -> float:
    """S(k); 1 where k is 0. `costs` are those of `round_cost`."""
    accepted = expected_accepted(acceptance, num_draft_tokens)
    return (1 + accepted) / round_cost(num_draft_tokens, **costs)


def best_draft_length(acceptance: float, *, limit: int = LIMIT, **costs) -> Plan:
    """The length up to `limit` with the best expected speedup, the shortest of equals.

    Length 0 is among them: where no draft pays the answer is Plan(0, 1.0).
    """
    plans = (
        Plan(k, expected_speedup(acceptance, k, **costs)) for k in range(limit + 1)
    )
    return max(plans, key=lambda plan: plan.speedup)


def required_acceptance(
    target_speedup: float,
    *,
    limit: int = LIMIT,
    num_draft_tokens: int | None = None,
    **costs,
) -> float:
    """The least per-token acceptance that reaches a speedup.

    Args:
        target_speedup: S to reach; 1 asks for break-even.
        limit: longest draft allowed, if the length is free.
        num_draft_tokens: fixes the length instead.

    Returns:
        alpha, or infinity where even perfect acceptance falls short.
    """
    if num_draft_tokens is not None and num_draft_tokens < 1:
        raise ValueError(f"num_draft_tokens must be 1 or more, got {num_draft_tokens}")
    lengths = range(1, limit + 1) if num_draft_tokens is None else [num_draft_tokens]

    def reached(acceptance):
        return any(
            expected_speedup(acceptance, k, **costs) >= target_speedup for k in lengths
        )

    if not reached(1.0):
        return math.inf
    low, high = 0.0, 1.0
    if reached(low):
        return low
    while high - low > 1e-12:  # S rises with alpha at every length
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def upper_bound(num_draft_tokens: int, **costs) -> float:
    """S where every drafted token is kept: (1 + k) / (c*k + v(k + 1) + o)."""
    return expected_speedup(1.0, num_draft_tokens, **costs)


def clairvoyant_bound(
    accepted: Iterable[int],
    *,
    cost_ratio: float,
    verify_ratio: Verify = 1.0,
    overhead_ratio: float = 0.0,
) -> float:
    """S of a draft that stops each round just before its first wrong token.

    Drafting exactly A tokens a round, each round gives (1 + A) / (c*A + v(A + 1) + o);
    over several rounds it is the sum of the tokens over the sum of the costs. A round
    without a token to draft is a plain step. While c + v(m + 1) - v(m) stays under 1/S,
    no stopping rule of the same draft does better.

    Args:
        accepted: A of each round, under a draft long enough to be rejected.
    """
    rounds = [int(a) for a in accepted]
    if not rounds or min(rounds) < 0:
        raise ValueError(f"accepted must hold counts, one a round, got {rounds}")
    costs = dict(
        cost_ratio=cost_ratio, verify_ratio=verify_ratio, overhead_ratio=overhead_ratio
    )
    return sum(1 + a for a in rounds) / sum(round_cost(a, **costs) for a in rounds)
