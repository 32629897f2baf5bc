"""Markdown that results write: the answer so far, the tables, each page's origins.

Records in, text out; which file a text goes to is pages.py's business. Every number
here is formatted from a record.

    answer(collect(root))     # "- **Intel Xeon ...**: SmolLM2 ... the best of 12 ..."
"""

import math
from collections.abc import Container, Sequence

from selfspec.study.run_records import Record, headlines

GENERATED = "<!-- Written by selfspec (study/pages.py) from results/; do not edit. -->"
NOTHING = (
    "Not yet measured: `results/` holds no finished run.\n"
    "`make study` measures this machine."
)
MAC_MISSING = (
    "- **Apple silicon (Metal)**: not yet measured here. "
    "On a Mac, `make study` adds the line."
)


def answer(records: Sequence[Record]) -> str:
    """One bullet for each machine and model, best runs only."""
    chosen = headlines(list(records))
    if not chosen:
        return NOTHING
    lines = [_sentence(record) for record in chosen]
    if not any(record.device == "metal" for record in chosen):
        lines.append(MAC_MISSING)
    return "\n".join(lines)


def _sentence(record: Record) -> str:
    best, total = record.best, len(record.table)
    parts = [
        f"- **{record.machine_name}**, {record.model_name}: "
        f"the best of {total} configurations decodes at "
        f"{best['speedup']:.2f} times the plain speed{interval(best)}, "
        f"with {best['skip_fraction']:.0%} of the layers skipped, "
        f"{int(best['num_draft_tokens'])} draft tokens and an acceptance rate of "
        f"{best['acceptance_rate']:.0%}."
    ]
    if record.count("too few prompts") == total:
        parts.append("Too few prompts for an interval, so no verdict.")
    else:
        parts.append(
            f"Faster than plain decoding: {record.count('faster')}; "
            f"no difference: {record.count('no difference')}; "
            f"slower: {record.count('slower')}."
        )
    parts.append(lossless(record) + ".")
    return "\n  ".join(parts)


def lossless(record: Record) -> str:
    """How many texts were the target's own, ties counted apart."""
    kept, pairs = int(record.table["lossless"].sum()), int(record.table["pairs"].sum())
    ties = int(record.table["ties"].sum())
    text = f"Lossless in {kept} of {pairs} pairs"
    return text + (f" (with {ties} ties)" if ties else "")


def interval(line) -> str:
    """' [0.71, 0.75]', or nothing below six prompts."""
    if not math.isfinite(line["low"]):
        return ""
    return f" [{line['low']:.2f}, {line['high']:.2f}]"


def runs_table(records: Sequence[Record], pages: Container[str]) -> str:
    """One row a run; CPU rows say CPU. `pages`: which runs have a page to link to."""
    if not records:
        return NOTHING
    head = (
        "machine",
        "model",
        "run",
        "best S",
        "predicted S",
        "skipped, drafted",
        "acceptance",
        "faster / same / slower",
        "lossless",
    )
    rows = []
    for record in records:
        best = record.best
        size = f"{{doc}}`{record.size} </{record.page}>`"
        rows.append(
            (
                record.machine_name + (" (drifted)" if record.drifted else ""),
                record.model_name,
                (size if record.page in pages else record.size) + f", {record.date}",
                f"{best['speedup']:.2f}{interval(best)}",
                f"{best['predicted_speedup']:.2f}",
                f"{best['skip_fraction']:.0%}, {int(best['num_draft_tokens'])}",
                f"{best['acceptance_rate']:.0%}",
                "no interval"
                if record.count("too few prompts") == len(record.table)
                else " / ".join(
                    str(record.count(verdict))
                    for verdict in ("faster", "no difference", "slower")
                ),
                f"{int(record.table['lossless'].sum())} of "
                f"{int(record.table['pairs'].sum())}",
            )
        )
    return table(head, rows)


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
        ("model", f"{model['name']} ({model['architecture']}, {model['kind']})"),
        ("weights", weights),
        ("quantisation", model["quantisation"]),
        ("size", f"{record.size}: {len(record.table)} configurations"),
        ("commit", commit + (", with uncommitted changes" if facts["dirty"] else "")),
        ("command", f"`{facts['command']}`"),
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
        f"Measured on {record.machine_name}, {record.date}, "
        f"with {record.model_name}.\n\n"
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
