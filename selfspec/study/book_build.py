"""Build the book, strictly, and do not believe an exit code alone.

Jupyter Book 2 given a folder builds nothing and exits 0, and a second run of a build
that warned says nothing, because unchanged pages are not read again. Both are closed
here. Needs no MLX; measures nothing.

    build_book(Path("."))        # book/_build/html/index.html
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml
from tqdm import tqdm

from selfspec.study import pages
from selfspec.study.errors import StudyError

BUILDER = "from jupyter_book.cli.main import main; main()"
STRICT = ("-W", "-n", "--keep-going")
PHASES = ("reading sources", "writing output")  # as Sphinx counts them


def build_book(
    root: Path, *, clean: bool = False, say: Callable[[str], None] | None = None
) -> Path:
    """Bring fragments and table of contents up to date and build the site.

    Args:
        root: the project's folder.
        clean: forget what was built before.
        say: told about each run page that is left out because its results are gone.

    Returns:
        The site's index.html.

    Raises:
        StudyError: another Jupyter Book than the pinned one, or a build with a warning.
        ResultsError: a results file that cannot be read.
    """
    check_version()
    root = root.resolve()
    built = root / "book" / "_build"
    check_links(root)
    written = pages.write(root)
    for page in written.left_out:
        if say is None:
            break
        say(
            f"book/{page}.ipynb is left out: its run is not in results/. "
            "Way out: delete the page, or restore the results"
        )
    if clean:
        shutil.rmtree(built, ignore_errors=True)
    index = built / "html" / "index.html"
    whole = False
    try:
        code, log = _build(root)
        whole = code == 0 and index.is_file()
    finally:
        if not whole:  # or interrupted
            # Unread pages would not warn again: the next build must read them all.
            shutil.rmtree(built / ".doctrees", ignore_errors=True)
            shutil.rmtree(built / "html" / ".doctrees", ignore_errors=True)
    if not whole:
        raise StudyError(
            f"the book did not build: {_complaint(log, root)}. "
            "Way out: `jupyter-book build book` shows the whole log"
        )
    _drop_orphans(root)
    return index


def _build(root: Path) -> tuple[int, str]:
    """Run the builder, with a bar on a terminal; returns its exit code and its log."""
    command = [sys.executable, "-c", BUILDER, "build", "book", *STRICT]
    with (
        subprocess.Popen(
            command,
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
        tqdm(total=100 * len(PHASES), unit="%", leave=False, disable=None) as bar,
    ):
        lines = []
        for line in process.stdout:
            lines.append(line)
            if share := how_far(line):
                bar.set_description(line.split("...")[0].strip())
                bar.update(max(0, share - bar.n))
    return process.returncode, "".join(lines)


def how_far(line: str) -> int:
    """Per cent of both phases together that a line of the builder's log tells; or 0."""
    for number, phase in enumerate(PHASES):
        if found := re.search(rf"{phase}\.\.\. *\[ *(\d+)%\]", line):
            return 100 * number + int(found.group(1))
    return 0


def check_version() -> None:
    """Refuse a Jupyter Book that would build nothing and say that all is well."""
    try:
        found = version("jupyter-book")
    except PackageNotFoundError:
        found = "none"
    if not found.startswith("1."):
        raise StudyError(
            f"the book needs jupyter-book 1.0.4.post1, found {found}. Way out: "
            "pip install -r requirements.txt -c constraints.txt"
        )


def check_links(root: Path) -> None:
    """The book's settings live at the root; book/ holds links to them.

    A checkout without symbolic links leaves text files, which Jupyter Book reports as a
    malformed table of contents.
    """
    for name in ("_config.yml", "_toc.yml"):
        link, real = root / "book" / name, root / name
        if name == "_toc.yml" and link.is_symlink():
            continue  # pages.write makes the file it points to
        if not link.exists() or not link.samefile(real):
            raise StudyError(
                f"book/{name} is not a link to {name}. "
                f"Way out: ln -sf ../{name} book/{name}"
            )


def _complaint(log: str, root: Path) -> str:
    """The first warning or error of the log, in one line, without colours or paths."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", log).replace(f"{root}/", "")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for line in lines:
        if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line):
            return line
    return lines[-1] if lines else "no message"


def _drop_orphans(root: Path) -> None:
    """Remove built pages of runs that have left the book; Sphinx keeps them."""
    html = root / "book" / "_build" / "html"
    text = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    kept = {html / f"{name}.html" for name in _files(text)}
    for path in sorted((html / "runs").rglob("*.html")):
        if path not in kept:
            path.unlink()


def _files(node):
    """Every `file` of a table of contents."""
    if isinstance(node, dict):
        if "file" in node:
            yield node["file"]
        for item in node.values():
            yield from _files(item)
    elif isinstance(node, list):
        for item in node:
            yield from _files(item)
