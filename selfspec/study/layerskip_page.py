"""What the page of drafts that leave early says of one run, in words and tables. No MLX.

say(sentence_on_layers(run.provenance))
show_table(speed_table(draft_summary.summarise(run.rows)), run_id=run.run_id)

What it says of the arms that were trained is in arms_page.py.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from selfspec.costs.profile import CostProfile
from selfspec.study import layerskip_summary
from selfspec.study.layerskip_summary import GOAL
from selfspec.study.layerskip_words import DYNAMIC, KNAPSACK, SMALL_MODEL

# What is asked and scored


def sentence_on_subject(facts: Mapping[str, Any]) -> str:
    """Which model it is, how its exits came about, what it is asked."""
    subject, model = facts["subject"], facts["model"]
    text = (
        f"{model['name']} has {subject['layers']} layers and "
        f"{model['num_parameters'] / 1e6:.2f} million weights."
    )
    trained = subject["trained"]
    if trained:
        text += (
            f" This project trained it for {trained['steps']} steps (arm "
            f"{trained['arm']}, seed {trained['seed']}); it is asked {subject['task']}."
        )
    else:
        text += (
            " It comes from elsewhere and is asked the study's prompts, which have no "
            "one right answer: its exits are scored on the prompts' own text."
        )
    return text


def has_answers(facts: Mapping[str, Any]) -> bool:
    """Whether an exact match means anything."""
    return bool(facts["subject"]["trained"])


# Layers, without a clock


def layer_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """What was counted, a line a case."""
    lines = layerskip_summary.counted(facts)
    shown = pd.DataFrame(
        {
            "draft": lines["draft"],
            "draft tokens": lines["num_draft_tokens"],
            "acceptance rate": lines["acceptance_rate"].map(percent),
            "tokens per round": lines["tokens_per_round"].map(two),
            "layer evaluations per token": lines["evaluations"].map(two),
            "layers of a step / these": lines["speedup"].map(two),
            "rows through layers per token": lines["rows"].map(two),
            "lossless": [
                f"{line.lossless} of {line.texts}" for line in lines.itertuples()
            ],
        }
    )
    if lines["exact_match"].notna().any():
        shown["exact match"] = lines["exact_match"].map(percent)
    return shown


def sentence_on_layers(facts: Mapping[str, Any]) -> str:
    """The fewest layer evaluations a token, and that every text was the model's own."""
    lines = layerskip_summary.counted(facts)
    drafts = lines[(lines["draft"] != "plain") & (lines["draft"] != SMALL_MODEL)]
    best = drafts.loc[drafts["evaluations"].idxmin()]
    plain = lines.iloc[0]
    ties = int(lines["ties"].sum())
    return (
        f"Plain decoding runs {plain['evaluations']:.0f} layers for a token; "
        f"{best['draft']} with {best['num_draft_tokens']} draft tokens runs "
        f"{best['evaluations']:.1f}, which is {best['speedup']:.2f} times fewer calls "
        f"over {best['rows']:.1f} rows of layers. "
        f"Every one of these {len(lines) - 1} cases wrote all {int(plain['texts'])} "
        f"texts as plain decoding does" + (f" (with {ties} ties)." if ties else ".")
    )


# The clock


def speed_table(table: pd.DataFrame) -> pd.DataFrame:
    """Every timed case: what came out, and what went in."""
    lines = table.to_dict("records")
    return pd.DataFrame(
        {
            "draft": table["draft"],
            "draft tokens": table["num_draft_tokens"],
            "temperature": [f"{line['temperature']:g}" for line in lines],
            "speedup S": table["speedup"].map(two),
            "95 % interval": [interval(line) for line in lines],
            "predicted S": table["predicted_speedup"].map(two),
            "from held-out texts": table["predicted_held_out"].map(two),
            "acceptance rate": table["acceptance_rate"].map(percent),
            "tokens per round": table["tokens_per_round"].map(two),
            "c": table["cost_ratio"].map(two),
            "lossless": [
                f"{line['lossless']} of {line['pairs']}"
                if not line["temperature"]
                else "-"
                for line in lines
            ],
        }
    )


