"""What the page of a fitted exit says of one run, in words and tables. No MLX.

sweep_page.say(sentence_on_bridge(run.provenance))
sweep_page.show_table(speed_table(draft_summary.summarise(run.rows)), run_id=run.run_id)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from selfspec.study import fitted_summary, projection
from selfspec.study.fitted_summary import GOAL_LOW
from selfspec.study.layerskip_page import interval, percent, spelt_interval, two
from selfspec.study.reference import Curve

Facts = Mapping[str, Any]


def sentence_on_bridge(facts: Facts) -> str:
    """What was fitted, on what, and what it takes."""
    card, memory = facts["bridge"], facts["memory"]
    data, kinds = card["data"], {"layer": "one layer", "mlp": "one norm and MLP"}
    text = (
        f"The bridge begins after layer {card['exit_layer']} and is "
        f"{kinds[card['kind']]} of the model's own kind, "
        f"{card['num_parameters'] / 1e6:.2f} million weights. It was fitted on "
        f"{data['tokens']} tokens that the model wrote in "
        f"{data['writing_seconds'] / 60:.0f} minutes, in "
        f"{data['training_seconds'] / 60:.0f} minutes more. The file has "
        f"{card['bytes'] / 1e6:.1f} MB; while drafting, memory peaks at "
        f"{memory['fitted'] / memory['plain']:.2f} times that of plain decoding."
    )
    if card["shortlist"]:
        text += f" It drafts from {card['shortlist']} tokens."
    return text


def sentence_on_needs(facts: Facts) -> str:
    """What acceptance the costs of this machine ask for."""
    needs = facts["needs"]
    text = f"A draft step costs {needs['cost_ratio']:.2f} of a plain one here."
    if needs["break_even"] is None:
        return f"{text} At that price no acceptance breaks even."
    text += (
        f" A drafted token must be accepted {needs['break_even']:.0%} of the time to "
        "break even"
    )
    if needs["needed"] is None:
        return f"{text}; no acceptance gives {needs['goal']:g} times the speed."
    return f"{text}, and {needs['needed']:.0%} for {needs['goal']:g} times the speed."


def sentence_on_curve(facts: Facts) -> str:
    """Where the training began, where it ended, and what a longer one might give."""
    curve = fitted_summary.curve(facts)
    first, best = curve.iloc[0], curve.loc[curve["agreed"].idxmax()]
    ahead = fitted_summary.tokens_needed(facts)
    text = (
        f"On held-out text per-token acceptance rose from {first['agreed']:.0%} to "
        f"{best['agreed']:.0%} after {int(best['tokens'])} tokens "
        f"({best['minutes']:.1f} minutes of training)."
    )
    needs = facts["needs"]
    if needs["needed"] is not None and best["agreed"] >= needs["needed"]:
        return f"{text} That is what {needs['goal']:g} times the speed asks for."
    return (
        f"{text} For {needs['goal']:g} times the speed, a straight line through the "
        "later half of the curve, over the logarithm of the tokens, asks for "
        f"{fitted_summary.needed_in_words(ahead)}. Nothing says that the line goes on."
    )


def curve_table(facts: Facts) -> pd.DataFrame:
    """The looks at held-out text, a row each."""
    curve = fitted_summary.curve(facts)
    places = max(map(len, curve["positions"]))
    shown = pd.DataFrame(
        {
            "step": curve["step"],
            "tokens read": curve["tokens"],
            "minutes": curve["minutes"].map("{:.1f}".format),
            "held-out loss": curve["held_out_loss"].map("{:.3f}".format),
            "per-token acceptance": curve["agreed"].map(percent),
        }
    )
    for place in range(places):
        shown[f"position {place + 1}"] = [
            percent(rates[place]) if place < len(rates) else "-"
            for rates in curve["positions"]
        ]
    return shown


def speed_table(table: pd.DataFrame) -> pd.DataFrame:
    """Every case that was timed."""
    return pd.DataFrame(
        {
            "draft": table["draft"],
            "draft tokens": table["num_draft_tokens"],
            "speedup S": table["speedup"].map(two),
            "95 % interval": [interval(line) for line in table.to_dict("records")],
            "predicted S": table["predicted_speedup"].map(two),
            "acceptance rate": table["acceptance_rate"].map(percent),
            "c": table["cost_ratio"].map(two),
            "without loops": table["speedup_without_loops"].map(two),
            "lossless": [
                f"{line['lossless']} of {line['pairs']}"
                for line in table.to_dict("records")
            ],
        }
    )


def sentence_on_speed(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Whether the aim is reached, by the prompts whose text does not loop."""
    line = fitted_summary.best(table)
    calm = fitted_summary.without_loops(rows, line)
    text = (
        f"At its best length, {int(line['num_draft_tokens'])} tokens, "
        f"{line['draft']} gives S = {line['speedup']:.2f}{spelt_interval(line)}. "
    )
    if pd.isna(calm.low):
        return text + "Too few texts without loops are left for an interval."
    word = "above" if calm.low > GOAL_LOW else "not above"
    return text + (
        f"On the {calm.count} prompts whose text does not loop it is "
        f"{calm.value:.2f} ({calm.low:.2f} to {calm.high:.2f}): the lower bound is "
        f"{word} {GOAL_LOW:g}."
    )


