"""What a run of the experiment "knapsack" says, by key, for prose. Needs no MLX.

of_knapsack(record.facts, record.table)["sure_budgets"]
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.study.knapsack_figures import configuration
from selfspec.study.knapsack_page import DEFAULT_POLICY, LEVEL
from selfspec.study.knapsack_sets import mean_regrets, nearest, sets_of

KNAPSACK_FIELDS = (
    "sets_scored selectors budgets sure_budgets nearest_selector nearest_c"
    " nearest_agreement_percent points_above optimism_points rank_correlation"
    " rank_correlation_low rank_correlation_high lemma_percent best_regret_selector"
    " best_regret middle_regret online_share_percent head_draft head_speedup head_low"
    " head_high head_nearest head_nearest_c head_nearest_agreement_percent"
    " choosing_positions calibration_positions evaluation_positions"
).split()


def of_knapsack(facts: Mapping[str, Any], table: pd.DataFrame) -> dict[str, Any]:
    """KNAPSACK_FIELDS of one run; None where it has no such figure."""
    found: dict[str, Any] = dict.fromkeys(KNAPSACK_FIELDS)
    sets, budgets = sets_of(facts), facts["budgets"]
    known = [line for line in budgets if line.get("p_holm") is not None]
    best, with_head = nearest(facts, head=False), nearest(facts, head=True)
    found |= {
        "sets_scored": len(facts["proxy"]["sets"]),
        "selectors": len(facts["frontiers"]),
        "budgets": len(budgets),
        "calibration_positions": facts["windows"]["calibration"]["positions"],
        "choosing_positions": facts["windows"]["choosing"]["positions"],
        "evaluation_positions": facts["windows"]["evaluation"]["positions"],
    }
    if known:
        found["sure_budgets"] = sum(
            line["low"] > 0 and line["p_holm"] <= LEVEL for line in known
        )
    if best is not None:
        gap = best["held_out_agreement"] - best["cost_ratio"]
        found |= {
            "nearest_selector": best["selector"],
            "nearest_c": best["cost_ratio"],
            "nearest_agreement_percent": 100 * best["held_out_agreement"],
            "points_above": 100 * gap,
        }
    if with_head is not None:
        found |= {
            "head_nearest": with_head["draft"],
            "head_nearest_c": with_head["cost_ratio"],
            "head_nearest_agreement_percent": 100 * with_head["held_out_agreement"],
        }
    if sets:
        lost = [s["calibration"] - s["held_out_agreement"] for s in sets]
        found["optimism_points"] = 100 * sum(lost) / len(lost)
    for name in ("rank_correlation", "rank_correlation_low", "rank_correlation_high"):
        found[name] = facts["proxy"][name]
    share = facts["proxy"]["lemma"]["share"]
    found["lemma_percent"] = None if share is None else 100 * share
    if facts["small_models"]:
        mean = mean_regrets(facts)
        found["best_regret_selector"] = min(mean, key=mean.get)
        found["best_regret"] = min(mean.values())
        found["middle_regret"] = mean.get("middle")
    for line in facts["online"]:
        if line["interval"] == DEFAULT_POLICY:
            found["online_share_percent"] = 100 * line["share"]
    heads = table[
        table["draft"].str.startswith("shortlist") & (table["temperature"] == 0)
    ]
    if not heads.empty:
        head = heads.loc[heads["speedup"].idxmax()]
        found |= {
            "head_draft": configuration(head),
            "head_speedup": head["speedup"],
            "head_low": head["low"],
            "head_high": head["high"],
        }
    return found
