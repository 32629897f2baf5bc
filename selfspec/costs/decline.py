"""A rule that declines: draft only where it surely pays, probe only what it can afford.

Two estimates with their uncertainty, from the rounds seen: the chance that a first
drafted token is kept, and that a later one is once the one before it was. Apart,
because kept tokens come in runs, and one pooled rate would promise long drafts too
much. Their lower bound gives a lower bound of

    S(k) = (1 + A(k)) / (c*k + v(k + 1) + o),   A(k) = a*(1 + b + ... + b^(k-1))

and of the lengths where it exceeds 1 the best is drafted. Where only the upper bound
exceeds 1, a round is a probe. Every round is paid from an account into which a share of
all steps flows, those too in which a lookup finds nothing, so that whatever the draft
does,

    time <= plain time * (1 + budget) + allowance,

in the costs that the rule was given. Knows costs in plain steps, and no seconds.

    policy = DeclinePolicy(draft, cost_ratio=0.7, verify_ratio={2: 1.1, 4: 1.3})
    policy = DeclinePolicy(draft, **profile.costs_of(draft, context=512))
    generate_step(prompt, model, draft=draft, policy=policy)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from selfspec.costs.draft_length import Verify, round_cost, verify_at
from selfspec.decoding.policy import Choice
from selfspec.decoding.trace import Round

LIMIT = 8  # longest draft, where the measured widths do not say otherwise


@dataclass
class Rate:
    """A chance, from kept and rejected tokens of which the old ones fade.

    The Beta posterior of the counts and of a prior that counts for `weight` tokens. The
    prior does not fade: after a long silence it is all that is known.
    """

    prior: float
    weight: float
    kept: float = 0.0
    rejected: float = 0.0

    def fade(self, share: float) -> None:
        self.kept *= share
        self.rejected *= share

    @property
    def mean(self) -> float:
        return (self.weight * self.prior + self.kept) / self._tokens

    @property
    def deviation(self) -> float:
        return math.sqrt(self.mean * (1 - self.mean) / (self._tokens + 1))

    @property
    def _tokens(self) -> float:
        return self.weight + self.kept + self.rejected


class DeclinePolicy:
    """A DraftPolicy that answers 0 rather than lose.

    Args:
        draft: what drafts.
        cost_ratio: c, one draft step.
        verify_ratio: v, a number or by rows.
        overhead_ratio: o, the rest of a round.
        catch_up_ratio: what the draft pays for each token that was decoded without it,
            when it drafts again: reading it, if the draft is a model of its own.
        acceptance: what the acceptance of a token is thought to be beforehand.
        acceptance_weight: how many seen tokens that opinion counts for.
        max_draft_tokens: longest draft; default, what `verify_ratio` was measured for.
        deviations: width of the bounds, in standard deviations of S.
        budget: share of the time that may be lost.
        allowance: what may be lost besides, in plain steps, once.
        memory: tokens of text after which what was seen counts half.

    Raises:
        ValueError: a value out of range, or costs that cannot have been measured.
    """

    def __init__(
        self,
        draft,
        *,
        cost_ratio: float,
        verify_ratio: Verify,
        overhead_ratio: float = 0.0,
        catch_up_ratio: float = 0.0,
        acceptance: float = 0.7,
        acceptance_weight: float = 4.0,
        max_draft_tokens: int | None = None,
        deviations: float = 1.0,
        budget: float = 0.01,
        allowance: float = 2.5,
        memory: float = 64.0,
    ):
        if not 0 <= acceptance <= 1:
            raise ValueError(f"acceptance must be from 0 to 1, got {acceptance}")
        if not 0 <= budget < 1 or allowance < 0:
            raise ValueError(
                f"budget must be in [0, 1) and allowance 0 or more, got {budget} and "
                f"{allowance}"
            )
        if not (acceptance_weight > 0 and memory > 0 and deviations >= 0):
            raise ValueError(
                "acceptance_weight and memory must be above 0 and deviations 0 or more, "
                f"got {acceptance_weight}, {memory} and {deviations}"
            )
        if isinstance(verify_ratio, Mapping):  # JSON makes strings of the widths
            verify_ratio = {int(rows): v for rows, v in verify_ratio.items()}
            if max_draft_tokens is None:
                max_draft_tokens = max(1, max(verify_ratio, default=1) - 1)
        limit = LIMIT if max_draft_tokens is None else max_draft_tokens
        if limit < 1:
            raise ValueError(f"max_draft_tokens must be 1 or more, got {limit}")
        costs = dict(
            cost_ratio=cost_ratio,
            verify_ratio=verify_ratio,
            overhead_ratio=overhead_ratio,
        )
        self.draft = draft
        self.cost_ratio = cost_ratio
        self.catch_up_ratio = catch_up_ratio
        self.costs = [round_cost(k, **costs) for k in range(limit + 1)]
        # A round in which the draft had nothing to propose is no plain step: nothing
        # is queued ahead, and the pass is a verification of one row.
        self.empty = verify_at(verify_ratio, 1) + overhead_ratio
        ratios = [cost_ratio, catch_up_ratio]
        if not (
            all(0 < cost < math.inf for cost in [*self.costs, self.empty])
            and all(0 <= ratio < math.inf for ratio in ratios)
        ):
            raise ValueError(
                "cost_ratio, verify_ratio, overhead_ratio and catch_up_ratio must be "
                f"measured and positive, got {ratios} and rounds of {self.costs} steps"
            )
        self.proposed = Rate(1.0, acceptance_weight)
        self.first = Rate(acceptance, acceptance_weight)
        self.later = Rate(acceptance, acceptance_weight)
        self.deviations = deviations
        self.budget = budget
        self.account = allowance
        self.fade = 0.5 ** (1 / memory)
        self.asked = 0  # tokens that the present round was asked to draft
        self.unread = 0  # tokens decoded plainly since the draft last ran

    def choose(self) -> Choice:
        """The length that surely pays or can be afforded as a probe; else 0."""
        self.asked = self._affordable(self._wanted())
        if self.asked == 0:
            self.unread += 1
            self._pass_time(1)
        return Choice(self.draft, self.asked)

    def record(self, finished: Round) -> None:
        """Pay for the round from the account and learn both chances from it."""
        drafted, accepted = finished.drafted, finished.accepted
        self.account += 1 + accepted - self._paid(drafted)
        self.unread = 0
        if drafted == 0:
            self.proposed.rejected += 1
        else:
            self.proposed.kept += 1
            if accepted:
                self.first.kept += 1
                self.later.kept += accepted - 1
            else:
                self.first.rejected += 1
            if 0 < accepted < drafted:
                self.later.rejected += 1
        self._pass_time(1 + accepted)

    def expected_speedup(self, num_draft_tokens: int, deviations: float = 0.0) -> float:
        """S(k), or its bound that many standard deviations up or down.

        The deviation is carried through A(k) to first order, the two rates independent.
        A share of the rounds in which the draft proposes nothing thins both sides out.
        """
        k = num_draft_tokens
        if k == 0:
            return 1.0
        a, b = self.first.mean, self.later.mean
        ahead = sum(b**i for i in range(k))
        slope = sum(i * b ** (i - 1) for i in range(1, k))  # of `ahead`, in b
        spread = math.hypot(
            ahead * self.first.deviation, a * slope * self.later.deviation
        )
        accepted = min(k, max(0.0, a * ahead + deviations * spread))
        share = self.proposed.mean + deviations * self.proposed.deviation
        share = min(1.0, max(0.0, share))
        empty = self.empty + self.cost_ratio  # it tried one step
        return (1 + share * accepted) / (share * self.costs[k] + (1 - share) * empty)

    def _wanted(self) -> int:
        """The length to draft if money were no object."""
        for deviations in (-self.deviations, self.deviations):
            lengths = range(1, len(self.costs))
            good = [k for k in lengths if self.expected_speedup(k, deviations) > 1]
            if good:
                return max(good, key=self.expected_speedup)
        return 0

    def _affordable(self, length: int) -> int:
        """The length, cut to what the account covers if nothing is accepted."""
        left = self.account - self.catch_up_ratio * self.unread
        while length and self._worst(length) - 1 > left:
            length -= 1
        return length

    def _worst(self, length: int) -> float:
        """The most that a round can cost which is asked for `length` tokens."""
        return max(self.costs[length], self.empty + self.cost_ratio)

    def _paid(self, drafted: int) -> float:
        """What the round cost that was just run, in plain steps."""
        cost = self.costs[min(drafted, len(self.costs) - 1)] if drafted else self.empty
        if drafted < self.asked:  # it stopped short, after a step that gave nothing
            cost += self.cost_ratio
        return cost + self.catch_up_ratio * self.unread

    def _pass_time(self, tokens: int) -> None:
        """`tokens` were emitted, each of which plain decoding gives for one step."""
        share = self.fade**tokens
        for rate in (self.proposed, self.first, self.later):
            rate.fade(share)
        # Until longer drafts show otherwise, later tokens are as good as first ones.
        self.later.prior = self.first.mean
        self.account += self.budget * tokens
