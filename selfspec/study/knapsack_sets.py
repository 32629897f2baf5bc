"""Looking up the sets that a run scored. Facts in, plain dicts out. No MLX.

nearest(facts)["held_out_agreement"]
"""

from collections.abc import Mapping
from typing import Any

WHOLE = 0.995  # c from which on hardly anything is left out


def sets_of(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every scored set that leaves something out, its selector with it."""
    return [
        {"selector": frontier["selector"], **found}
        for frontier in facts["frontiers"]
        for found in frontier["sets"]
        if found["cost_ratio"] < WHOLE
    ]


def nearest(
    facts: Mapping[str, Any], *, head: bool | None = None
) -> dict[str, Any] | None:
    """The set that lies furthest above the diagonal, or least below it.

    Args:
        head: only sets that cut the head down, or only sets that do not.
    """
    return max(
        (
            found
            for found in sets_of(facts)
            if head is None or head == bool(found.get("shortlist"))
        ),
        key=lambda s: s["held_out_agreement"] - s["cost_ratio"],
        default=None,
    )


def mean_regrets(facts: Mapping[str, Any]) -> dict[str, float]:
    """Selector -> mean regret over the small models, in units of S."""
    models = facts["small_models"]
    return {
        name: sum(m["selectors"][name]["regret"] for m in models) / len(models)
        for name in models[0]["selectors"]
    }
