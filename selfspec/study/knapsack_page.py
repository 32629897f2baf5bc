"""What the page of the choice of blocks says in words and tables. Needs no MLX.

sweep_page.say(sentence_on_clearing(facts))
sweep_page.show_table(budgets_table(facts))
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.study.draft_summary import prediction_error
from selfspec.study.knapsack_figures import configuration
from selfspec.study.knapsack_sets import mean_regrets, nearest, sets_of

LEVEL = 0.05
DEFAULT_POLICY = "default"  # in the place of an interval
SHARE_BOUND = 0.03  # of the time, what choosing again may take
Facts = Mapping[str, Any]


def selectors_table(facts: Facts) -> pd.DataFrame:
    """What each selector looked at and how long it took."""
    return pd.DataFrame(
        {
            "selector": f["selector"],
            "drafts scored": f["evaluations"],
            "seconds": f"{f['seconds']:.1f}",
            "tokens after which it has paid": _paid(facts, f),
        }
        for f in facts["frontiers"]
    )


def _paid(facts: Facts, frontier: Mapping[str, Any]) -> str:
    """Tokens that its best set must save the selector's own seconds in; or never."""
    step = facts["profile"]["step_seconds"]
    names = [f"({frontier['selector']})"]
    plans = [p for p in facts["plans"] if any(n in p["draft"] for n in names)]
    gains = [p["predicted_held_out"] for p in plans if p["predicted_held_out"] > 1]
    if not gains:
        return "never"
    saved = step * (1 - 1 / max(gains))
    tokens = math.ceil(frontier["seconds"] / saved - 1e-9)
    return str(tokens)


def budgets_table(facts: Facts) -> pd.DataFrame:
    """At each budget the set that calibration chose, against the post's middle."""
    lines = [line for line in facts["budgets"] if line["selector"]]
    return pd.DataFrame(
        {
            "saved at least": f"{line['budget']:.0%}",
            "selector": line["selector"],
            "leaves out": line["draft"],
            "c": f"{line['cost_ratio']:.2f}",
            "agreement": f"{line['held_out']:.0%}",
            "middle: c": f"{line['middle_cost_ratio']:.2f}",
            "middle: agreement": f"{line['middle_held_out']:.0%}",
            "margin, points": _points(line),
            "p (Holm)": _number(line["p_holm"], ".3f"),
        }
        for line in lines
    )


def sentence_on_margins(facts: Facts) -> str:
    """At how many budgets the chosen set beats the middle beyond chance."""
    lines = [line for line in facts["budgets"] if line["selector"]]
    if not lines or not all(_finite(line["p_holm"]) for line in lines):
        return (
            "This run has too few windows for an interval, so no margin is judged. "
            "The size `paper` has enough."
        )
    sure = [line for line in lines if line["low"] > 0 and line["p_holm"] <= LEVEL]
    return (
        f"At {len(sure)} of {len(lines)} budgets the set that the calibration windows "
        "chose agrees more often than the post's middle on windows that nobody chose by, "
        "with an interval that excludes 0 and a Holm-corrected p of at most "
        f"{LEVEL:.0%}."
    )


def sentence_on_clearing(facts: Facts) -> str:
    """Whether any skip set clears its own cost, in one sentence; then with the head cut
    down too."""
    best = nearest(facts, head=False)
    if best is None:
        return "No set that leaves something out was scored."
    gap, where = _gap(best), _where(best)
    if gap <= 0:
        said = f"No skip set clears its own cost: the nearest, {where}."
    else:
        said = (
            f"A skip set clears its own cost if verification were free: {where}, "
            f"{100 * gap:.0f} points above the diagonal."
        )
    with_head = nearest(facts, head=True)
    if with_head is None:
        return said
    return (
        f"{said} With the head cut down as well, {_where(with_head)}, "
        f"{100 * _gap(with_head):+.0f} points from the diagonal."
    )


def _gap(found: Mapping[str, Any]) -> float:
    return found["held_out_agreement"] - found["cost_ratio"]


def _where(found: Mapping[str, Any]) -> str:
    return (
        f"leaving out {found['draft']} agrees on {found['held_out_agreement']:.0%} of "
        f"the held-out tokens at c = {found['cost_ratio']:.2f}"
    )


