"""A copy of the project to build in, and runs that nobody measured to build it with.

root = book_project.copy_to(tmp_path / "clone")
book_project.add_run(root, machine="apple-m3-16gb-metal", model="tiny-0.5b")
book_project.build(root)
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

from selfspec.study import draft_rows, runner, sweep_rows
from selfspec.study.results import Run
from selfspec.study.sweep_summary import MECHANISMS

ROOT = Path(__file__).resolve().parents[1]
PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40">'
    '<rect width="80" height="40" fill="white"/><path d="M0 40L80 0" stroke="black"/></svg>'
)
BUILT = {".venv", "_build", ".git", "__pycache__", ".pytest_cache", ".ruff_cache"}
BUILT |= {".mypy_cache"}
STRICT = ("-W", "-n", "--keep-going")
# Source of a line that says which run a page shows
RUN_ID = (
    "from IPython.display import HTML, display\n"
    "display(HTML('<b>1</b>'), metadata={'selfspec': {'run_id': sweep.run_id}})"
)
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def copy_to(folder: Path) -> Path:
    """Everything git would commit, as a fresh clone has it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.split("\0")
    if listed.returncode:  # an archive without git
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        names = [name for name in names if not BUILT & set(Path(name).parts)]
    for name in filter(None, names):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def build(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """The literal command, from the root, with this environment's jupyter-book."""
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", "book"]
    return subprocess.run(
        [*command, *words],
        cwd=root,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", **environment},
    )


def html(root: Path, page: str) -> str:
    """The built page's source."""
    return (root / "book" / "_build" / "html" / f"{page}.html").read_text("utf-8")


def facts(device: str = "metal", **changes) -> dict:
    """Provenance of an invented run."""
    return {
        "machine": {
            "chip": "Apple M3" if device == "metal" else "Testron 9000",
            "cores": 8,
            "memory_gb": 16,
            "system": "macOS 26.1" if device == "metal" else "Linux 6.1",
            "device": device,
            "power": "mains",
            "blas": "OpenBLAS 0.3" if device == "cpu" else "",
        },
        "versions": {"python": "3.12.1", "mlx": "0.32.4", "mlx-lm": "0.32.2"},
        "model": {
            "name": "tiny-0.5b",
            "kind": "folder",
            "revision": "",
            "sha256": "ab" * 32,
            "architecture": "llama",
            "quantisation": "4 bits",
            "num_layers": 4,
            "num_parameters": 1000,
            "num_bytes": 4000,
        },
        "commit": "0123456789ab",
        "dirty": False,
        "code": "c0de",
        "command": "selfspec study --model tiny-0.5b --size default",
        "date": "2026-11-30T12:00:00+00:00",
        "parameters": {},
        "size": "default",
        "costs": {
            "step_seconds": 0.01,
            "verify_ratio": {"2": 1.1, "3": 1.25, "6": 1.5},
            "cost_ratio": {"0.1": 0.9, "0.5": 0.55},
            "context_length": 32,
            "blas_threads": 1 if device == "cpu" else 0,
        },
        "drift": 0.01,
        **changes,
    }


def add_results(
    root: Path,
    *,
    machine: str = "apple-m3-16gb-metal",
    model: str = "tiny-0.5b",
    prompts: int = 6,
    speedup: float = 0.75,
    mechanisms: tuple[str, ...] = MECHANISMS[:1],
    finish: bool = True,
    **changes,
) -> str:
    """Rows and provenance of an invented run; returns its id."""
    known = facts("cpu" if machine.endswith("cpu") else "metal", **changes)
    rng = random.Random(7)
    folder = root / "results" / machine / model
    with Run.open(
        folder,
        "naive-sweep",
        sweep_rows.COLUMNS,
        f"{speedup}{known['size']}{known['date']}",
        total=2 * prompts * len(mechanisms),
        provenance=known,
    ) as run:
        for fraction, factor in (("0.1", 1.0), ("0.5", 0.5)):
            for number in range(prompts):
                ratio = speedup * factor * rng.uniform(0.98, 1.02)
                for place, mechanism in enumerate(mechanisms):  # each better by 0.2
                    row = _row(known["size"], fraction, number, ratio + 0.2 * place)
                    run.append(row | {"mechanism": mechanism})
        if finish:
            run.finish({})
        return run.id


DRAFT_CASES = {
    "machine": (("skip 10 %", 2), ("exit 2", 3)),
    "auto": (("skip 10 %", "auto"), ("lookup", "auto")),
}


def add_draft_results(
    root: Path,
    experiment: str,
    *,
    machine: str = "apple-m3-16gb-metal",
    model: str = "tiny-0.5b",
    prompts: int = 6,
    speedup: float = 0.8,
    cases: tuple | None = None,
    **changes,
) -> str:
    """Rows and provenance of an invented run of drafts; returns its id.

    The first case has `speedup` on every prompt, give or take 2 %; each further one is
    better by 0.2.
    """
    cases = cases or DRAFT_CASES[experiment]
    device = "cpu" if machine.endswith("cpu") else "metal"
    known = facts(device, policy={"budget": 0.01, "allowance": 2.5}, **changes)
    rng = random.Random(7)
    with Run.open(
        root / "results" / machine / model,
        experiment,
        draft_rows.COLUMNS,
        f"{speedup}{known['size']}{known['date']}",
        total=prompts * len(cases),
        provenance=known,
    ) as run:
        for place, (draft, length) in enumerate(cases):
            for number in range(prompts):
                ratio = (speedup + 0.2 * place) * rng.uniform(0.98, 1.02)
                row = _row(known["size"], "0.1", number, ratio)
                row |= {
                    "draft": draft,
                    "num_draft_tokens": length,
                    "order": f"baseline > {draft}, {length}",
                    "temperature": 0,
                    "plain_tokens": 6,
                    "cost_ratio": round(0.9 - 0.3 * place, 6),
                    "verify_ratio": "" if length == "auto" else 1.25,
                    "held_out_acceptance_rate": 0.5,
                    "predicted_held_out": round(ratio * 0.9, 6),
                }
                run.append({name: row.get(name, 1) for name in draft_rows.COLUMNS})
        run.finish({})
        return run.id


def _row(size: str, fraction: str, number: int, speedup: float) -> dict:
    row = dict.fromkeys(sweep_rows.COLUMNS, 1)
    return row | {
        "size": size,
        "skip_fraction": fraction,
        "num_draft_tokens": 2,
        "prompt_id": f"chat-{number}",
        "domain": "chat",
        "order": "baseline > two caches",
        "tokens": 24,
        "speedup": round(speedup, 6),
        "predicted_speedup": round(speedup * 1.05, 6),
        "rounds": 12,
        "drafted": 24,
        "accepted": 12 if fraction == "0.1" else 2,
        "first_drafted": 12,
        "first_accepted": 8,
        "drafted_accepted_per_round": "2:1",
        "lossless": "equal",
        "ties": 0,
        "repeated_ngram_share": 0.1,
        "cost_ratio": 0.9,
        "verify_ratio": 1.25,
        "device": "metal",
    }


def template(path: Path, *cells: str, kernel: dict | None = KERNEL) -> Path:
    """Write a notebook: text that begins with # is prose, `parameters` is tagged."""
    notebook = nbformat.v4.new_notebook()
    for source in cells:
        prose = source.startswith("# ")
        make = nbformat.v4.new_markdown_cell if prose else nbformat.v4.new_code_cell
        cell = make(source)
        if source.startswith("model = "):
            cell.metadata["tags"] = ["parameters"]
        notebook.cells.append(cell)
    if kernel is not None:
        notebook.metadata["kernelspec"] = kernel
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def figure(name: str = "speedup", csv: str = "") -> str:
    """Source of a cell that shows a picture the way figures.show does."""
    words = {
        "name": name,
        "alt": f"A line that rises: {name}.",
        "caption": "It rises.",
        "csv": csv,
    }
    return (
        "from IPython.display import display\n"
        f"display({{'image/svg+xml': {PICTURE!r}}}, raw=True, "
        f"metadata={{'selfspec': {words!r}}})"
    )


def add_run(root: Path, scratch: Path, *, title: str = "A run", **which) -> Path:
    """An invented run with its page, made by the real runner from a small template."""
    machine = which.setdefault("machine", "apple-m3-16gb-metal")
    model = which.setdefault("model", "tiny-0.5b")
    run_id = add_results(root, **which)
    source = template(
        scratch / "small.ipynb",
        "# Small\n\n[](#speedup) rises, and {numref}`speedup` too.",
        "model = 'm'",
        figure(csv=f"results/{machine}/{model}/naive-sweep.csv"),
        "from IPython.display import HTML, display\n"
        "display(HTML('<table><tr><td>1</td></tr></table>'), "
        f"metadata={{'selfspec': {{'run_id': {run_id!r}}}}})",
    )
    size = which.get("size", "default")
    return runner.run_notebook(
        source,
        {"model": model},
        page=runner.page_path(root, machine, model, "naive-sweep", size),
        label=f"{machine}--{model}-naive-sweep-{size}",
        title=title,
        cwd=root,
    )


def forget_runs(root: Path) -> None:
    """Take away every run, as if nothing had been measured."""
    for folder in (root / "results").iterdir():
        if folder.is_dir() and folder.name != "reference":
            shutil.rmtree(folder)
    shutil.rmtree(root / "book" / "runs", ignore_errors=True)
