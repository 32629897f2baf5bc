"""What `selfspec finetune` did to a loaded model, read back and put in words. No MLX.

results/<machine>/layerskip-finetune/ holds, a model, <model>.csv (a row an exit before
and one after: sums over held-out texts, and at some exits what its drafts were worth)
and <model>.json (machine, versions, recipe, settings).

    for run in load(root): table(run), sentence(run)
    fragment(root)                                   # what the book's page includes
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec.study import markdown
from selfspec.study.fragments import table as markdown_table
from selfspec.study.results import RESULTS, unreadable

FOLDER = "layerskip-finetune"
BEFORE, AFTER = "before", "after"
NONE = "No loaded model has been taught yet: `selfspec finetune` does it."
HEAD = (
    "exit",
    "loss before",
    "loss after",
    "agrees before",
    "agrees after",
    "accepted before",
    "accepted after",
)


@dataclass(frozen=True)
class Taught:
    """One model that was taught.

    Attributes:
        exits: exit_layer, and before and after of loss (nats a token, held-out texts),
            agreement (with that model's own last layer) and acceptance (NaN where no
            draft was counted).
        facts: of the run.
        csv: results/<machine>/layerskip-finetune/<model>.csv, from the root.
    """

    exits: pd.DataFrame
    facts: dict[str, Any]
    csv: Path

    @property
    def num_layers(self) -> int:
        return int(self.exits["exit_layer"].max())


def load(root: Path) -> list[Taught]:
    """Every model that was taught, on every machine, in the order of their names.

    Raises:
        ResultsError: a file that cannot be read.
    """
    found = []
    for path in sorted((root / RESULTS).glob(f"*/{FOLDER}/*.csv")):
        try:
            facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            exits = compared(pd.read_csv(path))
        except (OSError, ValueError, KeyError) as error:
            raise unreadable(path, repr(error)) from None
        found.append(Taught(exits, facts, path.relative_to(root)))
    return found


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """One line an exit: what it was before and is after."""
    drafted = pd.to_numeric(rows["drafted"])
    metrics = pd.DataFrame(
        {
            "when": rows["when"],
            "exit_layer": rows["exit_layer"],
            "loss": rows["surprise"] / rows["positions"],
            "agreement": rows["agreed"] / rows["positions"],
            "acceptance": pd.to_numeric(rows["accepted"]) / drafted,
            "num_draft_tokens": pd.to_numeric(rows["num_draft_tokens"]),
        }
    )
    old, new = (
        metrics[metrics["when"] == when].drop(columns="when").set_index("exit_layer")
        for when in (BEFORE, AFTER)
    )
    both = old.join(new, lsuffix="_before", rsuffix="_after", how="inner")
    both = both.drop(columns="num_draft_tokens_after")
    return both.rename(
        columns={"num_draft_tokens_before": "num_draft_tokens"}
    ).reset_index()


def told(exits: pd.DataFrame) -> pd.DataFrame:
    """The exits whose drafts were counted, and the last layer."""
    last = exits["exit_layer"] == exits["exit_layer"].max()
    return exits[last | exits["acceptance_before"].notna()]


def lines(exits: pd.DataFrame) -> list[str]:
    """A line an exit for a terminal: before -> after."""
    last = int(exits["exit_layer"].max())
    found = []
    for line in told(exits).itertuples():
        said = (
            f"exit {line.exit_layer} of {last}: loss {line.loss_before:.3f} -> "
            f"{line.loss_after:.3f} nats"
        )
        if not math.isnan(line.acceptance_before):
            said += (
                f", accepted {line.acceptance_before:.0%} -> "
                f"{line.acceptance_after:.0%} (of {line.num_draft_tokens:.0f} a round)"
            )
        found.append(said)
    return found


def sentence(run: Taught) -> str:
    """What was done, on how much, how long it took; whether every exit's loss fell."""
    facts, settings = run.facts, run.facts["settings"]
    chosen, machine, exits = facts["configuration"], facts["machine"], run.exits
    early = exits[exits["exit_layer"] < run.num_layers]
    fell = int((early["loss_after"] < early["loss_before"]).sum())
    method = "LoRA" if chosen["method"] == "lora" else "all weights"
    taught_on = "this task" if chosen["data"] == "task" else "its reader's own texts"
    return (
        f"{markdown.literal(chosen['source']['name'])} on "
        f"{markdown.literal(machine['chip'])} ({machine['device'].upper()}): {method}, "
        f"{settings['steps']} steps of {settings['batch']} texts of {taught_on}, "
        f"{facts['training']['seconds'] / 60:.0f} minutes. On {facts['texts']['scored']} "
        f"held-out texts the loss fell at {fell} of {len(early)} early exits; the last "
        f"layer's went from {exits['loss_before'].iloc[-1]:.2f} to "
        f"{exits['loss_after'].iloc[-1]:.2f} nats a token."
    )


def fragment(root: Path) -> str:
    """Every taught model: a sentence, a table, its data."""
    parts = []
    for run in load(root):
        shown = told(run.exits)
        length = shown["num_draft_tokens"].max()
        rows = [
            (
                f"{line.exit_layer} of {run.num_layers}",
                f"{line.loss_before:.2f}",
                f"{line.loss_after:.2f}",
                f"{line.agreement_before:.0%}",
                f"{line.agreement_after:.0%}",
                _share(line.acceptance_before),
                _share(line.acceptance_after),
            )
            for line in shown.itertuples()
        ]
        parts += [
            sentence(run),
            markdown_table(HEAD, rows),
            "Loss is in nats a token of held-out texts; agreement is with the last layer "
            f"of the same model; accepted is the share of {length:.0f} drafted tokens a "
            f"round on {run.facts['texts']['counted']} held-out requests. "
            f"{{download}}`Every exit (CSV) <../{run.csv.as_posix()}>`",
        ]
    return "\n\n".join(parts) or NONE


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0%}"
