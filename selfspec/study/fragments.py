"""Markdown that results write: the answer so far, the tables, each page's origins.

Records in, text out; which file a text goes to is pages.py's business. Every number
here is formatted from a record.

    answer(latest(collect(root)))    # "- **Intel Xeon ...**, smollm2-135m. Lossless ..."
"""

import math
from collections.abc import Container, Sequence

import pandas as pd

from selfspec.study import sweep_summary
from selfspec.study.markdown import code, configurations, literal
from selfspec.study.run_records import Record, count, headlines

GENERATED = "<!-- Written by selfspec (study/pages.py) from results/; do not edit. -->"
IN_WORDS = {
    "two caches": "Two caches, as the post did it",
    "one cache": "One cache, with this project's engine",
}
NOTHING = (
    "Not yet measured: `results/` holds no finished run.\n"
    "`make study` measures this machine."
)
MAC_MISSING = (
    "- **Apple silicon (Metal)**: not yet measured here. "
    "On a Mac, `make study` adds the line."
)


def answer(records: Sequence[Record]) -> str:
    """One bullet for each machine and model, below it one for each mechanism."""
    chosen = headlines(list(records))
    if not chosen:
        return NOTHING
    lines = []
    for record in chosen:
        lines.append(
            f"- **{literal(record.machine_name)}**, {literal(record.model_name)}. "
            f"{lossless(record)}."
        )
        lines += [_sentence(name, table) for name, table in record.tables.items()]
    if not any(record.device == "metal" for record in chosen):
        lines.append(MAC_MISSING)
    return "\n".join(lines)


def _sentence(mechanism: str, lines: pd.DataFrame) -> str:
    best = sweep_summary.best(lines)
    parts = [
        f"  - {IN_WORDS.get(mechanism, mechanism)}: the best of "
        f"{configurations(len(lines))} decodes at {best['speedup']:.2f} times the plain "
        f"speed{interval(best)}, "
        f"with {best['skip_fraction']:.0%} of the layers skipped, "
        f"{int(best['num_draft_tokens'])} draft tokens and an acceptance rate of "
        f"{best['acceptance_rate']:.0%}."
    ]
    if count(lines, "too few prompts") == len(lines):
        parts.append("Too few prompts for an interval, so no verdict.")
    else:
        parts.append(
            f"Faster than plain decoding: {count(lines, 'faster')}; "
            f"no difference: {count(lines, 'no difference')}; "
            f"slower: {count(lines, 'slower')}."
        )
    return "\n    ".join(parts)


def plane(shown: Sequence[Record], alt: str) -> str:
    """The acceptance-cost plane as a figure.

    Args:
        shown: the runs whose configurations are in it, all of one machine.
        alt: what it shows, for those who cannot see it.
    """
    whose = "No run of this study is measured yet."
    if shown:
        models = ", ".join(dict.fromkeys(literal(r.model_name) for r in shown))
        days = sorted({record.date for record in shown})
        whose = (
            "Each filled mark is a configuration of this study, measured on "
            f"{literal(shown[0].machine_name)} with {models}, "
            f"{' to '.join(dict.fromkeys([days[0], days[-1]]))}."
        )
    return (
        "```{figure} _generated/plane.svg\n:name: fig-plane\n"
        f":alt: {alt}\n\n"
        "The acceptance-cost plane: a draft pays above the dashed diagonal, where its "
        f"acceptance rate exceeds its cost ratio.\n{whose}\n"
        "Vertical lines are intervals over prompts; hollow diamonds are the post's "
        "published figures.\n{download}`Data (CSV) <_generated/plane.csv>`\n```"
    )


def lossless(record: Record) -> str:
    """How many texts were the target's own, ties counted apart."""
    kept, pairs, ties = record.lossless, record.judged, record.ties
    text = f"Lossless in {kept} of {pairs} pairs"
    return text + (f" (with {ties} ties)" if ties else "")


def interval(line) -> str:
    """' [0.71, 0.75]', or nothing below six prompts."""
    if not math.isfinite(line["low"]):
        return ""
    return f" [{line['low']:.2f}, {line['high']:.2f}]"


