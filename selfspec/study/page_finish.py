"""From an executed notebook to a page of the book.

Jupyter Book takes alt text and captions from a cell's metadata, but only the running
notebook knows what its figure shows; so a figure is displayed with its words beside it
and this file moves them to where the book looks. It also makes titles and labels
differ between pages made from one template, and drops what would change with every run
(dates, durations, progress bars). It runs nothing and writes nothing.

    dress(notebook, label="apple-m3--qwen3-4b-4bit-naive-sweep-paper",
          title="Naive layer skip: Qwen3-4B", intro="```{include} ...", data=str,
          parameters={"model": "qwen3-4b"})
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import nbformat

from selfspec.study import page_check
from selfspec.study.errors import StudyError

SVG = "image/svg+xml"
# Where a label is defined in prose, and where one is used.
_DEFINED = re.compile(
    r"^\(([\w-]+)\)=\s*$|^:(?:name|label):\s*([\w-]+)\s*$|^\$\$\s*\(([\w-]+)\)\s*$",
    re.MULTILINE,
)
_USED = (
    r"(^\(){0}(?=\)=)",
    r"(^:(?:name|label): *){0}(?=\s*$)",
    r"(^\$\$ *\(){0}(?=\))",
    r"(\{{(?:ref|numref|eq)\}}`(?:[^`<]*<)?){0}(?=>?`)",
    r"(\]\(#?){0}(?=\))",
)


def dress(
    notebook,
    *,
    label: str,
    title: str,
    intro: str,
    data: Callable[[str], str],
    parameters: Mapping[str, Any],
) -> None:
    """Turn an executed notebook into a page, in place.

    Args:
        label: file-name-safe and unique in the book; ends every label of the page.
        title: replaces the first-level heading.
        intro: Markdown that goes below the heading.
        data: where the page finds the file that a figure names as its CSV; '' when
            it cannot link to it.
        parameters: what the injected cell shows, local folders by their names.

    Raises:
        StudyError: a figure without alt text, or two figures in one cell.
    """
    for place, cell in page_check.named_cells(notebook):
        if cell.cell_type == "code":
            _clean_outputs(cell)
            _describe_figure(cell, place, label, data)
        _clean_metadata(cell)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.id = "injected-parameters"  # else random, and every re-run a diff
            cell.source = _assignments(parameters)
    _rename_labels(notebook, label)
    _set_title(notebook, title, intro)


def _assignments(parameters: Mapping[str, Any]) -> str:
    """The injected cell as its reader may see it.

    Written anew, because papermill escapes what is not ASCII and a path that is spelled
    another way cannot be found and replaced.
    """
    lines = [
        f"{name} = "
        + (
            json.dumps(value, ensure_ascii=False)
            if isinstance(value, str)
            else f"{value!r}"
        )
        for name, value in parameters.items()
    ]
    return "\n".join(["# Parameters", *lines])


def _clean_outputs(cell) -> None:
    """Drop stderr and widgets; keep of each line what a terminal would have kept."""
    kept = []
    for output in cell.outputs:
        if output.get("name") == "stderr":
            continue
        if any("widget" in kind for kind in output.get("data", {})):
            continue
        if "text" in output:
            lines = output.text.replace("\r\n", "\n").split("\n")
            lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines]
            output.text = "\n".join(lines)
        if svg := output.get("data", {}).get(SVG):
            output.data[SVG] = re.sub(r"<dc:date>[^<]*</dc:date>\s*", "", svg)
        kept.append(output)
    cell.outputs = kept


def _describe_figure(cell, place: str, label: str, data) -> None:
    """Move what the figure says of itself to where myst-nb looks for it."""
    said = [
        output.metadata.pop("selfspec")
        for output in cell.outputs
        if "selfspec" in output.get("metadata", {})
    ]
    said = [what for what in said if "alt" in what or "caption" in what]
    pictures = [
        output
        for output in cell.outputs
        if any(kind.startswith("image/") for kind in output.get("data", {}))
    ]
    if not pictures:
        return
    if len(pictures) > 1:
        raise StudyError(
            f"{place} shows {len(pictures)} figures and a page can describe one "
            "a cell. Way out: give each figure a cell of its own"
        )
    if not said or not said[0].get("alt"):
        raise StudyError(
            f"the figure in {place} has no alt text. Way out: display it with "
            'metadata={"selfspec": {"name": ..., "alt": ..., "caption": ...}}'
        )
    [what] = said
    mystnb = cell.metadata.setdefault("mystnb", {})
    mystnb["image"] = {
        **mystnb.get("image", {}),
        "alt": what["alt"],
        # how wide a column the figure was drawn for; never wider than the page
        **({"width": str(what["width"])} if what.get("width") else {}),
    }
    caption = what.get("caption", "").strip()
    if csv := what.get("csv") and data(str(what["csv"])):
        caption += f" {{download}}`Data (CSV) <{csv}>`"
    mystnb["figure"] = {
        **mystnb.get("figure", {}),
        "caption": caption.strip(),
        "name": f"{what.get('name', f'figure-{cell.id}')}-{label}",
    }


def _clean_metadata(cell) -> None:
    """Drop dates, durations and editor state; say which cells are parameters."""
    for key in ("papermill", "execution", "ExecuteTime", "collapsed", "scrolled"):
        cell.metadata.pop(key, None)
    tags = cell.metadata.get("tags", [])
    if "parameters" in tags and "hide-input" not in tags:
        cell.metadata["tags"] = [*tags, "hide-input"]  # defaults: there, but folded


def _rename_labels(notebook, label: str) -> None:
    """Give every label the template defines, and every use of it, this page's ending."""
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    names = {
        name
        for cell in prose
        for match in _DEFINED.findall(cell.source)
        for name in match
        if name
    }
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name", "")
        names |= {figure.removesuffix(f"-{label}")} - {""}
    for cell in prose:
        for name in sorted(names, key=len, reverse=True):
            for pattern in _USED:
                cell.source = re.sub(
                    pattern.format(re.escape(name)),
                    rf"\g<1>{name}-{label}",
                    cell.source,
                    flags=re.MULTILINE,
                )


def _set_title(notebook, title: str, intro: str) -> None:
    heading = re.compile(r"^# .*$", re.MULTILINE)
    below = f"# {title}\n\n{intro}".rstrip()
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and heading.search(cell.source):
            cell.source = heading.sub(lambda _: below, cell.source, count=1)
            return
    first = nbformat.v4.new_markdown_cell(below, id=page_check.TITLE_ID)
    notebook.cells.insert(0, first)
