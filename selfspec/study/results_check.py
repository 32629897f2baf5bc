"""Whether results/ holds what a page may show: whole rows, each with its origins.

Reads everything and changes nothing; needs no MLX. A fault is one line that begins with
the file.

    for line in faults(Path(".")):
        print(line)
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfspec.study import page_check, refusals
from selfspec.study.experiments import EXPERIMENTS
from selfspec.study.results import RESULTS, ResultsError, read_csv, read_provenance
from selfspec.study.row_table import LOSSLESS, SAMPLED, load_rows

REFERENCE = "reference"  # published figures; their origins are columns
PROVENANCE = "provenance.json"
OF_ANY = ("machine", "versions", "commit", "date")
OF_A_RUN = (*OF_ANY, "model", "dirty", "code", "command", "size", "parameters")
OF_A_MACHINE = ("chip", "cores", "memory_gb", "system", "device", "power", "blas")
OF_A_MODEL = ("name", "kind", "sha256", "architecture", "quantisation")
# What tells two rows of a run apart, as far as the experiment has it.
KEY = (
    *("mechanism", "skip_fraction", "draft", "num_draft_tokens", "temperature"),
    *("prompt_id", "repeat"),
)


def faults(root: Path) -> list[str]:
    """What is wrong below root/results, one line each; [] when all is whole."""
    found: list[str] = []
    for folder in sorted(
        path for path in (root / RESULTS).glob("*/*") if path.is_dir()
    ):
        found += _of_folder(folder, root)
    found += _of_reference(root / RESULTS / REFERENCE, root)
    for path in sorted((root / RESULTS).rglob("*")):
        if path.is_file() and _is_visible(path, root):
            found += _of_text(path, root)
    return list(dict.fromkeys(found))


def count(root: Path) -> int:
    """How many files were looked at."""
    return sum(
        path.is_file() and _is_visible(path, root)
        for path in (root / RESULTS).rglob("*")
    )


def _is_visible(path: Path, root: Path) -> bool:
    """Markers, locks and what is still being trained begin with a dot; git has none."""
    parts = path.relative_to(root).parts
    return not any(part.startswith(".") for part in parts)


def _of_text(path: Path, root: Path) -> Iterator[str]:
    name = path.relative_to(root).as_posix()
    try:
        text = path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        yield f"{name}: cannot be read as UTF-8 text ({error})"
        return
    for leak in page_check.leaks(text):
        yield f"{name}: names {leak!r}, which is of one machine only"


def _of_folder(folder: Path, root: Path) -> Iterator[str]:
    place = folder.relative_to(root).as_posix()
    try:
        runs = read_provenance(folder)
    except ResultsError as error:
        yield _plain(error, root)
        return
    for run_id, facts in runs.items():
        for what in _of_run(facts):
            yield f"{place}/{PROVENANCE}: run {run_id}: {what}"
    tables = {path.stem: path for path in sorted(folder.glob("*.csv"))}
    for stem, path in tables.items():
        if stem in EXPERIMENTS:
            yield from _of_rows(path, runs, root)
        else:
            yield from _of_table(path, root)
            if not {f"{stem}.json", "about.json"} & {p.name for p in folder.iterdir()}:
                yield f"{place}/{path.name}: no {stem}.json or about.json tells of it"
    for path in sorted(folder.glob("*.json")):
        if path.name != PROVENANCE and _is_visible(path, root):
            yield from _of_origins(path, root)
    for run_id, facts in runs.items():
        name = facts.get("experiment") if isinstance(facts, dict) else None
        if name in EXPERIMENTS and name not in tables and not facts.get(refusals.KEY):
            yield f"{place}/{PROVENANCE}: run {run_id}: there is no {name}.csv"


def _of_run(facts: Any) -> Iterator[str]:
    """What is missing of one run's provenance."""
    if not isinstance(facts, dict):
        yield "its provenance is no object"
        return
    name = facts.get("experiment")
    if name not in EXPERIMENTS:
        yield f"no experiment {name!r} is known here"
    yield from _missing(facts, OF_A_RUN, "")
    yield from _missing(facts.get("machine"), OF_A_MACHINE, "machine.")
    yield from _missing(facts.get("model"), OF_A_MODEL, "model.")


