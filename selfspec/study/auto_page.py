"""What the page of the rule that declines says in words and tables. Needs no MLX.

compared = auto_summary.compare(draft_summary.summarise(run.rows), fixed)
say(sentence_on_promise(compared))
show_table(readable(compared), run_id=run.run_id)
"""

import pandas as pd

from selfspec.study.auto_summary import BOUND, BROKEN, KEPT, OPEN, UNKNOWN
from selfspec.study.draft_fragments import fixed_in_words
from selfspec.study.draft_summary import prediction_error

_PLACES = {
    KEPT: f"lies at {BOUND:.2f} or above",
    OPEN: f"covers {BOUND:.2f}",
    BROKEN: f"lies below {BOUND:.2f}",
    UNKNOWN: "is missing: too few prompts",
}


def readable(compared: pd.DataFrame) -> pd.DataFrame:
    """What the rule gave, and what fixed lengths of the same draft gave elsewhere.

    Args:
        compared: of `auto_summary.compare`.
    """
    lines = compared.to_dict("records")
    return pd.DataFrame(
        {
            "draft": compared["draft"],
            'S with "auto", this run': [f"{line['speedup']:.2f}" for line in lines],
            "95 % interval": [_interval(line) for line in lines],
            "the interval": [_PLACES[line["promise"]] for line in lines],
            "plain tokens": [f"{line['plain_share']:.0%}" for line in lines],
            "fixed lengths, other runs": [fixed_in_words(line) for line in lines],
            "lossless": [f"{line['lossless']} of {line['pairs']}" for line in lines],
        }
    )


def drafts(compared: pd.DataFrame) -> pd.DataFrame:
    """What went into the rule, and what the identity makes of what it did."""
    lines = compared.to_dict("records")
    return pd.DataFrame(
        {
            "draft": compared["draft"],
            "c": [f"{line['cost_ratio']:.2f}" for line in lines],
            "acceptance rate": [_percent(line["acceptance_rate"]) for line in lines],
            "held out": [_percent(line["held_out_acceptance_rate"]) for line in lines],
            "first-token acceptance": [
                _percent(line["first_token_acceptance"]) for line in lines
            ],
            "S": [f"{line['speedup']:.2f}" for line in lines],
            "predicted S": [f"{line['predicted_speedup']:.2f}" for line in lines],
            "predicted, held out": [
                f"{line['predicted_held_out']:.2f}" for line in lines
            ],
        }
    )


def sentence_on_promise(compared: pd.DataFrame) -> str:
    """For each draft, whether the rule kept its promise."""
    parts = [
        f"With {line['draft']} as the draft, S is {line['speedup']:.2f}"
        f"{_spelt_interval(line)}; the interval {_PLACES[line['promise']]}."
        for line in compared.to_dict("records")
    ]
    shortest = int(compared["tokens"].min())
    return "\n".join([*parts, f"Every text of this run has {shortest} tokens or more."])


def sentence_on_declining(compared: pd.DataFrame) -> str:
    """Where the rule drafted and where it left it."""
    left = compared[compared["plain_share"] > 0.5]
    if left.empty:
        return "With every draft, more than half of the tokens came from rounds."
    names = ", ".join(left["draft"])
    return (
        f"It left most of the text to plain decoding with {names}: "
        f"{left['plain_share'].min():.0%} to {left['plain_share'].max():.0%} of the "
        "tokens are plain steps that the rule chose."
    )


def sentence_on_loops(compared: pd.DataFrame) -> str:
    """How much of the gain may be owed to texts that repeat themselves.

    Texts that go on past their end fall into loops, and a loop is easy to draft.
    """
    parts = [
        f"{line['draft']} "
        + (
            "has none left"
            if pd.isna(line["speedup_without_loops"])
            else f"{line['speedup_without_loops']:.2f}"
        )
        for line in compared.to_dict("records")
    ]
    return (
        f"On average {compared['repeated_ngram_share'].mean():.0%} of the 4-grams of a "
        "text repeat an earlier one. Without the prompts whose text loops, S has these "
        f"medians: {', '.join(parts)}."
    )


def sentence_on_fixed(compared: pd.DataFrame) -> str:
    """What the same drafts did at fixed lengths, in other runs of this machine."""
    known = compared[compared["fixed"] > 0]
    if known.empty:
        return (
            "No other experiment has timed these drafts at fixed lengths on this machine "
            "with this model yet, so there is nothing to set beside the rule."
        )
    worst = known.loc[known["worst_speedup"].idxmin()]
    best = known.loc[known["best_speedup"].idxmax()]
    return (
        "Fixed lengths of the same drafts, timed in other runs of this machine and "
        f"model, gave from S = {worst['worst_speedup']:.2f} ({worst['draft']}, "
        f"{int(worst['worst_length'])} tokens a round) to {best['best_speedup']:.2f} "
        f"({best['draft']}, {int(best['best_length'])} tokens a round). "
        "They are other runs on other lengths of text: read them beside the rule's "
        "figures, not against them to the last digit."
    )


def sentence_on_prediction(compared: pd.DataFrame) -> str:
    """How far the identity's predictions lie from what was measured."""
    error = prediction_error(compared)
    furthest = compared.loc[error.idxmax()]
    held_out = prediction_error(compared, "predicted_held_out")
    return (
        "Fed with costs measured beforehand and the rounds that the rule chose, the "
        f"identity misses the measured speedup by {error.median():.0%} in the median "
        f"and by {error.max():.0%} at most ({furthest['draft']}); with rounds from "
        f"prompts that were not evaluated, by {held_out.median():.0%} in the median."
    )


def sentence_on_budget(policy: dict[str, float]) -> str:
    """What the rule was given to lose, from the run's provenance."""
    return (
        f"The budget of this run is {policy['budget']:.0%} of all steps, the allowance "
        f"{policy['allowance']:g} steps."
    )


def _interval(line) -> str:
    if pd.isna(line["low"]):
        return "-"
    return f"{line['low']:.2f} to {line['high']:.2f}"


def _spelt_interval(line) -> str:
    return "" if pd.isna(line["low"]) else f" ({_interval(line)})"


def _percent(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.0%}"
