"""Choosing again while decoding: which draft of a pool, how long, or none for now.

A pool of drafts was chosen and scored beforehand, offline. While the text is written,
what is known of each goes on: every round says how often its draft was right, and a few
times one pass over the last rows of the text says the same of drafts that did not draft.
When to choose again is a rule: every so many tokens, when the cost of a step has moved,
or when the draft is right less often than it was thought to be. Passes read the
target's own keys and values and write nothing, and a budget in seconds bounds them.

    pool = [Known(draft, agreement=0.9, later=0.92, positions=400), ...]
    policy = OnlinePolicy(pool, profile)
    generate_step(prompt, model, draft=None, policy=policy)
    policy.selections, policy.seconds                # what choosing again has cost
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from selfspec.costs.profile import CostProfile
from selfspec.decoding import self_test
from selfspec.decoding.caches import WindowCache
from selfspec.decoding.drafting import Target
from selfspec.decoding.policy import Choice
from selfspec.decoding.trace import Round
from selfspec.models.blocks import find_stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.selection.objective import DECLINE, Plan, plan
from selfspec.selection.passes import TargetText
from selfspec.selection.scores import agreed_rows

INTERVAL = 128  # tokens
RECENT = 16  # rows of the text that a draft is scored on
TRIES = 2  # drafts scored a time
BUDGET = 0.02  # share of the time of plain decoding that scoring may take
LIMIT = 6  # longest draft
WEIGHT = 48  # positions that what was known beforehand counts for, at most
MEMORY = 128.0  # tokens of text after which what was seen counts half


@dataclass(frozen=True)
class Known:
    """A draft of the pool, and what calibration windows said of it.

    Attributes:
        agreement: of the first token of a round, 0 to 1.
        later: of each later one, once those before it were kept.
        positions: that the first was measured over.
    """

    draft: Any
    agreement: float
    later: float
    positions: int

    def __post_init__(self):
        if not (0 <= self.agreement <= 1 and 0 <= self.later <= 1):
            raise ValueError(
                "agreement and later must be shares from 0 to 1, got "
                f"{self.agreement} and {self.later}"
            )
        if self.positions < 1:
            raise ValueError(f"positions must be 1 or more, got {self.positions}")


@dataclass(frozen=True)
class Since:
    """What happened since the last choice.

    Attributes:
        tokens: of text.
        expected: first-token agreement that the chosen draft was thought to have.
        rounds: that drafted, and `kept`, those whose first token was right.
        step_ratio: seconds of a plain step now over those at the last choice.
    """

    tokens: int
    expected: float
    rounds: int
    kept: int
    step_ratio: float


class When(Protocol):
    """A rule for when to choose again; `scores` if drafts are then scored anew."""

    scores: bool

    def due(self, since: Since) -> bool: ...


@dataclass(frozen=True)
class EveryTokens:
    """By interval, as KnapSpec does."""

    interval: int = INTERVAL
    scores: bool = True

    def __post_init__(self):
        if self.interval < 1:
            raise ValueError(f"interval must be 1 token or more, got {self.interval}")

    def due(self, since: Since) -> bool:
        return since.tokens >= self.interval


@dataclass(frozen=True)
class OnCost:
    """By context: when a plain step costs `share` more than at the last choice.

    Only costs are looked at anew: a longer context makes attention dearer and leaves
    acceptance about as it is.
    """

    share: float = 0.02
    scores: bool = False

    def __post_init__(self):
        if not 0 < self.share < math.inf:
            raise ValueError(f"share must be above 0, got {self.share}")

    def due(self, since: Since) -> bool:
        return since.step_ratio >= 1 + self.share


@dataclass(frozen=True)
class OnDrift:
    """When the draft is right less often than was expected, by so many deviations.

    Args:
        deviations: of the binomial under the expected agreement.
        fewest: rounds before which nothing is said.
    """

    deviations: float = 2.0
    fewest: int = 8
    scores: bool = True

    def due(self, since: Since) -> bool:
        if since.rounds < max(1, self.fewest):
            return False
        spread = math.sqrt(since.expected * (1 - since.expected) / since.rounds)
        return since.kept / since.rounds < since.expected - self.deviations * spread


DEFAULT: tuple[When, ...] = (EveryTokens(), OnCost(), OnDrift())


class OnlinePolicy:
    """A DraftPolicy that chooses its draft again while it decodes.

    Args:
        pool: drafts of the target, scored beforehand.
        profile: measured costs of the model.
        when: rules, any of which makes it choose again; none keeps the first choice.
        recent: rows of text that a draft is scored on.
        tries: drafts scored a time, those that promise most.
        budget: share of plain decoding's time that scoring may take; what does not fit
            is put off. Infinity: no bound.
        limit: longest draft.
        may_decline: draft nothing where the lower bound of S does not exceed 1; if not,
            the draft that promises most always drafts.
        context: tokens in the cache when decoding begins; default, the profile's.

    Raises:
        ValueError: no pool, or a value out of range.
        TypeError: a draft whose cost the profile cannot tell.
    """

    def __init__(
        self,
        pool: Sequence[Known],
        profile: CostProfile,
        *,
        when: Sequence[When] = DEFAULT,
        recent: int = RECENT,
        tries: int = TRIES,
        budget: float = BUDGET,
        limit: int = LIMIT,
        may_decline: bool = True,
        context: int | None = None,
    ):
        if not pool or len({known.draft for known in pool}) != len(pool):
            raise ValueError("the pool must hold drafts, each of them once")
        if recent < 1 or tries < 1 or limit < 1 or not budget > 0:
            raise ValueError(
                "recent, tries and limit must be 1 or more and budget above 0, got "
                f"{recent}, {tries}, {limit} and {budget}"
            )
        self.pool, self.profile, self.when = tuple(pool), profile, tuple(when)
        self.recent, self.tries, self.budget = recent, tries, budget
        self.limit, self.may_decline = limit, may_decline
        self.seen = {known.draft: _Seen(known) for known in pool}
        self.selections = 0  # choices after the first
        self.passes = 0  # drafts scored
        self.seconds = 0.0  # choosing again took
        self._spent_before = self._last_scoring = 0.0
        self._target: Target | None = None
        self._tokens: list[int] = []
        self._chosen_at = 0
        self._prompt = 0
        self._rounds = self._kept = 0
        self._expected = 0.0
        self._asked: Any = None
        self._context = profile.context if context is None else context
        self._choose_best()

    # What the loop calls

    def begin(self, target: Target, tokens: list[int]) -> None:
        """The prompt is read; `tokens` is the text, which grows.

        Raises:
            UnsupportedModelError: caches that cannot be read while decoding.
        """
        _check(target)
        self._target, self._tokens = target, tokens
        self._prompt = self._chosen_at = len(tokens)
        self._spent_before = self.seconds  # on other texts
        self._context = target.base + len(tokens)
        self._choose_best()

    def choose(self) -> Choice:
        """Choose anew if it is time to, then answer with the draft and its length."""
        if self._target is not None:
            started = time.perf_counter()
            due = [rule for rule in self.when if rule.due(self._since())]
            if due:
                self._select(scoring=any(rule.scores for rule in due))
            self.seconds += time.perf_counter() - started
        self._asked = self.plan.draft
        return Choice(self.plan.draft, self.plan.num_draft_tokens)

    def record(self, finished: Round) -> None:
        """Learn from a round what the present draft is worth."""
        if not finished.drafted:
            return
        self._rounds += 1
        self._kept += finished.accepted > 0
        seen = self.seen[self._asked]
        seen.first.add(kept=finished.accepted > 0)
        later = max(0, finished.accepted - 1)
        reached = min(finished.accepted, finished.drafted - 1)
        seen.later.add(kept=later, tried=reached)

    # Choosing

    def _since(self) -> Since:
        now = self.profile.step(self._target.base + len(self._tokens))
        return Since(
            tokens=len(self._tokens) - self._chosen_at,
            expected=self._expected,
            rounds=self._rounds,
            kept=self._kept,
            step_ratio=now / self.profile.step(self._context),
        )

    def _select(self, *, scoring: bool) -> None:
        rows = min(self.recent, len(self._tokens) - self._prompt)
        if scoring and rows > 0 and self._affordable():
            started = time.perf_counter()
            self._score(rows)
            self._last_scoring = time.perf_counter() - started
        passed = len(self._tokens) - self._chosen_at
        for seen in self.seen.values():
            seen.fade(0.5 ** (passed / MEMORY))
        self._context = self._target.base + len(self._tokens)
        self._chosen_at = len(self._tokens)
        self.selections += 1
        self._choose_best()

    def _affordable(self) -> bool:
        """Whether another scoring stays within its share of plain decoding's time."""
        step = self.profile.step(self._context)
        expected = self._last_scoring
        if not expected:  # a pass costs about what a verification of its rows does
            expected = self.tries * step * self.profile.verify_ratio(self.recent)
        written = len(self._tokens) - self._prompt
        spent = self.seconds - self._spent_before
        return spent + expected <= self.budget * step * written

    def _score(self, rows: int) -> None:
        """One pass over the last rows for each of the drafts that promise most."""
        text = RecentText(self._target, self._tokens, rows)
        plans = sorted(self._plans(), key=lambda p: -p.speedup)
        for promising in plans[: self.tries]:
            agreed = agreed_rows(text, promising.draft)
            seen = self.seen[promising.draft]
            seen.first.add(kept=int(agreed.sum().item()), tried=rows)
            self.passes += 1

    def _plans(self) -> list[Plan]:
        return [
            plan(
                draft,
                (seen.first.share, seen.later.share),
                (seen.first.count, seen.later.count),
                self.profile,
                context=self._context,
                limit=self.limit,
            )
            for draft, seen in self.seen.items()
        ]

    def _choose_best(self) -> None:
        plans = self._plans()
        if self.may_decline:
            self.plan = max([DECLINE, *plans], key=lambda p: p.low)
        else:
            self.plan = max(plans, key=lambda p: p.speedup)
        self._rounds = self._kept = 0
        chosen = self.plan.draft
        self._expected = 0.0 if chosen is None else self.seen[chosen].first.share