def runs_table(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run and mechanism. `pages`: which runs have a page to link to."""
    if not records:
        return NOTHING
    head = (
        "machine",
        "model",
        "run",
        "mechanism",
        "best S",
        "predicted S",
        "skipped, drafted",
        "acceptance",
        "faster / same / slower",
        "lossless",
    )
    rows = []
    for record in records:
        size = f"{{doc}}`{record.size} </{record.page}>`"
        for mechanism, lines in record.tables.items():
            best = sweep_summary.best(lines)
            rows.append(
                (
                    literal(record.machine_name)
                    + (" (drifted)" if record.drifted else ""),
                    literal(record.model_name),
                    (size if record.page in pages else record.size)
                    + f", {record.date}",
                    mechanism,
                    f"{best['speedup']:.2f}{interval(best)}",
                    f"{best['predicted_speedup']:.2f}",
                    f"{best['skip_fraction']:.0%}, {int(best['num_draft_tokens'])}",
                    f"{best['acceptance_rate']:.0%}",
                    verdicts(lines),
                    f"{int(lines['lossless'].sum())} of {int(lines['pairs'].sum())}",
                )
            )
    return table(head, rows)


def verdicts(lines: pd.DataFrame) -> str:
    """How many lines ended faster, the same, slower."""
    if count(lines, "too few prompts") == len(lines):
        return "no interval"
    counts = [count(lines, what) for what in ("faster", "no difference", "slower")]
    return " / ".join(map(str, counts))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def origins(record: Record, folder: str) -> str:
    """The box that a run page opens with: machine, versions, model, code, data.

    Args:
        folder: results/<machine>/<model> as the page links to it.
    """
    facts, machine, model = record.facts, record.facts["machine"], record.facts["model"]
    costs = facts.get("costs", {})
    commit = facts.get("commit") or "unknown"
    weights = model["revision"] or f"SHA-256 {model['sha256']}"
    rows = [
        ("chip", f"{machine['chip']} ({machine['cores']} cores)"),
        ("memory", f"{machine['memory_gb']} GB"),
        ("device", record.device.upper() if record.device == "cpu" else record.device),
        ("system", machine["system"]),
        ("power", machine.get("power") or "unknown"),
        ("BLAS", _blas(machine, costs)),
        ("versions", ", ".join(f"{k} {v}" for k, v in facts["versions"].items())),
        (
            "model",
            f"{literal(model['name'])} ({model['architecture']}, {model['kind']})",
        ),
        ("weights", weights),
        ("quantisation", model["quantisation"]),
        ("size", f"{record.size}: {len(record.table)} configurations"),
        ("commit", commit + (", with uncommitted changes" if facts["dirty"] else "")),
        ("command", code(facts["command"])),
        ("date", facts["date"]),
        ("run", record.run_id),
        ("drift of the baseline", _drift(facts)),
        (
            "data",
            f"{{download}}`rows (CSV) <{folder}/{record.experiment}.csv>`, "
            f"{{download}}`provenance (JSON) <{folder}/provenance.json>`",
        ),
    ]
    text = (
        f"Measured on {literal(record.machine_name)}, {record.date}, "
        f"with {literal(record.model_name)}.\n\n"
        "```{admonition} Where these numbers come from\n:class: note dropdown\n\n"
        f"{table(('what', 'value'), rows)}\n```"
    )
    if record.drifted:
        text += (
            "\n\n```{warning}\nThe baseline moved by "
            f"{facts['drift']:+.0%} between start and end of this run, more than the "
            "bound.\nPairs cancel most of that; the costs measured beforehand do not.\n"
            "```"
        )
    return text


def _blas(machine: dict, costs: dict) -> str:
    if not machine.get("blas"):
        return "not used (GPU)"
    threads = costs.get("blas_threads")
    return machine["blas"] + (f", {threads} threads" if threads else "")


def _drift(facts: dict) -> str:
    drift = facts.get("drift")
    return "not measured" if drift is None else f"{drift:+.1%}"