def _missing(facts: Any, names: tuple[str, ...], before: str) -> Iterator[str]:
    facts = facts if isinstance(facts, dict) else {}
    lacking = [f"{before}{name}" for name in names if name not in facts]
    if lacking:
        yield f"its provenance does not say {', '.join(lacking)}"


def _of_rows(path: Path, runs: dict[str, Any], root: Path) -> Iterator[str]:
    """Rows of an experiment: each of a known run, each once, each text judged."""
    name = path.relative_to(root).as_posix()
    try:
        rows = read_csv(path)
        for run_id in dict.fromkeys(row["run_id"] for row in rows):
            load_rows(path, run_id)  # text where a number belongs
    except ResultsError as error:
        yield _plain(error, root)
        return
    seen = Counter(
        (row["run_id"], *(row.get(column, "") for column in KEY)) for row in rows
    )
    for run_id, number in Counter(row["run_id"] for row in rows).items():
        run = runs.get(run_id)
        if not isinstance(run, dict) or run.get("experiment") != path.stem:
            yield f"{name}: {number} rows of run {run_id}, which {PROVENANCE} lacks"
            continue
        sizes = {row.get("size") for row in rows if row["run_id"] == run_id}
        if sizes != {run.get("size")}:
            yield f"{name}: run {run_id} is of another size than its rows"
        twice = sum(n > 1 for key, n in seen.items() if key[0] == run_id)
        if twice:
            yield f"{name}: run {run_id} has {twice} configurations twice"
        texts = {row.get("lossless") for row in rows if row["run_id"] == run_id}
        for word in sorted(map(str, texts - {*LOSSLESS, SAMPLED})):
            yield f"{name}: run {run_id} has texts that are {word!r}, not the target's"
    known = {row["run_id"] for row in rows}
    for run_id, run in runs.items():
        mine = isinstance(run, dict) and run.get("experiment") == path.stem
        if mine and run.get("finished") and run_id not in known:
            if not run.get(refusals.KEY):
                yield f"{name}: the rows of run {run_id} are gone"


def _of_table(path: Path, root: Path) -> Iterator[str]:
    """Any other table: it can be read and every row is as wide as the header."""
    name = path.relative_to(root).as_posix()
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file, strict=True))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        yield f"{name}: cannot be read ({error})"
        return
    if len(lines) < 2:
        yield f"{name}: holds no rows"
    for number, line in enumerate(lines, start=1):
        if len(line) != len(lines[0]):
            yield f"{name}: line {number} is incomplete"


def _of_origins(path: Path, root: Path) -> Iterator[str]:
    """A file that tells of a benchmark or a training."""
    name = path.relative_to(root).as_posix()
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        yield f"{name}: cannot be read ({error})"
        return
    for what in _missing(facts, OF_ANY, ""):
        yield f"{name}: {what}"


def _of_reference(folder: Path, root: Path) -> Iterator[str]:
    """Published figures: every row says where it was published."""
    bibliography = root / "book" / "references.bib"
    known = bibliography.read_text(encoding="utf-8") if bibliography.is_file() else ""
    for path in sorted(folder.glob("*.csv")):
        yield from _of_table(path, root)
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        except (csv.Error, UnicodeDecodeError, OSError):
            continue  # told already
        for number, row in enumerate(rows, start=2):
            source = (row.get("source") or "").strip()
            is_key = " " not in source  # else it says in words where it is from
            if is_key and f"{{{source}," not in known:
                name = path.relative_to(root).as_posix()
                yield f"{name}: line {number}: no source {source!r} in references.bib"


def _plain(error: ResultsError, root: Path) -> str:
    return str(error).replace(f"{root}/", "")