def sentence_on_beside(table: pd.DataFrame) -> str:
    """What needs no bridge."""
    parts = [
        f"{line['draft']} {line['speedup']:.2f}{spelt_interval(line)}"
        for line in fitted_summary.beside(table).to_dict("records")
    ]
    text = f"Beside it, each at its better length: {'; '.join(parts)}."
    for line in fitted_summary.ruled(table).to_dict("records"):
        text += (
            f" Under the rule that declines, the fitted exit gives "
            f"{line['speedup']:.2f}{spelt_interval(line)}, with "
            f"{line['plain_share']:.0%} of the tokens left to plain decoding."
        )
    return text


def domain_table(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The fitted exit at its best length, domain by domain."""
    found = fitted_summary.by_domain(rows, fitted_summary.best(table))
    return pd.DataFrame(
        {
            "domain": found["domain"],
            "prompts": found["prompts"],
            "S, median": found["speedup"].map(two),
            "acceptance rate": found["acceptance_rate"].map(percent),
            "texts that loop": found["looping"],
        }
    )


def projection_table(
    rows: pd.DataFrame, facts: Facts, curves: Sequence[Curve]
) -> pd.DataFrame:
    """What a Mac should expect: projected, not measured; best length under each curve."""
    shares = facts["weight_shares"]
    lines = projection.of_rows(rows, shares)
    lines = [n for n in lines if fitted_summary.is_fitted(n["draft"])]
    found = projection.project(lines, curves)
    shown = []
    for curve in curves:
        part = found[found["curve"] == curve.name] if len(found) else found
        part = part[part["weight_cost"].notna()] if len(part) else part
        best = part.loc[part["weight_cost"].idxmax()] if len(part) else None
        shown.append(
            {
                "chip": curve.chip,
                "published curve": f"{curve.what}, {curve.quantisation}",
                "projected S": "-" if best is None else two(best["weight_cost"]),
                "draft tokens": "-"
                if best is None
                else str(int(best["num_draft_tokens"])),
            }
        )
    return pd.DataFrame(shown)


def published_table(published: pd.DataFrame) -> pd.DataFrame:
    """What others report, as they report it.

    Args:
        published: of reference.fitted_exits.
    """
    return pd.DataFrame(
        {
            "method": published["method"],
            "task": published["task"],
            "device": published["device"],
            "added weights": published["adapter_millions"].map("{:g} million".format),
            "speedup": "up to " + published["speedup"].map(two),
            "where": published["source"] + ", " + published["where"],
        }
    )
