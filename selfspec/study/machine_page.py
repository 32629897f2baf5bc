"""What the machine page says in words and tables, from a run's facts. Needs no MLX.

facts = run.provenance
show_table(machine_table(facts))
say(sentence_on_bandwidth(facts))
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec.costs.profile import CostProfile
from selfspec.study.cost_figures import PARTS, threads_in_words
from selfspec.study.draft_summary import prediction_error
from selfspec.study.experiments import MACHINE
from selfspec.study.plane import FIXED_LENGTH
from selfspec.study.run_records import (
    DEVICES,
    Record,
    collect,
    headlines,
    of_experiment,
)

CHECK_BOUND = 0.05  # c from the profile should miss by less than this in the median
STEP_CONTEXTS = (128, 512, 1024, 2048)


# The machine


def machine_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """The machine and what a step costs on it."""
    machine, profile = facts["machine"], facts["profile"]
    origin = facts["profile_origin"]
    measured = "measured for this run" if origin["measured_now"] else "kept from before"
    rows = [
        ("chip", f"{machine['chip']}, {machine['cores']} cores"),
        ("memory", f"{machine['memory_gb']} GB"),
        ("device", DEVICES.get(machine["device"], machine["device"])),
        ("BLAS", machine["blas"] or "not used"),
        ("plain step", _milliseconds(profile["step_seconds"])),
        ("after a context of", f"{profile['context']} tokens"),
        ("weights that a step reads", _gigabytes(facts["step_bytes"])),
        ("weights read a second", _gigabytes(bandwidth(facts))),
        (
            "copied a second, read and written",
            _gigabytes(facts["copy_bytes_per_second"]),
        ),
        ("rest of a round", _milliseconds(profile["round_seconds"])),
        ("profile", f"{measured}, in {origin['seconds']:.0f} seconds"),
        (
            "misses of its fit",
            f"{profile['residuals']['median']:.1%} in the median, "
            f"{profile['residuals']['largest']:.0%} at most",
        ),
    ]
    return pd.DataFrame(rows, columns=["what", "value"])


def bandwidth(facts: Mapping[str, Any]) -> float | None:
    """Bytes of weights that plain decoding reads a second; None where unknown."""
    if not facts.get("step_bytes"):
        return None
    return facts["step_bytes"] / facts["profile"]["step_seconds"]


def sentence_on_bandwidth(facts: Mapping[str, Any]) -> str:
    """How near a step comes to what the device can copy."""
    reached = bandwidth(facts)
    if reached is None:
        return (
            "This model is a mixture of experts: a step reads a part of its weights that "
            "depends on the text, so the bandwidth that it reaches is not stated."
        )
    share = reached / facts["copy_bytes_per_second"]
    if share > 1.1:
        reading = (
            "That is possible because reading alone is cheaper than copying. Decoding "
            "waits for memory: what a draft does not read it does not pay for."
        )
    elif share > 0.7:
        reading = (
            "Decoding waits for memory: what a draft does not read it does not pay for."
        )
    else:
        reading = (
            "So a step waits for more than memory (arithmetic, launches, building the "
            "graph), and a draft need not cost its share of the weights."
        )
    return (
        f"Plain decoding reads {_gigabytes(reached)} of weights a second, {share:.0%} of "
        f"what a copy of a large array moves. {reading}"
    )


# Verification


def verify_curves(facts: Mapping[str, Any]) -> dict[int, dict[int, float]]:
    """BLAS threads -> rows -> v, as numbers again."""
    return {
        int(threads): {int(m): v for m, v in found["verify_ratio"].items()}
        for threads, found in facts["verify_curves"].items()
    }


def verify_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """v(m), one column a thread count."""
    curves, chosen = verify_curves(facts), facts["chosen_threads"]
    rows = sorted({m for ratios in curves.values() for m in ratios})
    table: dict[str, Any] = {"rows m": rows}
    for threads, ratios in curves.items():
        name = threads_in_words(threads, chosen)
        table[name] = [f"{ratios[m]:.2f}" if m in ratios else "-" for m in rows]
    return pd.DataFrame(table)


def sentence_on_verify(facts: Mapping[str, Any]) -> str:
    """What the steps behind the curves are, and what a short draft pays."""
    steps = [
        f"{threads_in_words(int(threads), facts['chosen_threads'])} "
        f"{_milliseconds(found['step_seconds'])}"
        for threads, found in facts["verify_curves"].items()
    ]
    used = verify_curves(facts)[facts["chosen_threads"]]
    return (
        f"A plain step takes, with {', '.join(steps)}; each curve is in its own steps. "
        f"Verifying a draft of two tokens costs {used[3]:.2f} plain steps, one of four "
        f"tokens {used[5]:.2f}."
    )


# Where a step goes


def step_parts(profile: CostProfile) -> pd.DataFrame:
    """Seconds of a step by block; index context length."""
    longest = max(profile.contexts)
    lengths = [n for n in STEP_CONTEXTS if n <= longest] or [profile.context]
    lines = [profile.where_a_step_goes(length) for length in lengths]
    return pd.DataFrame(lines, index=lengths)[list(PARTS)]


def sentence_on_step(parts: pd.DataFrame) -> str:
    """The floor under c, and what a longer context changes."""
    first, last = parts.index[0], parts.index[-1]
    shares = parts.div(parts.sum(axis=1), axis=0)
    floor = shares.loc[first, "head"] + shares.loc[first, "rest"]
    text = (
        f"Head and rest take {floor:.0%} of a step after {first} tokens, so no draft "
        f"that runs them costs less than that, however few layers it keeps."
    )
    if last == first:
        return text
    return (
        f"{text} Attention grows from {shares.loc[first, 'attention']:.0%} of a step to "
        f"{shares.loc[last, 'attention']:.0%} after {last} tokens, and with it what "
        "leaving out attention saves."
    )


# The profile put to the test


def check_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """c as the profile predicts it and as timed directly, one row a draft."""
    return pd.DataFrame(
        [
            {
                "draft": check["label"],
                "predicted c": f"{check['predicted']:.3f}",
                "measured c": f"{check['measured']:.3f}",
                "error": f"{check_error(check):+.1%}",
            }
            for check in facts["checks"]
        ]
    )


def check_error(check: Mapping[str, Any]) -> float:
    """Relative and signed: 0.03 is 3 % too high."""
    return check["predicted"] / check["measured"] - 1


def sentence_on_checks(facts: Mapping[str, Any]) -> str:
    """The median error of c, and whether it is below the bound."""
    errors = pd.Series(
        {check["label"]: check_error(check) for check in facts["checks"]}
    ).abs()
    if errors.empty:
        return "No draft of this run has a cost that the profile predicts."
    met = "below" if errors.median() < CHECK_BOUND else "not below"
    return (
        f"Over {len(errors)} drafts the predicted c misses the measured one by "
        f"{errors.median():.1%} in the median, {met} the bound of {CHECK_BOUND:.0%}; "
        f"the furthest miss is {errors.max():.1%} ({errors.idxmax()})."
    )


# The configurations


def configurations(table: pd.DataFrame) -> pd.DataFrame:
    """Every configuration, as a reader wants it.

    Args:
        table: of draft_summary.summarise.
    """
    lines = table.to_dict("records")
    return pd.DataFrame(
        {
            "draft": table["draft"],
            "draft tokens": table["num_draft_tokens"],
            "S": [f"{line['speedup']:.2f}" for line in lines],
            "95 % interval": [
                "-"
                if pd.isna(line["low"])
                else f"{line['low']:.2f} to {line['high']:.2f}"
                for line in lines
            ],
            "verdict": table["verdict"],
            "predicted S": [_two(line["predicted_speedup"]) for line in lines],
            "held out": [_two(line["predicted_held_out"]) for line in lines],
            "acceptance rate": [_percent(line["acceptance_rate"]) for line in lines],
            "first token": [_percent(line["first_token_acceptance"]) for line in lines],
            "c": [_two(line["cost_ratio"]) for line in lines],
            "v": [_two(line["verify_ratio"]) for line in lines],
            "lossless": [f"{line['lossless']} of {line['pairs']}" for line in lines],
        }
    )


def sentence_on_configurations(table: pd.DataFrame) -> str:
    """Which draft came out best, and how many won."""
    best = table.loc[table["speedup"].idxmax()]
    counts = table["verdict"].value_counts()
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return (
        f"Of {len(table)} configurations: {verdicts}. The best is {best['draft']} with "
        f"{best['num_draft_tokens']} draft tokens, at S = {best['speedup']:.2f}."
    )


def sentence_on_prediction(table: pd.DataFrame) -> str:
    """How far both predictions lie from what was measured."""
    observed = prediction_error(table)
    held_out = prediction_error(table, "predicted_held_out")
    furthest = table.loc[observed.idxmax()]
    return (
        f"With the acceptance of the timed rounds the median absolute error is "
        f"{observed.median():.1%} over {len(table)} configurations; the furthest miss "
        f"is {observed.max():.0%}, {furthest['draft']} with "
        f"{furthest['num_draft_tokens']} draft tokens. With the acceptance of held-out "
        f"prompts the median is {held_out.median():.1%}: what it adds is that other "
        "texts are accepted differently."
    )


def plane_records(root: Path, run) -> list[Record]:
    """This run, and the largest of each other experiment on its machine and model.

    Args:
        root: the study's folder.
        run: what `machine_study.measure` gave.
    """
    place = (run.folder.parent.name, run.folder.name)
    here = [r for r in collect(root) if (r.machine, r.model) == place]
    others = [
        record
        for record in headlines(of_experiment(here, *FIXED_LENGTH))
        if record.experiment != MACHINE
    ]
    return [*others, *(record for record in here if record.run_id == run.run_id)]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _gigabytes(count: float | None) -> str:
    if count is None:
        return "not stated"
    return f"{count / 1e9:.2f} GB" if count >= 1e7 else f"{count / 1e6:.2f} MB"


def _two(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.2f}"


def _percent(value: float) -> str:
    return "-" if pd.isna(value) else f"{value:.0%}"
