"""Markdown that runs of a fitted exit write for the book's page.

runs(latest(collect(root)), pages)
"""

from collections.abc import Container, Sequence
from pathlib import Path

from selfspec.study import fitted_page, fitted_summary, reference
from selfspec.study.draft_fragments import run_cells
from selfspec.study.experiments import FITTED
from selfspec.study.fragments import NOTHING, interval, table
from selfspec.study.run_records import Record, of_experiment


def runs(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run. `pages`: which have a page."""
    head = (
        "machine",
        "model",
        "run",
        "bridge",
        "trained on",
        "per-token acceptance, held out",
        "needed",
        "best S",
        "predicted S",
        "draft tokens",
        "lossless",
    )
    rows = []
    for record in of_experiment(records, FITTED):
        card, needed = record.facts["bridge"], record.facts["needs"]["needed"]
        best = fitted_summary.best(record.table)
        agreed = fitted_summary.curve(record.facts)["agreed"].max()
        rows.append(
            (
                *run_cells(record, pages),
                f"after layer {card['exit_layer']}, {card['kind']}",
                f"{card['data']['tokens']} tokens",
                f"{agreed:.0%}",
                "more than all" if needed is None else f"{needed:.0%}",
                f"{best['speedup']:.2f}{interval(best)}",
                f"{best['predicted_speedup']:.2f}",
                int(best["num_draft_tokens"]),
                f"{record.lossless} of {record.judged}",
            )
        )
    return table(head, rows) if rows else NOTHING


def published(root: Path) -> str:
    """What others report, a row each."""
    shown = fitted_page.published_table(reference.fitted_exits(root))
    return table(list(shown.columns), shown.to_numpy().tolist())
