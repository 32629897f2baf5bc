"""Numbers of a layerskip run, and of the trained arms, that prose may quote, by key.

of_layerskip(record.facts, record.rows, record.table)["best_exit_speedup"]
of_arms(arms_table.load(root))["arms.lead_least_points"]        # None: not trained yet
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.study import arms_table, layerskip_summary
from selfspec.study.arms_table import BASELINE, TAUGHT, Arms
from selfspec.study.layerskip_words import DYNAMIC, KNAPSACK, SMALL_MODEL

EXIT_FIELDS = (
    "layers best_exit_layer best_exit_tokens best_exit_speedup best_exit_low"
    " best_exit_high best_exit_predicted best_exit_acceptance_percent"
    " best_exit_tokens_per_round"
).split()
COUNT_FIELDS = (
    "counted_texts counted_cases counted_ties counted_best_evaluations"
    " counted_best_speedup counted_best_layer counted_best_tokens"
).split()
BESIDE_FIELDS = (
    "reuse_least reuse_least_low reuse_most reuse_cases reuse_slower"
    " sampled_speedup sampled_low sampled_high sampled_acceptance_percent"
    " rule_speedup rule_low rule_high dynamic_speedup dynamic_low dynamic_high"
    " small_speedup small_low small_high small_cost_ratio small_memory_ratio"
    " exit_memory_ratio knapsack_speedup knapsack_prefix_layers knapsack_blocks_after"
    " dispatch_percent depth_mean alone_speedup alone_layer alone_percent"
    " half_agreement_percent half_exact_percent last_exact_percent"
).split()
LAYERSKIP_FIELDS = (*EXIT_FIELDS, *COUNT_FIELDS, *BESIDE_FIELDS)
ARMS_FIELDS = (
    "seeds texts steps exits exits_above lead_least_points lead_most_points"
    " last_layer_points baseline_exact_percent taught_exact_percent"
    " taught_seconds_ratio taught_memory_ratio baseline_half_exact_percent"
    " taught_half_exact_percent date machine"
).split()


def of_layerskip(
    facts: Mapping[str, Any], rows: pd.DataFrame, table: pd.DataFrame
) -> dict[str, Any]:
    """LAYERSKIP_FIELDS of one run; None where it has nothing to say."""
    found: dict[str, Any] = dict.fromkeys(LAYERSKIP_FIELDS)
    if "counts" not in facts:
        return found
    best = layerskip_summary.best(table)
    found |= {
        "layers": facts["subject"]["layers"],
        "best_exit_layer": int(best["exit_layer"]),
        "best_exit_tokens": int(best["num_draft_tokens"]),
        "best_exit_speedup": best["speedup"],
        "best_exit_low": best["low"],
        "best_exit_high": best["high"],
        "best_exit_predicted": best["predicted_speedup"],
        "best_exit_acceptance_percent": 100 * best["acceptance_rate"],
        "best_exit_tokens_per_round": best["tokens_per_round"],
    }
    return found | _counted(facts) | _beside(facts, rows, table) | _exits(facts)


def _counted(facts: Mapping[str, Any]) -> dict[str, Any]:
    lines = layerskip_summary.counted(facts)
    plain = lines[lines["draft"].map(layerskip_summary.exit_layer).notna()]
    best = plain.loc[plain["evaluations"].idxmin()]
    return {
        "counted_texts": int(lines["texts"].min()),
        "counted_cases": len(lines) - 1,
        "counted_ties": int(lines["ties"].sum()),
        "counted_best_evaluations": best["evaluations"],
        "counted_best_speedup": best["speedup"],
        "counted_best_layer": layerskip_summary.exit_layer(best["draft"]),
        "counted_best_tokens": int(best["num_draft_tokens"]),
    }


def _beside(facts, rows: pd.DataFrame, table: pd.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = {}
    reuse = layerskip_summary.reuse(rows)
    if len(reuse):
        least = reuse.loc[reuse["ratio"].idxmin()]
        found |= {
            "reuse_least": least["ratio"],
            "reuse_least_low": least["low"],
            "reuse_most": reuse["ratio"].max(),
            "reuse_cases": len(reuse),
            "reuse_slower": int((reuse["verdict"] == "slower").sum()),
        }
    fixed = layerskip_summary.fixed(table)
    kinds = {
        "sampled": layerskip_summary.sampled(table),
        "rule": layerskip_summary.ruled(table),
        "dynamic": fixed[fixed["draft"].str.startswith(DYNAMIC)],
        "small": fixed[fixed["draft"] == SMALL_MODEL],
        "knapsack": fixed[fixed["draft"].str.startswith(KNAPSACK)],
    }
    for name, lines in kinds.items():
        if lines.empty:
            continue
        line = lines.loc[lines["speedup"].idxmax()]
        own = {"speedup": line["speedup"], "low": line["low"], "high": line["high"]}
        own["acceptance_percent"] = 100 * line["acceptance_rate"]
        own["cost_ratio"] = line["cost_ratio"]
        found |= {
            f"{name}_{key}": value
            for key, value in own.items()
            if f"{name}_{key}" in BESIDE_FIELDS
        }
    memory = facts["memory"]
    found["exit_memory_ratio"] = memory["exit"] / memory["plain"]
    if "two models" in memory:
        found["small_memory_ratio"] = memory["two models"] / memory["plain"]
    if knapsack := facts.get("knapsack"):
        found["knapsack_prefix_layers"] = knapsack["kept_prefix"]
        found["knapsack_blocks_after"] = knapsack["kept_after"]
    if dispatch := facts.get("dispatch"):
        found["dispatch_percent"] = 100 * dispatch["share"]
    return found


def _exits(facts: Mapping[str, Any]) -> dict[str, Any]:
    scores = layerskip_summary.scores(facts).set_index("exit_layer")
    half, last = scores.loc[max(1, len(scores) // 2)], scores.iloc[-1]
    answers = bool(facts["subject"]["trained"])
    found = {
        "depth_mean": facts["depths"]["mean"],
        "half_agreement_percent": 100 * half["agreement"],
        "half_exact_percent": 100 * half["exact_match"] if answers else None,
        "last_exact_percent": 100 * last["exact_match"] if answers else None,
    }
    alone = layerskip_summary.alone(facts)
    if len(alone):
        first = alone.iloc[0]
        worth = first["exact_match" if answers else "agreement"]
        found |= {
            "alone_layer": int(first["exit_layer"]),
            "alone_speedup": first["speedup"],
            "alone_percent": 100 * worth,
        }
    return found


def of_arms(arms: Arms | None) -> dict[str, Any]:
    """ARMS_FIELDS behind "arms."; None where nobody has trained them."""
    found: dict[str, Any] = dict.fromkeys(ARMS_FIELDS)
    ahead = arms_table.lead(arms) if arms else pd.DataFrame()
    if arms and len(ahead):
        layers = arms.num_layers
        early = ahead[ahead["exit_layer"] <= layers // 2]
        table = arms_table.by_exit(arms).set_index(["arm", "exit_layer"])
        cost = arms_table.overhead(arms).set_index("arm")
        exact = table["exact_match"]
        found |= {
            "seeds": int(ahead["seeds"].min()),
            "texts": int(arms.exits["texts"].max()),
            "steps": arms.about["steps"],
            "exits": len(early),
            "exits_above": int((early["low"] > 0).sum()),
            "lead_least_points": 100 * early["lead"].min(),
            "lead_most_points": 100 * early["lead"].max(),
            "last_layer_points": 100 * ahead["lead"].iloc[-1],
            "baseline_exact_percent": 100 * exact[BASELINE, layers],
            "taught_exact_percent": 100 * exact[TAUGHT, layers],
            "baseline_half_exact_percent": 100 * exact[BASELINE, layers // 2],
            "taught_half_exact_percent": 100 * exact[TAUGHT, layers // 2],
            "taught_seconds_ratio": cost["seconds"].get(TAUGHT),
            "taught_memory_ratio": cost["memory"].get(TAUGHT),
            "date": arms.about["date"][:10],
            "machine": arms.about["machine"],
        }
    return {f"arms.{key}": value for key, value in found.items()}