def sentence_on_best(table: pd.DataFrame) -> str:
    """The best exit, where its interval lies to the goal, and what was predicted."""
    best = layerskip_summary.best(table)
    return (
        f"The best plain exit is {best['draft']} with {int(best['num_draft_tokens'])} "
        f"draft tokens: S = {best['speedup']:.2f}{spelt_interval(best)}, predicted "
        f"{best['predicted_speedup']:.2f}. {_to_the_goal(best)}"
    )


def _to_the_goal(line) -> str:
    if pd.isna(line["low"]):
        return "Too few prompts for an interval, so no verdict."
    if line["low"] > GOAL:
        place = "lies wholly above"
    elif line["high"] < GOAL:
        place = "lies wholly below"
    else:
        place = "covers"
    return f"The interval {place} {GOAL:g}."


def sentence_on_plain(facts: Mapping[str, Any]) -> str:
    """Whose plain decoding the baseline is, and why."""
    plain = facts["plain"]
    others = {k: v for k, v in plain.items() if k != "chosen"}
    if not others:
        return f"Plain decoding is {plain['chosen']}'s own loop."
    told = " and ".join(
        f"{1000 * seconds:.2f} ms with {who}" for who, seconds in others.items()
    )
    return (
        f"When the run began a plain token took {told}; the faster of the two, that of "
        f"{plain['chosen']}, is the baseline of every pair."
    )


def sentence_on_dispatch(facts: Mapping[str, Any]) -> str:
    """How much of a step is launching operations; the head's share of the rest."""
    found = facts["dispatch"]
    profile = CostProfile.from_json(facts["profile"])
    parts = profile.where_a_step_goes(profile.context)
    whole = sum(parts.values())
    layers = parts["attention"] + parts["mlp"] + parts["layer"]
    per_layer = layers / profile.num_layers
    head = f"the head takes {parts['head'] / whole:.0%} of a step"
    if per_layer > 0:
        head += f", as much as {parts['head'] / per_layer:.1f} layers"
    if found is None:
        return (
            f"How much of a step is dispatch was not measured for this class; {head}."
        )
    return (
        f"The same graph, 16 wide or as narrow as its heads allow, takes "
        f"{found['share']:.0%} of a plain step: so much of it is launching operations, "
        f"whatever they compute, and {head}."
    )


def reuse_table(reuse: pd.DataFrame) -> pd.DataFrame:
    """Rows kept against nothing kept."""
    lines = reuse.to_dict("records")
    return pd.DataFrame(
        {
            "draft": reuse["draft"],
            "draft tokens": reuse["num_draft_tokens"],
            "nothing kept / rows kept": reuse["ratio"].map(two),
            "95 % interval": [interval(line) for line in lines],
            "keeping them is": reuse["verdict"],
        }
    )


def sentence_on_reuse(reuse: pd.DataFrame) -> str:
    """Whether keeping the early rows pays."""
    if reuse.empty:
        return "Keeping rows was not compared with keeping nothing."
    slower = int((reuse["verdict"] == "slower").sum())
    return (
        "Keeping what the early layers computed gives, over running them again, "
        f"{reuse['ratio'].min():.2f} to {reuse['ratio'].max():.2f} times the speed; "
        f"in {slower} of {len(reuse)} cases the interval lies wholly below 1."
    )


def sentence_on_sampled(table: pd.DataFrame) -> str:
    """What sampling changes, beside the same exit decoded greedily."""
    sampled = layerskip_summary.sampled(table)
    if sampled.empty:
        return "Nothing was sampled in this run."
    best = sampled.loc[sampled["speedup"].idxmax()]
    text = (
        f"At temperature {best['temperature']:g}, {best['draft']} is best with "
        f"{best['num_draft_tokens']} draft tokens: S = {best['speedup']:.2f}"
        f"{spelt_interval(best)}, acceptance rate {best['acceptance_rate']:.0%}."
    )
    same = layerskip_summary.fixed(table)
    same = same[
        (same["draft"] == best["draft"])
        & (same["num_draft_tokens"] == best["num_draft_tokens"])
    ]
    if same.empty:
        return text
    greedy = same.iloc[0]
    return (
        f"{text} Greedily the same draft has S = {greedy['speedup']:.2f} and an "
        f"acceptance rate of {greedy['acceptance_rate']:.0%}."
    )


