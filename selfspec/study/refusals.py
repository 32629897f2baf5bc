"""Models that cannot be measured: kept as a result, shown on a page that says why.

A refusal is a run without rows: results/<machine>/<model>/provenance.json says
"not_measured" and why. Its page book/runs/<machine>--<model>/refused.md is made from that,
so it goes when the result goes. Needs no MLX.

    record(root, "naive-sweep", facts, "its caches cannot be rolled back. Way out: ...")
    for name, text in pages(root).items():      # below book/, without ending
        ...
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfspec.study.experiments import EXPERIMENTS
from selfspec.study.markdown import literal
from selfspec.study.results import RESULTS, Run, read_provenance

PAGE = "refused"
KEY = "not_measured"


def record(
    folder: Path, experiment: str, facts: Mapping[str, Any], reason: str
) -> None:
    """Keep that an experiment was refused, once for each reason.

    Args:
        folder: results/<machine>/<model>.
        facts: provenance of the attempt.
        reason: one line.

    Raises:
        ResultsError: it cannot be kept.
    """
    for known in read_provenance(folder).values():
        if (known.get("experiment"), known.get(KEY)) == (experiment, reason):
            return
    with Run.open(
        folder, experiment, (), KEY, total=0, provenance={**facts, KEY: reason}
    ) as run:
        run.finish({})


def pages(root: Path) -> dict[str, str]:
    """Page below book/, without its ending -> its text.

    Raises:
        ResultsError: a provenance that cannot be read.
    """
    found = {}
    for place in sorted((root / RESULTS).glob("*/*/provenance.json")):
        runs = [run for run in read_provenance(place.parent).values() if KEY in run]
        if runs:
            machine, model = place.parent.parent.name, place.parent.name
            found[f"runs/{machine}--{model}/{PAGE}"] = _page(runs, machine, model)
    return found


def _page(runs: list[Mapping[str, Any]], machine: str, model: str) -> str:
    facts = runs[-1]
    lines = [
        f"(refused-{machine}--{model})=",
        "",
        f"# {literal(facts['model']['name'])} on {literal(facts['machine']['chip'])}: "
        "not measured",
        "",
        "This model cannot be measured here, and this page says why.",
        "No number of the book is of this model.",
        "",
    ]
    for run in runs:
        title = EXPERIMENTS[run["experiment"]].title
        lines += [f"{title}", f": {literal(run[KEY])}", ""]
    versions = facts.get("versions", {})
    used = ", ".join(f"{name} {versions[name]}" for name in sorted(versions))
    lines.append(f"Tried on {facts['date'][:10]} with {literal(used)}.")
    return "\n".join(lines)