class RecentText(TargetText):
    """The last rows of the text that is being decoded, on the caches that decode it.

    Args:
        target: model and caches; they hold all tokens but the last, or more.
        tokens: the text so far.
        rows: how many of its last tokens are looked at.
    """

    def __init__(self, target: Target, tokens: Sequence[int], rows: int):
        self.stack = target.stack or find_stack(target.model)
        read = len(tokens) - 1
        self.first = target.base + read - rows
        self.past = [
            (
                entry.keys[..., : target.base + read, :],
                entry.values[..., : target.base + read, :],
                entry.window if isinstance(entry, WindowCache) else None,
            )
            for entry in target.caches.entries
        ]
        self.ids = mx.array([tokens[read - rows : read]])
        self.target = mx.array(tokens[read - rows + 1 :])


class _Count:
    """How often something was right: what was known before, and what was seen since."""

    def __init__(self, share: float, weight: float):
        self.prior, self.weight = share, weight
        self.kept = self.tried = 0.0

    def add(self, kept: float, tried: float = 1) -> None:
        self.kept += kept
        self.tried += tried

    def fade(self, share: float) -> None:
        self.kept *= share
        self.tried *= share

    @property
    def share(self) -> float:
        known = self.weight * self.prior
        return min(1.0, (known + self.kept) / (self.weight + self.tried))

    @property
    def count(self) -> int:
        """Positions that the share is known from, in whole ones."""
        return max(1, round(self.weight + self.tried))


class _Seen:
    """First and later tokens of one draft."""

    def __init__(self, known: Known):
        weight = min(WEIGHT, known.positions)
        self.first = _Count(known.agreement, weight)
        self.later = _Count(known.later, weight)

    def fade(self, share: float) -> None:
        self.first.fade(share)
        self.later.fade(share)


def _check(target: Target) -> None:
    """Refuse models and caches whose rows cannot be read again."""
    self_test.check(target.model)
    strange = {
        type(entry).__name__
        for entry in target.caches.entries
        if not isinstance(entry, KVCache)
    }
    if strange or target.caches.kv_bits:
        kinds = "/".join(sorted(strange)) or "KVCache, to be quantised"
        raise UnsupportedModelError(
            f"{name_of(target.model)}: its cache {kinds} cannot be read again while "
            'decoding, so no draft can be scored. Way out: window_cache="full", no '
            "kv_bits, or a draft chosen beforehand"
        )
