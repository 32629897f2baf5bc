"""What the page says of the arms that were trained, in words and tables. No MLX.

arms = arms_table.load(root)             # None: not trained yet
for sentence in sentences(arms): say(sentence)
for table in tables(arms): show_table(table)
"""

import pandas as pd

from selfspec.study import arms_table, figures, layerskip_figures
from selfspec.study.arms_table import BASELINE, TAUGHT, Arms
from selfspec.study.layerskip_page import percent, two

NOT_TRAINED = (
    "The arms have not been trained yet: `results/` holds none. "
    "`selfspec train` trains one of them."
)
WORDS = {  # what an arm is, as its recipe's name stands for it
    "baseline": "baseline",
    "ld": "layer dropout (LD)",
    "ee": "early-exit loss (EE)",
    "ld-ee": "LD + EE",
    "constant-ld": "layer dropout at a constant rate",
    "distilled": "LD + EE, exits distilled",
}


def origin(arms: Arms | None) -> str:
    """Where the arms were trained, or that they were not."""
    return NOT_TRAINED if arms is None else sentence_on_origin(arms)


def tables(arms: Arms | None) -> list[pd.DataFrame]:
    """Every table of the arms; none where none is trained."""
    if arms is None:
        return []
    return [early_exits(arms), last_layers(arms), overheads(arms)]


def sentences(arms: Arms | None) -> list[str]:
    """Every sentence on the arms; none where none is trained."""
    if arms is None:
        return []
    told = [
        sentence_on_lead(arms),
        sentence_on_lead(arms, "agreement") if len(arms_table.lead(arms)) else "",
        sentence_on_price(arms),
        sentence_on_training(arms),
    ]
    return [sentence for sentence in told if sentence]


def show_figures(arms: Arms | None) -> None:
    """The lead of the taught exits, and the baseline's exits while it trains."""
    if arms is None:
        return
    csv = str(arms.folder / arms_table.EXITS)
    ahead = arms_table.lead(arms)
    if len(ahead):
        figures.show(
            layerskip_figures.lead(ahead),
            name="lead",
            alt=layerskip_figures.describe_lead(ahead),
            caption="Lead of the taught exits over the baseline's, by exit layer.",
            csv=csv,
        )
    moved = arms_table.while_training(arms)
    if moved["step"].nunique() > 1:
        figures.show(
            layerskip_figures.while_training(moved),
            name="training",
            alt=layerskip_figures.describe_while_training(moved),
            caption="The baseline's exits while it trains.",
            csv=csv,
        )


def words(arm: str) -> str:
    """An arm as the page calls it."""
    return WORDS.get(arm, arm)


def last_layers(arms: Arms) -> pd.DataFrame:
    """What the training costs the model itself, with the spread over seeds."""
    table = arms_table.last_layer(arms)
    return pd.DataFrame(
        {
            "arm": table["arm"].map(words),
            "seeds": table["seeds"],
            "exact match, last layer": table["exact_match"].map(percent),
            "over seeds": [
                f"{line.exact_match_low:.0%} to {line.exact_match_high:.0%}"
                for line in table.itertuples()
            ],
            "perplexity, last layer": [
                f"{line.perplexity:.3f}" for line in table.itertuples()
            ],
        }
    )


def early_exits(arms: Arms) -> pd.DataFrame:
    """Exact match at a few exits, an arm a row; medians over seeds."""
    table = arms_table.by_exit(arms)
    layers = arms.num_layers
    shown = sorted({max(1, round(layers * share)) for share in (1 / 6, 1 / 4, 1 / 2)})
    lines = []
    for arm in arms_table.names(arms):
        own = table[table["arm"] == arm].set_index("exit_layer")
        line: dict[str, object] = {"arm": words(arm)}
        for layer in [*shown, layers]:
            line[f"after layer {layer}"] = percent(own.loc[layer, "exact_match"])
        lines.append(line)
    return pd.DataFrame(lines)


