"""Write what the book takes from results/: fragments, values, the table of contents.

Everything here is remade from results/ and the pages that exist, so that deleting a run
and writing again leaves no trace of it. A file is only touched when its text changes;
Sphinx then rebuilds what depends on it and nothing else.

    written = write(Path("."))
    written.pages           # run pages in the book
    written.left_out        # run pages whose results are gone
"""

import json
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pandas as pd
import yaml

from selfspec.study import (
    api_page,
    arms_table,
    claims,
    claims_page,
    draft_fragments,
    engine_values,
    figure_data,
    figures,
    finetune_table,
    fitted_fragments,
    fragments,
    layerskip_fragments,
    layerskip_values,
    page_check,
    plane,
    projection,
    reference,
    refusals,
    run_records,
    values,
    verdict_page,
)
from selfspec.study.errors import StudyError
from selfspec.study.experiments import EXPERIMENTS, NAIVE_SWEEP
from selfspec.study.results import RESULTS, write_atomic

# The order of the book. A page that is not named here still gets in, before the end.
FRONT = (
    "method",
    "mathematics",
    "losslessness",
    "machine",
    "naive-sweep",
    "engine",
    "auto",
    "layerskip",
    "knapsack",
    "fitted-exit",
    "projection",
    "verdict",
    "claims",
)
BACK = ("add-your-machine", "contributing", "api", "glossary", "references")


@dataclass(frozen=True)
class Written:
    """What `write` did: run pages in the book, run pages left out, files that changed."""

    pages: tuple[str, ...]
    left_out: tuple[str, ...]
    changed: tuple[Path, ...]


def write(root: Path) -> Written:
    """Remake _toc.yml and book/_generated.

    Args:
        root: the project's folder, which holds book/ and results/.

    Raises:
        StudyError: no book here, or a run page that did not run to its end.
        ResultsError: a results file that cannot be read.
    """
    book = root / "book"
    if not (book / "index.md").is_file():
        raise StudyError(
            "there is no book/index.md here. Way out: run this in the project's folder"
        )
    every = run_records.collect(root)
    records = run_records.latest(every)
    sweeps = run_records.of_experiment(records, NAIVE_SWEEP)
    pages, left_out = _run_pages(book, every)
    post, arms = reference.post(root), arms_table.load(root)
    judged = claims.judge(root, records)
    texts = {
        "short-answer.md": verdict_page.short_answer(records),
        "verdict.md": verdict_page.table(records),
        "verdict-details.md": verdict_page.details(records),
        "claims-summary.md": claims_page.summary(judged),
        "claims.md": claims_page.table(judged),
        "api.md": api_page.page(Path(__file__).resolve().parents[2]),
        "answer.md": fragments.answer(sweeps),
        "naive-sweep-runs.md": fragments.runs_table(sweeps, pages),
        "machine-runs.md": draft_fragments.machine_runs(records, pages),
        "auto-runs.md": draft_fragments.auto_runs(records, pages),
        "knapsack-runs.md": draft_fragments.knapsack_runs(records, pages),
        "projection.md": projection.fragment(records, root),
        "layerskip-runs.md": layerskip_fragments.runs(records, pages),
        "layerskip-arms.md": layerskip_fragments.arms(arms),
        "layerskip-finetuned.md": finetune_table.fragment(root),
        "layerskip-published.md": layerskip_fragments.published(root),
        "fitted-exit-runs.md": fitted_fragments.runs(records, pages),
        "fitted-exit-published.md": fitted_fragments.published(root),
        "values.json": _json(
            values.values(records, post)
            | engine_values.values(root)
            | {
                key: values.plain(v)
                for key, v in layerskip_values.of_arms(arms).items()
            }
        ),
        **_plane(records, post),
    }
    for page, record in pages.items():
        folder = f"../../../{RESULTS}/{record.machine}/{record.model}"
        texts[f"{page}.md"] = fragments.origins(record, folder)
        for name, table in figure_data.tables(record).items():
            texts[f"{page}-{name}.csv"] = _csv(table)
    changed = _replace(book / "_generated", texts)
    refused = refusals.pages(root)
    changed += _replace_refusals(book, refused)
    toc = _toc(book, [*pages, *refused])
    if _put(root / "_toc.yml", toc):
        changed.append(root / "_toc.yml")
    return Written(tuple(pages), tuple(left_out), tuple(changed))


