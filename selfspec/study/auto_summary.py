"""What the rule that declines promises, whether it held, and what fixed lengths gave.

Fixed lengths come from other runs of the same machine and model, so they stand beside
the rule's own figures and are never a pair with them. Needs no MLX.

    fixed = fixed_settings(collect(root), machine, model)
    compare(draft_summary.summarise(run.rows), fixed)       # one line a draft
"""

from collections.abc import Sequence

import pandas as pd

from selfspec.study.experiments import EXPERIMENTS, MACHINE, NAIVE_SWEEP
from selfspec.study.run_records import Record, headlines, latest, of_experiment

BOUND = 0.98  # what the rule's speedup should reach, whatever the draft is worth
ONE_CACHE = "one cache"  # the sweep's mechanism that the rule runs on too
KEPT, OPEN, BROKEN, UNKNOWN = "above", "covers", "below", "too few prompts"
FIXED = ["draft", "num_draft_tokens", "speedup", "low", "high", "run"]


def promise(low: float, high: float) -> str:
    """Where an interval lies to the bound: above, covers, below, or there is none."""
    if pd.isna(low):
        return UNKNOWN
    if low >= BOUND:
        return KEPT
    return BROKEN if high < BOUND else OPEN


def fixed_settings(records: Sequence[Record], machine: str, model: str) -> pd.DataFrame:
    """Every fixed length that other experiments timed on this machine with this model.

    Columns: draft (labelled as a run of drafts labels it), num_draft_tokens, speedup,
    low, high, run (which run it is from, in words). Of each experiment the largest run.
    """
    same = [r for r in records if (r.machine, r.model) == (machine, model)]
    tables = [
        _fixed(record)
        for record in headlines(latest(of_experiment(same, NAIVE_SWEEP, MACHINE)))
    ]
    if not tables:
        return pd.DataFrame(columns=FIXED)
    return pd.concat(tables, ignore_index=True)


def _fixed(record: Record) -> pd.DataFrame:
    table = record.table
    if record.experiment == NAIVE_SWEEP:
        table = table[table["mechanism"] == ONE_CACHE]
        percent = [f"skip {100 * share:g} %" for share in table["skip_fraction"]]
        table = table.assign(draft=percent)
    title = EXPERIMENTS[record.experiment].title
    return table.assign(run=f"{title}, {record.size}, {record.date}")[FIXED]


def compare(table: pd.DataFrame, fixed: pd.DataFrame) -> pd.DataFrame:
    """One line a draft of an auto run, the same draft's fixed lengths beside it.

    Columns: those of `table`, promise, fixed (how many lengths are known), and best and
    worst of them: best_speedup, best_length, worst_speedup, worst_length (NaN where
    there is none).
    """
    lines = []
    for line in table.to_dict("records"):
        own = fixed[fixed["draft"] == line["draft"]].sort_values("speedup")
        found = {
            **line,
            "promise": promise(line["low"], line["high"]),
            "fixed": len(own),
        }
        for name, place in (("best", -1), ("worst", 0)):
            row = own.iloc[place] if len(own) else {}
            found[f"{name}_speedup"] = row.get("speedup", float("nan"))
            found[f"{name}_length"] = row.get("num_draft_tokens", float("nan"))
        lines.append(found)
    return pd.DataFrame(lines)
