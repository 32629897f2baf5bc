"""Markdown that runs of exits and the trained arms write for the book's page.

Records in, text out, as in fragments.py; every number is formatted from a record.

    runs(latest(collect(root)), pages)
"""

from collections.abc import Container, Sequence
from pathlib import Path

import pandas as pd

from selfspec.study import arms_page, arms_table, layerskip_page, layerskip_summary
from selfspec.study import reference as published_figures
from selfspec.study.draft_fragments import run_cells
from selfspec.study.experiments import LAYERSKIP
from selfspec.study.fragments import NOTHING, interval, table
from selfspec.study.run_records import Record, of_experiment


def runs(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run: layers first, then the clock. `pages`: which have a page."""
    head = (
        "machine",
        "model",
        "run",
        "exits",
        "fewest layers a token",
        "by layers",
        "best S",
        "predicted S",
        "draft",
        "lossless",
    )
    rows = []
    for record in of_experiment(records, LAYERSKIP):
        counted = layerskip_summary.counted(record.facts)
        plain = counted.iloc[0]
        exits = counted[counted["draft"].map(layerskip_summary.exit_layer).notna()]
        least = exits.loc[exits["evaluations"].idxmin()]
        best = layerskip_summary.best(record.table)
        taught = layerskip_page.has_answers(record.facts)
        rows.append(
            (
                *run_cells(record, pages),
                "taught" if taught else "as they come",
                f"{least['evaluations']:.1f} of {plain['evaluations']:.0f}",
                f"{least['speedup']:.2f}",
                f"{best['speedup']:.2f}{interval(best)}",
                f"{best['predicted_speedup']:.2f}",
                f"{best['draft']}, {int(best['num_draft_tokens'])} tokens",
                f"{record.lossless} of {record.judged}, counted "
                f"{int(counted['lossless'].sum())} of {int(counted['texts'].sum())}",
            )
        )
    return table(head, rows) if rows else NOTHING


def arms(found: arms_table.Arms | None) -> str:
    """What the training did: where, the tables, the sentences."""
    if found is None:
        return arms_page.NOT_TRAINED
    return "\n\n".join(
        [
            arms_page.origin(found),
            *map(_table, arms_page.tables(found)),
            *arms_page.sentences(found),
            f"{{download}}`every seed, step and exit (CSV) "
            f"<../{found.folder}/{arms_table.EXITS}>`, "
            f"{{download}}`what training took (CSV) "
            f"<../{found.folder}/{arms_table.TRAINING}>`",
        ]
    )


def published(root: Path) -> str:
    """What others report, a row each."""
    speeds = published_figures.layerskip_speed(root)
    return _table(layerskip_page.published_table(speeds))


def _table(shown: pd.DataFrame) -> str:
    return table(list(shown.columns), shown.to_numpy().tolist())