def overheads(arms: Arms) -> pd.DataFrame:
    """Time of a step and memory of training, over the baseline's."""
    table = arms_table.overhead(arms)
    return pd.DataFrame(
        {
            "arm": table["arm"].map(words),
            "seeds": table["seeds"],
            "seconds a step / baseline": table["seconds"].map(two),
            "over seeds": [
                f"{line.seconds_low:.2f} to {line.seconds_high:.2f}"
                for line in table.itertuples()
            ],
            "peak memory / baseline": table["memory"].map(two),
            "layers run": table["layers_run"].map(percent),
        }
    )


MEANT = {
    "exact_match": "exact match",
    "agreement": "agreement with their own last layer",
}


def sentence_on_lead(arms: Arms, metric: str = "exact_match") -> str:
    """Whether the taught exits lie above the baseline's up to half the depth.

    Args:
        metric: one of MEANT.
    """
    table = arms_table.lead(arms, metric=metric)
    if table.empty:
        return "There is no pair of a baseline and a taught model of one seed yet."
    early = table[table["exit_layer"] <= arms.num_layers // 2]
    told = (
        f"Up to half the depth, exits of {words(TAUGHT)} lead those of the "
        f"{words(BASELINE)} by {100 * early['lead'].min():.1f} to "
        f"{100 * early['lead'].max():.1f} points of {MEANT[metric]} (medians over "
        f"{int(table['seeds'].min())} seeds)."
    )
    if not arms_table.has_interval(early):
        return f"{told} Too few seeds for an interval."
    above = early[early["low"] > 0]
    if len(above) == len(early):
        return f"{told} At every one of these {len(early)} exits the interval lies above 0."
    rest = ", ".join(
        str(layer)
        for layer in sorted(set(early["exit_layer"]) - set(above["exit_layer"]))
    )
    return (
        f"{told} The interval lies above 0 at {len(above)} of {len(early)} exits, not "
        f"after layer {rest}."
    )


def sentence_on_price(arms: Arms) -> str:
    """What the last layer pays."""
    table = arms_table.lead(arms)
    if table.empty:
        return ""
    last = table[table["exit_layer"] == arms.num_layers].iloc[0]
    interval = (
        f" ({100 * last['low']:+.1f} to {100 * last['high']:+.1f})"
        if last["low"] == last["low"]
        else ""
    )
    return (
        f"At the last layer {words(TAUGHT)} differs from the {words(BASELINE)} by "
        f"{100 * last['lead']:+.1f} points of exact match{interval}."
    )


def sentence_on_training(arms: Arms) -> str:
    """Does the baseline's middle get worse while it trains?"""
    table = arms_table.while_training(arms)
    middle = arms.num_layers // 2
    own = table[table["exit_layer"] == middle].sort_values("step")
    if len(own) < 2:
        return "The arms were scored at their last step only."
    lowest = own.loc[own["perplexity"].idxmin()]
    last = own.iloc[-1]
    if last["perplexity"] > 1.1 * lowest["perplexity"]:
        moved = (
            f"it falls to {lowest['perplexity']:.3g} by step {int(lowest['step'])} and "
            f"rises to {last['perplexity']:.3g} by step {int(last['step'])}"
        )
    else:
        moved = f"it ends at {last['perplexity']:.3g}, its lowest or near it: it does not rise"
    return f"Read after layer {middle} of the {words(BASELINE)}, perplexity moves so: {moved}."


def sentence_on_origin(arms: Arms) -> str:
    """Where the arms were trained, and how much."""
    about = arms.about
    return (
        f"Trained on {about['machine']}, {about['date'][:10]}: {about['steps']} steps of "
        f"{about['batch']} examples each, equal data and steps for every arm, scored on "
        f"{int(arms.exits['texts'].max())} held-out utterances. "
        "The learning rate was not tuned for each arm."
    )
