"""Which draft, how many tokens, and whether to draft at all, asked before every round.

`FixedLength` always answers the same; `AutoLength` works from measured costs and the
acceptance it sees, and answers 0 where drafting would lose. Knows costs as plain
numbers in units of one plain decoding step; measures nothing itself.

    AutoLength(draft, cost_ratio=0.75, verify_ratio={2: 1.1, 3: 1.3}, acceptance=0.8)
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from selfspec.decoding.trace import Round


class Choice(NamedTuple):
    """What to do next; `num_draft_tokens` 0 means one plain step."""

    draft: Any
    num_draft_tokens: int


class DraftPolicy(Protocol):
    def choose(self) -> Choice:
        """Asked before every round, and before every plain step."""

    def record(self, finished: Round) -> None:
        """Told of every round that drafted."""


class FixedLength:
    """The same draft and length every time."""

    def __init__(self, draft, num_draft_tokens: int):
        self.choice = Choice(draft, num_draft_tokens)

    def choose(self) -> Choice:
        return self.choice

    def record(self, finished: Round) -> None:
        pass


class AutoLength:
    """The length with the best expected speedup, 0 included.

    With a the chance that a token which verification reaches is kept, k tokens yield

        S(k) = (1 + a + ... + a^k) / (c*k + v(k + 1) + o),   S(0) = 1.

    a is a running estimate: kept over tried, older rounds counting less, started from
    the profiled acceptance. After a stretch of plain decoding one short round probes
    whether a has changed; stretches are as long as it takes for the probes to cost at
    most `probe_budget` of the time.

    Args:
        draft: what drafts.
        cost_ratio: c, one draft step.
        verify_ratio: v, by rows: a mapping, straight between its entries; v(1) is 1.
        acceptance: profiled per-token acceptance, the first estimate of a.
        overhead_ratio: o, the rest of a round.
        max_draft_tokens: longest length considered; default, what verify_ratio covers.
        probe_budget: share of the time that probing may cost.
        memory: how many tried tokens back half of the weight lies.
    """

    PRIOR_TRIED = 8.0  # tried tokens that the profiled acceptance counts for

    def __init__(
        self,
        draft,
        *,
        cost_ratio: float,
        verify_ratio: Mapping[int, float],
        acceptance: float = 0.7,
        overhead_ratio: float = 0.0,
        max_draft_tokens: int | None = None,
        probe_budget: float = 0.01,
        memory: float = 64.0,
    ):
        if not 0 <= acceptance <= 1:
            raise ValueError(f"acceptance must be from 0 to 1, got {acceptance}")
        if not isinstance(verify_ratio, Mapping):
            raise ValueError(f"verify_ratio must be a mapping, got {verify_ratio!r}")
        if not 0 < probe_budget < 1 or not memory > 0:
            raise ValueError(
                "probe_budget must be from 0 to 1 and memory above 0, got "
                f"{probe_budget} and {memory}"
            )
        self.draft = draft
        self.cost_ratio = cost_ratio
        self.overhead_ratio = overhead_ratio
        self.verify = {1: 1.0, **{int(m): v for m, v in verify_ratio.items()}}
        self.max_draft_tokens = max_draft_tokens or max(1, max(self.verify) - 1)
        if self.max_draft_tokens < 1:
            raise ValueError(f"max_draft_tokens must be 1 or more: {max_draft_tokens}")
        costs = [cost_ratio, overhead_ratio, *self.verify.values()]
        costs += [self._round_cost(k) for k in range(1, self.max_draft_tokens + 1)]
        if not (verify_ratio and all(map(math.isfinite, costs))) or (
            cost_ratio < 0 or min(costs[2:]) <= 0
        ):
            raise ValueError(
                "cost_ratio, verify_ratio and overhead_ratio must be measured: finite, "
                "and a round of every length must cost something"
            )
        self.forget = 0.5 ** (1 / memory)
        self.tried = self.PRIOR_TRIED
        self.kept = acceptance * self.tried
        loss = max(0.0, self._round_cost(1) - 1)  # a probe whose token is rejected
        self.probe_interval = max(1, math.ceil(loss / probe_budget))
        self.plain_steps = 0

    @property
    def acceptance(self) -> float:
        return self.kept / self.tried

    def choose(self) -> Choice:
        best = max(range(self.max_draft_tokens + 1), key=self.expected_speedup)
        if best == 0:
            self.plain_steps += 1
            if self.plain_steps > self.probe_interval:
                best = 1
        if best:
            self.plain_steps = 0
        return Choice(self.draft, best)

    def record(self, finished: Round) -> None:
        tried = finished.accepted + (finished.accepted < finished.drafted)
        fade = self.forget**tried
        self.tried = self.tried * fade + tried
        self.kept = self.kept * fade + finished.accepted

    def expected_speedup(self, num_draft_tokens: int) -> float:
        """S(k) at the present estimate of the acceptance."""
        if num_draft_tokens == 0:
            return 1.0
        tokens = sum(self.acceptance**i for i in range(num_draft_tokens + 1))
        return tokens / self._round_cost(num_draft_tokens)

    def _round_cost(self, num_draft_tokens: int) -> float:
        rows = num_draft_tokens + 1
        return (
            self.cost_ratio * num_draft_tokens
            + self._verify_ratio(rows)
            + self.overhead_ratio
        )

    def _verify_ratio(self, rows: int) -> float:
        """v(rows); straight lines between measured widths, and past the last."""
        if rows in self.verify:
            return self.verify[rows]
        known = sorted(self.verify)
        after = next((m for m in known if m > rows), known[-1])
        before = known[max(0, known.index(after) - 1)]
        if before == after:
            return self.verify[after] * rows / after
        slope = (self.verify[after] - self.verify[before]) / (after - before)
        return self.verify[before] + slope * (rows - before)
