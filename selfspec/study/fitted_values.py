"""Numbers of a run with a fitted exit that prose may quote, by key.

of_fitted(record.facts, record.rows, record.table)["fitted_speedup"]
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.study import fitted_summary
from selfspec.study.fitted_summary import GOAL_LOW

FITTED_FIELDS = (
    "exit_layer layers bridge_kind bridge_millions bridge_megabytes bridge_date"
    " training_tokens tokens_seen writing_minutes training_minutes"
    " held_out_percent held_out_start_percent first_position_percent"
    " break_even_percent needed_percent goal goal_low reached"
    " fitted_speedup fitted_low fitted_high fitted_tokens fitted_predicted"
    " fitted_acceptance_percent calm_speedup calm_low calm_high calm_prompts"
    " rule_speedup rule_low rule_high unfitted_speedup unfitted_acceptance_percent"
    " knapsack_speedup head_speedup lookup_speedup memory_ratio"
    " more_tokens_words both_speedup both_low both_high"
).split()
_KINDS = {
    "unfitted": "exit",
    "knapsack": "knapsack",
    "head": "shortlist",
    "lookup": "lookup",
}


def of_fitted(
    facts: Mapping[str, Any], rows: pd.DataFrame, table: pd.DataFrame
) -> dict[str, Any]:
    """FITTED_FIELDS of one run; None where it has nothing to say."""
    found: dict[str, Any] = dict.fromkeys(FITTED_FIELDS)
    if "bridge" not in facts:
        return found
    card, needs, memory = facts["bridge"], facts["needs"], facts["memory"]
    curve = fitted_summary.curve(facts)
    line = fitted_summary.best(table)
    calm = fitted_summary.without_loops(rows, line)
    found |= {
        "exit_layer": card["exit_layer"],
        "layers": facts["model"].get("num_layers"),
        "bridge_kind": card["kind"],
        "bridge_millions": card["num_parameters"] / 1e6,
        "bridge_megabytes": card["bytes"] / 1e6,
        "bridge_date": card["date"][:10],
        "training_tokens": card["data"]["tokens"],
        "tokens_seen": int(curve["tokens"].max()),
        "writing_minutes": card["data"]["writing_seconds"] / 60,
        "training_minutes": curve["minutes"].max(),
        "held_out_percent": 100 * curve["agreed"].max(),
        "held_out_start_percent": 100 * curve["agreed"].iloc[0],
        "first_position_percent": 100 * card["acceptance"][0]
        if card["acceptance"]
        else None,
        "break_even_percent": _percent(needs["break_even"]),
        "needed_percent": _percent(needs["needed"]),
        "goal": needs["goal"],
        "goal_low": GOAL_LOW,
        "reached": "reached" if calm.low > GOAL_LOW else "not reached",
        "fitted_speedup": line["speedup"],
        "fitted_low": line["low"],
        "fitted_high": line["high"],
        "fitted_tokens": int(line["num_draft_tokens"]),
        "fitted_predicted": line["predicted_speedup"],
        "fitted_acceptance_percent": 100 * line["acceptance_rate"],
        "calm_speedup": calm.value,
        "calm_low": calm.low,
        "calm_high": calm.high,
        "more_tokens_words": fitted_summary.needed_in_words(
            fitted_summary.tokens_needed(facts)
        ),
        "memory_ratio": memory["fitted"] / memory["plain"],
    }
    for ruled in fitted_summary.ruled(table).to_dict("records"):
        found |= {f"rule_{name}": ruled[name] for name in ("speedup", "low", "high")}
    others = fitted_summary.beside(table).set_index("draft")
    both = others[others.index.str.startswith("fitted")]
    for line in both.to_dict("records")[:1]:
        found |= {f"both_{name}": line[name] for name in ("speedup", "low", "high")}
    for name, word in _KINDS.items():
        lines = others[others.index.str.startswith(word)]
        if len(lines):
            found[f"{name}_speedup"] = lines["speedup"].max()
    exits = others[others.index.str.startswith("exit")]
    if len(exits):
        found["unfitted_acceptance_percent"] = 100 * exits["acceptance_rate"].iloc[0]
    return found


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
