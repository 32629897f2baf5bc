"""What a draft is worth: predicted S over draft lengths, with a lower bound; or nothing.

    S(k) = (1 + A(k)) / (c*k + v(k + 1) + o),   A(k) = a_1 + a_1*a_2 + ... + a_1*...*a_k

where a_j is the measured agreement at draft position j, given that the positions before
were kept; positions beyond the last measured one count as the last. The lower bound
takes each a_j at the lower end of its Wilson interval (Wilson 1927), one-sided. A choice
whose lower bound does not exceed 1 declines. Costs come from a profile; no model here.

    choose([(draft, counts), ...], profile, context=512).num_draft_tokens      # 0 or more
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import norm

from selfspec.costs.draft_length import round_cost
from selfspec.costs.profile import CostProfile

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Plan:
    """What one draft is expected to do at its best length.

    Attributes:
        draft: what drafts; None declines, at S = 1.
        num_draft_tokens: k; 0 declines.
        speedup: S expected.
        low: lower confidence bound of S.
    """

    draft: Any
    num_draft_tokens: int
    speedup: float
    low: float


DECLINE = Plan(None, 0, 1.0, 1.0)


def expected_accepted(agreement_at: Sequence[float], num_draft_tokens: int) -> float:
    """A(k), tokens accepted a round, from the agreement at each draft position.

    Args:
        agreement_at: a_1, a_2, ..., each given that the positions before were kept.
        num_draft_tokens: k.

    Raises:
        ValueError: no agreement, or one that is no share.
    """
    if not agreement_at or not all(0 <= share <= 1 for share in agreement_at):
        raise ValueError(f"agreements must be shares from 0 to 1, got {agreement_at}")
    total, kept = 0.0, 1.0
    for position in range(num_draft_tokens):
        kept *= agreement_at[min(position, len(agreement_at) - 1)]
        total += kept
    return total


def lower_bound(share: float, count: int, confidence: float = CONFIDENCE) -> float:
    """One-sided Wilson bound of a share seen in `count` trials; 0 without trials."""
    if count <= 0:
        return 0.0
    z = float(norm.ppf(confidence))
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, (centre - spread) / (1 + z * z / count))


def plan(
    draft,
    agreement_at: Sequence[float],
    counts: int | Sequence[int],
    profile: CostProfile,
    *,
    context: int | None = None,
    limit: int | None = None,
    confidence: float = CONFIDENCE,
) -> Plan:
    """The length with the best lower bound, and what is expected of it.

    Args:
        draft: a skip, exit or shortlist draft.
        agreement_at: agreement at each draft position, given those before.
        counts: positions that each was measured over; one number for all.
        profile: costs of the model.
        context: tokens in the cache; default, the profile's.
        limit: longest draft; default, what verification was measured for.

    Raises:
        TypeError, ValueError: the draft, or the shares, do not fit.
    """
    known = profile.costs_of(draft, context)
    limit = max(profile.pass_seconds) - 1 if limit is None else limit
    sizes = [counts] * len(agreement_at) if isinstance(counts, int) else list(counts)
    low_at = [
        lower_bound(share, count, confidence)
        for share, count in zip(agreement_at, sizes, strict=True)
    ]

    def speedup(shares, length) -> float:
        cost = profile.cost_ratio(draft, context, length)
        spent = round_cost(length, **{**known, "cost_ratio": cost})
        return (1 + expected_accepted(shares, length)) / spent

    plans = [
        Plan(draft, k, speedup(agreement_at, k), speedup(low_at, k))
        for k in range(1, max(1, limit) + 1)
    ]
    return max(plans, key=lambda p: p.low)


def choose(plans: Iterable[Plan]) -> Plan:
    """The plan with the best lower bound; `DECLINE` where none exceeds 1."""
    return max([DECLINE, *plans], key=lambda p: p.low)
