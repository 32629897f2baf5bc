"""Predictions that miss by more than a tenth, each with what explains it.

The identity is exact, so a miss has to come from what was put into it or from noise.
Both costs were also timed directly, so their part in a miss can be computed: of a round
that costs c*D + v + o, the share that is drafting, times the error of c, and likewise v.

    explained = explain(table, run.rows, run.provenance)      # one line a miss
    say(sentence(explained, table))
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.costs.profile import CostProfile
from selfspec.study.draft_summary import prediction_error
from selfspec.study.machine_page import check_error, verify_curves
from selfspec.study.row_table import read_rounds

BOUND = 0.10
FEW_ROUNDS = 60  # timed rounds of a configuration, over all prompts
NOISE = "within the interval of the measurement"
UNEXPLAINED = "none of these"


def explain(
    table: pd.DataFrame, rows: pd.DataFrame, facts: Mapping[str, Any]
) -> pd.DataFrame:
    """One line a configuration whose predicted speedup misses by more than BOUND.

    Columns: draft, num_draft_tokens, predicted, measured, error (signed, relative),
    from_cost and from_verify (the part of it that the directly timed c and v explain,
    NaN where they were not timed), rounds (timed, over all prompts), cut (texts whose
    last round drafted or emitted less than its length), because.

    Args:
        table: of draft_summary.summarise.
        rows: the run's rows.
        facts: the run's provenance.
    """
    missed = table[prediction_error(table) > BOUND]
    lines = []
    for line in missed.to_dict("records"):
        own = rows[
            (rows["draft"] == line["draft"])
            & (rows["num_draft_tokens"] == line["num_draft_tokens"])
        ]
        error = line["predicted_speedup"] / line["speedup"] - 1
        parts = _parts(line, own, facts)
        found = {
            "draft": line["draft"],
            "num_draft_tokens": line["num_draft_tokens"],
            "predicted": line["predicted_speedup"],
            "measured": line["speedup"],
            "error": error,
            **parts,
            **_rounds(own, line["num_draft_tokens"]),
        }
        lines.append({**found, "because": _because(line, found)})
    return pd.DataFrame(lines)


def readable(explained: pd.DataFrame) -> pd.DataFrame:
    """The same for a page."""
    lines = explained.to_dict("records")
    return pd.DataFrame(
        {
            "draft": explained["draft"],
            "draft tokens": explained["num_draft_tokens"],
            "predicted S": [f"{line['predicted']:.2f}" for line in lines],
            "measured S": [f"{line['measured']:.2f}" for line in lines],
            "error": [_signed(line["error"]) for line in lines],
            "from c": [_signed(line["from_cost"]) for line in lines],
            "from v": [_signed(line["from_verify"]) for line in lines],
            "timed rounds": explained["rounds"],
            "last rounds cut short": explained["cut"],
            "explained by": explained["because"],
        }
    )


def sentence(explained: pd.DataFrame, table: pd.DataFrame) -> str:
    """How many miss, and how many of these nothing here explains."""
    if explained.empty:
        return (
            f"None of the {len(table)} configurations misses by more than {BOUND:.0%}."
        )
    open_ones = explained[explained["because"] == UNEXPLAINED]
    text = f"{len(explained)} of {len(table)} configurations miss by more than {BOUND:.0%}."
    if open_ones.empty:
        return f"{text} Each has an explanation in the last column."
    names = ", ".join(
        f"{line['draft']} with {line['num_draft_tokens']}"
        for line in open_ones.to_dict("records")
    )
    return f"{text} What was measured does not explain {len(open_ones)}: {names}."


def _parts(line, own: pd.DataFrame, facts: Mapping[str, Any]) -> dict[str, float]:
    """What the errors of c and of v do to the predicted speedup, relative and signed."""
    drafting, passing = _shares(own)
    checks = {check["label"]: check_error(check) for check in facts.get("checks", [])}
    cost = checks.get(line["draft"], float("nan"))
    verify = _verify_error(line["num_draft_tokens"] + 1, facts)
    return {
        "from_cost": drafting * (1 / (1 + cost) - 1),
        "from_verify": passing * (1 / (1 + verify) - 1),
    }


def _shares(own: pd.DataFrame) -> tuple[float, float]:
    """Shares of a mean round that are drafting and verification, as predicted."""
    drafting = passing = rest = 0.0
    for row in own.to_dict("records"):
        for drafted, _ in read_rounds(row["drafted_accepted_per_round"])[1:]:
            drafting += drafted * row["cost_ratio"]
            passing += row["verify_ratio"]
            rest += row["overhead_ratio"]
    whole = drafting + passing + rest
    return (drafting / whole, passing / whole) if whole else (0.0, 0.0)


def _verify_error(width: int, facts: Mapping[str, Any]) -> float:
    """The profile's v(width) beside the one timed on its own; NaN if it was not."""
    if "verify_curves" not in facts:
        return float("nan")
    timed = verify_curves(facts).get(facts["chosen_threads"], {})
    if width not in timed:
        return float("nan")
    profile = CostProfile.from_json(facts["profile"])
    return profile.verify_ratio(width, facts["check_context"]) / timed[width] - 1


def _rounds(own: pd.DataFrame, length: int) -> dict[str, int]:
    """Timed rounds, and texts whose last round is shorter than the others."""
    timed = cut = 0
    for row in own.to_dict("records"):
        rounds = read_rounds(row["drafted_accepted_per_round"])
        timed += len(rounds[1:])
        if len(rounds) > 1:
            emitted = sum(1 + accepted for _, accepted in rounds[1:])
            cut += rounds[-1][0] < length or emitted > row["decode_tokens"]
    return {"rounds": timed, "cut": int(cut)}


def _because(line, found: Mapping[str, Any]) -> str:
    """The first of these that accounts for at least half of the miss."""
    causes = {"c": found["from_cost"], "v": found["from_verify"]}
    causes = {name: part for name, part in causes.items() if not pd.isna(part)}
    for name, part in causes.items():
        if part / found["error"] >= 0.5:
            return f"the profile's {name}"
    if causes and sum(causes.values()) / found["error"] >= 0.5:
        return "the profile's c and v together"
    if line["low"] <= line["predicted_speedup"] <= line["high"]:
        return NOISE
    if found["rounds"] < FEW_ROUNDS:
        return f"few timed rounds ({found['rounds']})"
    return UNEXPLAINED


def _signed(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:+.0%}"