def sentence_on_optimism(facts: Facts) -> str:
    """How much the windows where a set was sought flatter it."""
    sets = sets_of(facts)
    lost = [s["calibration"] - s["held_out_agreement"] for s in sets]
    return (
        "On the windows where they were sought the sets agree "
        f"{100 * sum(lost) / len(lost):.1f} points more often than on others, on average "
        f"over {len(sets)} sets."
    )


def sentence_on_proxy(facts: Facts) -> str:
    """What cosine similarity is worth as a stand-in for agreement."""
    proxy, rho = facts["proxy"], facts["proxy"]["rank_correlation"]
    if _finite(rho):
        text = (
            f"Over {len(proxy['sets'])} sets the rank correlation of mean cosine with "
            f"agreement is {rho:.2f} ({proxy['rank_correlation_low']:.2f} to "
            f"{proxy['rank_correlation_high']:.2f})."
        )
    else:
        text = "Too few sets were scored for a rank correlation."
    lemma = proxy["lemma"]
    if lemma["tokens"] and _finite(lemma["share"]):
        text += (
            f" The published lemma asks for a cosine of {lemma['median']:.6f} in the "
            f"median token, where the drafts' median is {lemma['typical']:.3f}: it says "
            f"something for {lemma['share']:.1%} of the draft tokens."
        )
    return text


def sentence_on_regret(facts: Facts) -> str:
    """Which selector comes nearest to the optimum where it is known."""
    models, mean = facts["small_models"], mean_regrets(facts)
    ranked = sorted(mean, key=mean.get)
    best, worst = ranked[0], ranked[-1]
    return (
        f"Of {models[0]['sets']} sets each, {best} comes nearest to the optimum "
        f"({mean[best]:.3f} of S below it on average over {len(models)} small models), "
        f"and {worst} stays furthest ({mean[worst]:.3f})."
    )


def sentence_on_online(facts: Facts, interval: int) -> str:
    """What choosing again costs by the default policy, and whether it helps.

    Args:
        interval: of the default policy, in tokens.
    """
    lines = {line["interval"]: line for line in facts["online"]}
    if not lines:
        return "Choosing again while decoding was not tried in this run."
    parts = []
    if DEFAULT_POLICY in lines:
        default = lines[DEFAULT_POLICY]
        parts.append(
            f"The default policy chooses every {interval} tokens, when a step has become "
            "dearer, and when the draft is right less often than expected, within its "
            f"budget. In {default['tokens']} tokens choosing took {default['share']:.1%} "
            f"of the time, {'under' if default['share'] < SHARE_BOUND else 'not under'} "
            f"the bound of {SHARE_BOUND:.0%}."
        )
    best = max(lines.values(), key=lambda line: line["speedup"])
    never = lines.get(0)
    if never is not None:
        what = {0: "never choosing again", DEFAULT_POLICY: "the default"}.get(
            best["interval"], f"every {best['interval']} tokens"
        )
        texts = f"{best['texts']} text" + ("s" if best["texts"] != 1 else "")
        parts.append(
            f"The fastest was {what} (S = {best['speedup']:.2f}; "
            f"never: {never['speedup']:.2f}), from {texts}: one curve, no interval."
        )
    return " ".join(parts)


def plans_table(facts: Facts) -> pd.DataFrame:
    """What was worth timing, what is expected of it, and both acceptance rules."""
    return pd.DataFrame(
        {
            "draft": line["draft"],
            "leaves out": line["leaves_out"],
            "c": f"{line['cost_ratio']:.2f}",
            "agreement": f"{line['calibration']:.0%}",
            "held out": f"{line['held_out']:.0%}",
            "best length": line["num_draft_tokens"],
            "predicted S": f"{line['predicted']:.2f}",
            "lower bound": f"{line['low']:.2f}",
            "held out: S": f"{line['predicted_held_out']:.2f}",
            "sampled, rejection": f"{line['rejection']:.0%}",
            "sampled, match": f"{line['match']:.0%}",
        }
        for line in facts["plans"]
    )


def sentence_on_declining(facts: Facts) -> str:
    """What the objective with its lower bound decides."""
    best = max(facts["plans"], key=lambda line: line["low"])
    if facts["declines"]:
        return (
            f"The best lower bound of S is {best['low']:.2f} ({best['draft']}), not "
            "above 1: chosen by it, nothing is drafted."
        )
    return (
        f"The best lower bound of S is {best['low']:.2f}, of {best['draft']} with "
        f"{best['num_draft_tokens']} draft tokens: it is chosen."
    )