def sentence_on_rule(table: pd.DataFrame) -> str:
    """The draft length chosen by the rule that declines, beside fixed ones."""
    ruled = layerskip_summary.ruled(table)
    if ruled.empty:
        return 'The rule for the draft length, "auto", was not timed.'
    line = ruled.iloc[0]
    own = layerskip_summary.exits(table)
    own = own[own["draft"] == line["draft"]]
    text = (
        f'With {line["draft"]} and num_draft_tokens="auto", S = {line["speedup"]:.2f}'
        f"{spelt_interval(line)}."
    )
    if own.empty:
        return text
    return (
        f"{text} Fixed lengths of the same exit give {own['speedup'].min():.2f} to "
        f"{own['speedup'].max():.2f}. On texts this short the rule has little time to "
        "learn."
    )


def sentence_on_dynamic(table: pd.DataFrame) -> str:
    """An exit chosen for each token, beside the best fixed one."""
    own = layerskip_summary.fixed(table)
    own = own[own["draft"].str.startswith(DYNAMIC)]
    if own.empty:
        return "No exit was chosen token by token in this run."
    line, best = own.loc[own["speedup"].idxmax()], layerskip_summary.best(table)
    better = "more" if line["speedup"] > best["speedup"] else "not more"
    return (
        f"Chosen for each token ({line['draft'].removeprefix(f'{DYNAMIC}, ')}), the "
        f"exit gives S = {line['speedup']:.2f}{spelt_interval(line)} with "
        f"{line['num_draft_tokens']} draft tokens and an acceptance rate of "
        f"{line['acceptance_rate']:.0%}: {better} than the best fixed exit "
        f"({best['speedup']:.2f}). Its prediction takes the verification for a whole "
        "one, though most rows have run some layers by then."
    )


def sentence_on_small(table: pd.DataFrame, facts: Mapping[str, Any]) -> str:
    """The two-model mode: another model's cost, acceptance, speed and memory."""
    own = layerskip_summary.fixed(table)
    own = own[own["draft"] == SMALL_MODEL]
    small = facts.get("small_model")
    if own.empty or not small:
        return (
            "No smaller model of the same training is at hand for this one, so the "
            "two-model mode was not timed."
        )
    line, best = own.loc[own["speedup"].idxmax()], layerskip_summary.best(table)
    memory = facts["memory"]
    return (
        f"A separate model of {small['layers']} layers, trained on the same data, costs "
        f"c = {line['cost_ratio']:.2f} a draft token ({best['draft']}: "
        f"{best['cost_ratio']:.2f}) and gives S = {line['speedup']:.2f}"
        f"{spelt_interval(line)} with {line['num_draft_tokens']} draft tokens, "
        f"acceptance rate {line['acceptance_rate']:.0%}. Peak memory is "
        f"{memory['two models'] / memory['plain']:.2f} times that of plain decoding "
        f"with two models and {memory['exit'] / memory['plain']:.2f} times with an exit."
    )


