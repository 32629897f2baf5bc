"""Whether the book is what the results say: run pages whole, fragments current.

Changes nothing: what would be written is written to a shadow of the project and
compared. Needs no MLX. A fault is one line that begins with the file.

    run_pages(Path("."))       # book/runs/...: cell 4 ended in an error: ...
    stale(Path("."))           # book/_generated/answer.md: not what the results say
"""

import tempfile
from pathlib import Path

import nbformat

from selfspec.study import page_check, pages
from selfspec.study.errors import StudyError
from selfspec.study.results import ResultsError

BUILT = "_build"


def run_pages(root: Path) -> list[str]:
    """Faults of the executed notebooks below book/runs."""
    found = []
    for path in _run_pages(root):
        name = path.relative_to(root).as_posix()
        try:
            notebook = nbformat.read(path, as_version=4)
        except Exception as error:  # whatever a file that is no notebook makes it raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            found.append(f"{name}: is not a notebook ({reason})")
            continue
        found += [f"{name}: {what}" for what in page_check.problems(notebook)]
        if not notebook.metadata.get("selfspec", {}).get("run_id"):
            found.append(f"{name}: does not say which run it shows")
    return found


def stale(root: Path) -> list[str]:
    """Generated files that are not what results/ and the pages say.

    Results and run pages must be without faults themselves.
    """
    root = root.resolve()
    with tempfile.TemporaryDirectory(prefix="selfspec-") as scratch:
        shadow = Path(scratch).resolve() / "project"
        _shadow(root, shadow)
        try:
            written = pages.write(shadow)
        except (StudyError, ResultsError) as error:
            return [str(error).replace(f"{shadow}/", "")]
        changed = [path.relative_to(shadow).as_posix() for path in written.changed]
    found = [
        f"{name}: not what the results say. Way out: selfspec book" for name in changed
    ]
    found += [
        f"book/{name}.ipynb: its run is not in results/. Way out: delete the page, or "
        "restore the results"
        for name in written.left_out
    ]
    return found


def count(root: Path) -> int:
    """How many run pages there are."""
    return len(_run_pages(root))


def _run_pages(root: Path) -> list[Path]:
    return sorted((root / "book" / "runs").glob("*/*.ipynb"))


def _shadow(root: Path, shadow: Path) -> None:
    """Folders of its own with links to every file: a file that is replaced stays as it
    was in the project, and only its link goes."""
    shadow.mkdir(parents=True)
    for path in root.iterdir():
        if path.name != "book":
            (shadow / path.name).symlink_to(path)
    for path in sorted((root / "book").rglob("*")):
        inside = path.relative_to(root)
        if BUILT in inside.parts:
            continue
        (shadow / inside).parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            (shadow / inside).symlink_to(path)
