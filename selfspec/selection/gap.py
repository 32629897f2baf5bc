"""How far a choice lies from the optimum, and which step of choosing lost it.

All in predicted S without overhead, on held-out windows unless said, telescoping:

    optimum - measured  =  in_sample + proxy + search + overhead + cost_model

    in_sample   best on held-out windows, less best on the calibration windows
    proxy       best on the calibration windows, less best by the proxy
    search      best by the proxy, less what the selector found
    overhead    the choice without the rest of a round, less with it
    cost_model  the choice predicted, less measured

"Best" is over the drafts that were scored by anyone: exhaustive on small models. A part
may be negative, where luck went the other way; the sum is exact. Pure arithmetic.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Gap:
    """The parts, in units of S; their sum is optimum less measured."""

    in_sample: float
    proxy: float
    search: float
    overhead: float
    cost_model: float

    @property
    def total(self) -> float:
        return math.fsum(getattr(self, part.name) for part in fields(self))


def split(
    chosen: Hashable,
    *,
    held_out: Mapping[Hashable, float],
    calibration: Mapping[Hashable, float],
    proxy: Mapping[Hashable, float],
    with_overhead: float,
    measured: float,
) -> Gap:
    """Split the regret of one choice.

    Args:
        chosen: the selector's draft.
        held_out: predicted S of every draft by held-out agreement, without overhead.
        calibration: the same by the agreement that the selectors saw.
        proxy: what the selector maximised, of every draft, in any unit.
        with_overhead: predicted S of the choice, the rest of a round included.
        measured: S of the choice as timed.

    Raises:
        ValueError: the tables hold different drafts, or the choice is in none.
    """
    if not (set(held_out) == set(calibration) == set(proxy)) or chosen not in held_out:
        raise ValueError("the three tables must hold the same drafts, and the choice")
    best = {
        name: max(table, key=table.get)
        for name, table in (
            ("held_out", held_out),
            ("calibration", calibration),
            ("proxy", proxy),
        )
    }
    at = held_out.get
    return Gap(
        in_sample=at(best["held_out"]) - at(best["calibration"]),
        proxy=at(best["calibration"]) - at(best["proxy"]),
        search=at(best["proxy"]) - at(chosen),
        overhead=at(chosen) - with_overhead,
        cost_model=with_overhead - measured,
    )