def _plane(records: list, post) -> dict[str, str]:
    """The signature figure, of the machine of the largest and latest run."""
    shown = plane.shown(records)
    found = plane.points(shown)
    figures.style()
    return {
        "plane.svg": figures.svg(plane.draw(found, post)),
        "plane.csv": _csv(found),
        "plane.md": fragments.plane(shown, plane.describe(found)),
    }


def _run_pages(book: Path, records: list) -> tuple[dict, list[str]]:
    """Page -> the run it shows; and the pages whose run is not in results/."""
    known = {(record.page, record.run_id): record for record in records}
    last = {record.page: record for record in records}
    pages, left_out = {}, []
    for path in sorted((book / "runs").glob("*/*.ipynb")):
        name = path.relative_to(book).with_suffix("").as_posix()
        notebook = _read(path)
        if failures := page_check.failures(notebook):
            raise StudyError(
                f"book/{name}.ipynb is not a finished page: {failures[0]}. "
                "Way out: delete it, or run the study again"
            )
        run_id = notebook.metadata.get("selfspec", {}).get("run_id", "")
        record = known.get((name, run_id)) if run_id else last.get(name)
        if record:
            pages[name] = record
        else:
            left_out.append(name)
    return pages, left_out


def _read(path: Path):
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise StudyError(
            f"book/runs/{path.parent.name}/{path.name} is not a notebook ({reason}). "
            "Way out: delete it, or restore it with git"
        ) from None


def _toc(book: Path, pages: list[str]) -> str:
    """_toc.yml: parts in the order of the book, runs under their experiment's page."""
    there = {path.stem for path in book.glob("*.md")} - {"index", "README"}
    others = sorted(there - {*FRONT, *BACK})
    chapters = []
    for name in [*(page for page in FRONT if page in there), *others]:
        chapter: dict = {"file": name}
        runs = [page for page in pages if _home(page) == name]
        if runs:
            chapter["sections"] = [{"file": page} for page in runs]
        chapters.append(chapter)
    placed = {
        run["file"] for chapter in chapters for run in chapter.get("sections", [])
    }
    loose = [{"file": page} for page in pages if page not in placed]
    back = [{"file": name} for name in BACK if name in there]
    parts = [
        {"caption": caption, "chapters": files}
        for caption, files in (
            ("The study", chapters),
            ("Runs", loose),
            ("Back matter", back),
        )
        if files
    ]
    toc = {"format": "jb-book", "root": "index", "parts": parts}
    return (
        "# Written by selfspec (study/pages.py) from the pages that exist; paths are\n"
        "# relative to book/, where a link to this file stands.\n"
        + yaml.safe_dump(toc, sort_keys=False)
    )


def _home(page: str) -> str:
    experiment = page.rsplit("/", 1)[-1].rsplit("-", 1)[0]
    return EXPERIMENTS[experiment].home if experiment in EXPERIMENTS else ""


def _csv(table: pd.DataFrame) -> str:
    return table.round(9).to_csv(index=False, lineterminator="\n").rstrip()


def _json(found: dict) -> str:
    return json.dumps(found, indent=1, sort_keys=True)


def _replace(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Make `folder` hold exactly these files; what is in it already is not touched."""
    changed = []
    for name, text in sorted(texts.items()):
        if name.endswith(".md"):
            text = f"{fragments.GENERATED}\n\n{text}"
        if _put(folder / name, text + "\n"):
            changed.append(folder / name)
    wanted = {folder / name for name in texts}
    for path in sorted(folder.rglob("*"), reverse=True):  # files before their folder
        if path.is_file() and path not in wanted:
            path.unlink()
            changed.append(path)
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return changed


def _replace_refusals(book: Path, texts: dict[str, str]) -> list[Path]:
    """Pages of models that cannot be measured: made, and gone with their results."""
    wanted = {book / f"{name}.md": text for name, text in texts.items()}
    changed = []
    for path, text in sorted(wanted.items()):
        if _put(path, f"{fragments.GENERATED}\n\n{text}\n"):
            changed.append(path)
    for path in sorted((book / "runs").glob(f"*/{refusals.PAGE}.md")):
        if path not in wanted:
            path.unlink()
            changed.append(path)
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
    return changed


def _put(path: Path, text: str) -> bool:
    """Write `text` unless the file holds it already; True if it was written."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    write_atomic(path, text)
    return True