def contexts_table(facts: Facts) -> pd.DataFrame:
    """The chosen drafts after longer texts."""
    return pd.DataFrame(
        {
            "context": line["context"],
            "draft": line["draft"],
            "c": f"{line['cost_ratio']:.2f}",
            "agreement": f"{line['agreement']:.0%}",
            "tokens": line["positions"],
            "predicted S": f"{line['predicted']:.2f}",
        }
        for line in facts.get("contexts", ())
    )


def timed_table(table: pd.DataFrame) -> pd.DataFrame:
    """The timed configurations."""
    return pd.DataFrame(
        {
            "configuration": configuration(line),
            "S": f"{line['speedup']:.2f}",
            "95 % interval": "-"
            if math.isnan(line["low"])
            else f"{line['low']:.2f} to {line['high']:.2f}",
            "verdict": line["verdict"],
            "predicted S": f"{line['predicted_speedup']:.2f}",
            "acceptance rate": _number(line["acceptance_rate"], ".0%"),
            "c": f"{line['cost_ratio']:.2f}",
            "lossless": "sampled"
            if line["temperature"]
            else f"{line['lossless']} of {line['pairs']}",
        }
        for line in table.to_dict("records")
    )


def gap_table(facts: Facts, table: pd.DataFrame) -> pd.DataFrame:
    """What lies between the promise of a set and the clock, in units of S.

    In-sample: the plan on the windows that chose it, less the plan on others. Overhead:
    the identity with the timed rounds but o = 0, less the same with o. Cost model: that,
    less what was measured. Search and proxy need the optimum: see the small models.
    """
    plans = {line["draft"]: line for line in facts["plans"]}
    found = []
    for line in table[table["temperature"] == 0].to_dict("records"):
        plan = plans.get(line["draft"])
        if plan is None:
            continue
        predicted = line["predicted_speedup"]
        cost = line["cost_ratio"] * line["num_draft_tokens"] + line["verify_ratio"]
        free = predicted * (cost + line["overhead_ratio"]) / cost
        found.append(
            {
                "configuration": configuration(line),
                "in-sample": f"{plan['predicted'] - plan['predicted_held_out']:+.3f}",
                "overhead": f"{free - predicted:+.3f}",
                "cost model": f"{predicted - line['speedup']:+.3f}",
            }
        )
    return pd.DataFrame(found)


def sentence_on_timing(table: pd.DataFrame) -> str:
    """The best of them, whichever side of 1 it falls on, and the head alone."""
    best = table.loc[table["speedup"].idxmax()]
    parts = [
        f"The best is {configuration(best)}, at S = {best['speedup']:.2f}{_spelt(best)}: "
        f"{best['verdict']}."
    ]
    heads = table[
        table["draft"].str.startswith("shortlist") & (table["temperature"] == 0)
    ]
    if not heads.empty:
        head = heads.loc[heads["speedup"].idxmax()]
        parts.append(
            f"The best with the head cut down is {configuration(head)}, at S = "
            f"{head['speedup']:.2f}{_spelt(head)}."
        )
    error = prediction_error(table)
    parts.append(
        f"The predictions miss by {error.median():.0%} in the median and by "
        f"{error.max():.0%} at most."
    )
    return " ".join(parts)


def domains_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Acceptance rate of each greedy configuration, by domain of the prompt."""
    greedy = rows[rows["temperature"].fillna(0) == 0]
    found = []
    for (draft, length), group in greedy.groupby(
        ["draft", "num_draft_tokens"], sort=False
    ):
        by_domain = {
            domain: _rate(part) for domain, part in group.groupby("domain", sort=True)
        }
        found.append({"draft": draft, "tokens": length, **by_domain})
    return pd.DataFrame(found)


def _rate(part: pd.DataFrame) -> str:
    drafted = part["drafted"].sum()
    return f"{part['accepted'].sum() / drafted:.0%}" if drafted else "-"


def _spelt(line) -> str:
    if math.isnan(line["low"]):
        return ""
    return f" ({line['low']:.2f} to {line['high']:.2f})"


def _points(line: Mapping[str, Any]) -> str:
    value = f"{100 * line['margin']:+.0f}"
    if not _finite(line["low"]):
        return value
    return f"{value} ({100 * line['low']:+.0f} to {100 * line['high']:+.0f})"


def _number(value: float | None, form: str) -> str:
    return format(value, form) if _finite(value) else "-"


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
