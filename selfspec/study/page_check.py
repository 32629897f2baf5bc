"""What may not reach the book: errors, half-run cells, personal data, noise.

Jupyter Book with execution off publishes whatever a notebook holds, a traceback
included, and says nothing. So this file reads an executed notebook, or any text that is
committed, and says in plain words what is wrong with it. It changes nothing.

    problems(notebook)               # ["cell 4 ended in an error: ValueError: ..."]
    leaks(text)                      # paths, host and user names found in the text
"""

import getpass
import platform
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A path below a folder that only exists on one machine. The lookbehind keeps out URLs
# and relative paths, in which the same folder names may occur.
_ABSOLUTE = re.compile(
    r"(?<![\w.:/~-])(?:file://)?"
    r"(?:/(?:Users|home|root|tmp|private|var|opt|usr|mnt|media|Volumes|workspace|"
    r"github|builds)/[^\s\"'<>):,]+|[A-Za-z]:\\{1,2}[\w.][^\s\"'<>):,]*)"
)
_ADDRESS = re.compile(r"<[\w.]+[^<>\n]* at 0x[0-9a-fA-F]{6,}>")
_BAR = re.compile(r"\d+%\|.*\|\s*\d+|\d(?:it/s|s/it)\b|IProgress")
# Names that say nothing about anybody, and that ordinary text is full of.
_COMMON = {
    *("root", "user", "admin", "runner", "ubuntu", "debian", "localhost", "vm", "mac"),
    *(
        "macbook",
        "local",
        "default",
        "main",
        "model",
        "python",
        "test",
        "host",
        "build",
    ),
}
TITLE_ID = "title"  # of the cell that page_finish adds to a template without heading
_WIDGET = "application/vnd.jupyter.widget-view+json"


def named_cells(notebook) -> Iterator[tuple[str, Any]]:
    """Each cell with the name its author knows it by: 'cell 3' as in the template."""
    number = 0
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            yield "the cell of injected parameters", cell
        elif cell.get("id") == TITLE_ID:
            yield "the title", cell
        else:
            number += 1
            yield f"cell {number}", cell


def failures(notebook) -> list[str]:
    """Signs that the run did not end well, one line each; a page with one is half a run.

    Args:
        notebook: nbformat notebook, as papermill leaves it or as it is published.
    """
    found = []
    if notebook.metadata.get("papermill", {}).get("exception"):
        found.append("papermill marked the run as failed")
    for name, cell in _code_cells(notebook):
        if cell.source.strip() and cell.get("execution_count") is None:
            found.append(f"{name} was not run (no execution count)")
        if cell.metadata.get("papermill", {}).get("exception"):
            found.append(f"{name} is marked as failed by papermill")
        found += [
            f"{name} ended in an error: {output.ename}: {output.evalue}"
            for output in cell.get("outputs", [])
            if output.output_type == "error"
        ]
    return found


def problems(notebook) -> list[str]:
    """Everything that keeps an executed notebook out of the book, one line each."""
    found = failures(notebook)
    for name, cell in _code_cells(notebook):
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                found.append(f"{name} holds text that went to stderr")
            for text in _texts(output):
                found += [f"{name} {what}" for what in noise(text)]
    for name, cell in named_cells(notebook):
        for text in _all_texts(cell):
            found += [f"{name} shows {leak!r}" for leak in leaks(text)]
    for text in _strings(notebook.metadata):
        found += [f"the notebook's metadata hold {leak!r}" for leak in leaks(text)]
    return list(dict.fromkeys(found))


def noise(text: str) -> list[str]:
    """Traces of progress bars and of object addresses, which change with every run."""
    found = []
    if "\r" in text or _BAR.search(text):
        found.append("shows a progress bar")
    if match := _ADDRESS.search(text):
        found.append(f"shows an object's address: {match.group()}")
    return found


def leaks(text: str) -> list[str]:
    """Absolute paths, this machine's name and its user's name, as found in `text`.

    A short or ordinary name (root, mac, will) counts only where it stands like a name:
    behind a slash or an at sign, or alone; else prose could not be written.
    """
    found = [match.group() for match in _ABSOLUTE.finditer(text)]
    for place in _own_places():
        if re.search(re.escape(place) + r"(?![\w-])", text):
            found.append(place)
    for name in _own_names():
        if _is_distinct(name):
            pattern = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        elif name.lower() in _COMMON:
            pattern = rf"\w@{re.escape(name)}\b"
        else:
            pattern = rf"@{re.escape(name)}\b|/{re.escape(name)}/|\b{re.escape(name)}@"
        if re.search(pattern, text) or (
            text.strip() == name and name.lower() not in _COMMON
        ):
            found.append(name)
    return list(dict.fromkeys(found))


def _is_distinct(name: str) -> bool:
    return len(name) >= 6 and bool(re.search(r"[\d.-]|[a-z][A-Z]", name))


def _own_places() -> list[str]:
    """This machine's home, working and temporary folders, if they are deep enough."""
    places = {Path.home(), Path.cwd(), Path(tempfile.gettempdir())}
    places |= {place.resolve() for place in places}
    return sorted(str(place) for place in places if len(place.parts) > 2)


def _own_names() -> list[str]:
    names = {platform.node(), platform.node().split(".")[0]}
    try:
        names.add(getpass.getuser())
    except (OSError, KeyError, ImportError):
        pass  # no user name is known here, so none can leak
    return sorted(name for name in names if len(name) > 1)


def _code_cells(notebook):
    return [
        (name, cell) for name, cell in named_cells(notebook) if cell.cell_type == "code"
    ]


def _texts(output) -> Iterator[str]:
    """What a reader sees as text of one output; not pictures."""
    if "text" in output:
        yield output.text
    for kind, data in output.get("data", {}).items():
        if kind == _WIDGET:
            yield "IProgress"  # a widget is dead on a page; the usual one is a bar
        elif kind.startswith("text/") and isinstance(data, str):
            yield data


def _all_texts(cell) -> Iterator[str]:
    yield cell.source
    yield from _strings(cell.metadata)
    for output in cell.get("outputs", []):
        yield from _strings(
            {key: value for key, value in output.items() if key != "data"}
        )
        for kind, data in output.get("data", {}).items():
            if not kind.startswith("image/") or kind == "image/svg+xml":
                yield from _strings(data)


def _strings(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
