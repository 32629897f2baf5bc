"""What a selector returns: drafts over all budgets, each with what it costs and scores.

A budget is a share of what could be saved at all: at budget 0.3, three tenths of the
seconds of all items are left out. Pure: no model, no clock.

    frontier.best_under(0.7)             # best agreement among drafts with c <= 0.7
    frontier.pareto()                    # no cheaper draft agrees as often
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One draft with its score on the windows that it was selected on.

    Attributes:
        draft: what it leaves out.
        cost_ratio: c, predicted from the profile.
        saved: microseconds a draft step less than a plain one, by the items.
        agreement: first-token agreement on the selector's windows, 0 to 1.
    """

    draft: Any
    cost_ratio: float
    saved: int
    agreement: float


@dataclass(frozen=True)
class Frontier:
    """Candidates of one selector.

    Attributes:
        selector: its name.
        candidates: dearest first.
        seconds: that selecting took.
        evaluations: drafts that were scored for it.
    """

    selector: str
    candidates: tuple[Candidate, ...]
    seconds: float
    evaluations: int

    def best_under(self, cost_ratio: float) -> Candidate | None:
        """The best agreement among candidates that cost no more; None if there are none.

        Of equals the cheaper.
        """
        fitting = [c for c in self.candidates if c.cost_ratio <= cost_ratio]
        return max(fitting, key=lambda c: (c.agreement, -c.cost_ratio), default=None)

    def pareto(self) -> tuple[Candidate, ...]:
        """Candidates that no other beats in cost and in agreement, dearest first."""
        kept: list[Candidate] = []
        for candidate in sorted(
            self.candidates, key=lambda c: (c.cost_ratio, -c.agreement)
        ):
            if not kept or candidate.agreement > kept[-1].agreement:
                kept.append(candidate)
        return tuple(reversed(kept))


def dearest_first(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Each draft once, in the order of a frontier."""
    once = {candidate.draft: candidate for candidate in candidates}
    return tuple(sorted(once.values(), key=lambda c: (-c.cost_ratio, -c.agreement)))