def sentence_on_knapsack(table: pd.DataFrame, facts: Mapping[str, Any]) -> str:
    """Whether the blocks that a knapsack keeps are still a prefix."""
    found = facts.get("knapsack")
    if not found:
        return "The knapsack was not asked about this model."
    kept = found["kept_prefix"]
    shape = (
        f"it keeps every block of the first {kept} layers and none after them: a plain "
        "exit"
        if found["is_prefix"]
        else f"it keeps all of the first {kept} layers and {found['kept_after']} blocks "
        "after them: no plain exit"
    )
    text = (
        f"Asked to save what exit {facts['main_exit']} saves, the knapsack leaves out "
        f"{found['left_out']} of {found['blocks']} blocks; {shape}. On texts that are "
        f"not evaluated its first token agrees {found['agreement']:.0%} of the time, "
        f"the exit's {found['exit_agreement']:.0%}."
    )
    own = layerskip_summary.fixed(table)
    own = own[own["draft"].str.startswith(KNAPSACK)]
    if own.empty:
        return text
    line = own.loc[own["speedup"].idxmax()]
    return (
        f"{text} It gives S = {line['speedup']:.2f}{spelt_interval(line)} with an "
        f"acceptance rate of {line['acceptance_rate']:.0%}."
    )


# Exits on their own


def sentence_on_exits(facts: Mapping[str, Any]) -> str:
    """What the exits at a quarter and half of the depth say, beside the last layer."""
    scores = layerskip_summary.scores(facts).set_index("exit_layer")
    layers = int(scores.index.max())
    parts = []
    for layer in sorted({max(1, layers // 4), max(1, layers // 2)}):
        line = scores.loc[layer]
        exact = f" and exact match {line['exact_match']:.0%}"
        parts.append(
            f"after layer {layer} agreement with the last layer is "
            f"{line['agreement']:.0%}" + (exact if has_answers(facts) else "")
        )
    last = scores.loc[layers]
    own = (
        f"exact match {last['exact_match']:.0%}"
        if has_answers(facts)
        else f"perplexity {last['perplexity']:.3g}"
    )
    return (
        f"On {int(last['texts'])} texts, {', '.join(parts)}; the last layer itself has "
        f"{own}."
    )


def sentence_on_depths(facts: Mapping[str, Any]) -> str:
    """The mean layer from which a token stays."""
    found = facts["depths"]
    early = sum(found["counts"][: found["layers"] // 2]) / sum(found["counts"])
    return (
        f"On average a token is settled from layer {found['mean']:.1f} of "
        f"{found['layers']}; {early:.0%} of the tokens are settled by half the depth."
    )


def sentence_on_alone(facts: Mapping[str, Any]) -> str:
    """What early exit alone gives and takes."""
    table = layerskip_summary.alone(facts)
    if table.empty:
        return "Early exit alone was not timed: these first layers do not run alone."
    metric = "exact_match" if has_answers(facts) else "agreement"
    words = "exact match" if has_answers(facts) else "agreement with the last layer"
    first = table.iloc[0]
    return (
        f"Without verification, exit {int(first['exit_layer'])} decodes at "
        f"{first['speedup']:.2f} times the plain speed with {words} "
        f"{first[metric]:.0%}: fast, and a text of its own."
    )


# Elsewhere


def published_table(published: pd.DataFrame) -> pd.DataFrame:
    """What others report, as they report it.

    Args:
        published: of reference.layerskip_speed.
    """
    return pd.DataFrame(
        {
            "model": published["model"],
            "task": published["task"],
            "device": published["device"],
            "exit": published["exit_layer"].astype(str)
            + " of "
            + published["num_layers"].astype(str),
            "draft tokens": published["num_draft_tokens"].map(_whole),
            "acceptance rate": published["acceptance_rate"].map(percent),
            "speedup": published["speedup"].map(two),
            "where": published["source"] + ", " + published["where"],
        }
    )


# Numbers


def interval(line) -> str:
    """'1.93 to 2.11', or a dash below six prompts."""
    if pd.isna(line["low"]):
        return "-"
    return f"{line['low']:.2f} to {line['high']:.2f}"


def spelt_interval(line) -> str:
    """The same in brackets; nothing where there is none."""
    return "" if pd.isna(line["low"]) else f" ({interval(line)})"


def percent(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.0%}"


def two(value: float) -> str:
    return "-" if pd.isna(value) or not math.isfinite(value) else f"{value:.2f}"


def _whole(value) -> str:
    return "-" if pd.isna(value) else str(int(value))
