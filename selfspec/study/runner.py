"""The one file that knows papermill: a template in, a checked page of the book out.

Papermill forgives what a study must not: a template without a parameters cell runs with
its own defaults, an unknown parameter is ignored, a tuple becomes a string, and a run
that fails leaves half a notebook where the page should be. Here each of these is an
error before anything runs, and a page appears complete or not at all. The rows in
results/ are the notebook's own work: a failed page loses no measurement.

    run_notebook(Path("notebooks/naive-sweep.ipynb"), {"model": "smollm2-135m"},
                 page=page_path(root, machine, model, "naive-sweep", "smoke"),
                 label=f"{machine}--{model}", title="Naive layer skip: SmolLM2")
"""

import json
import logging
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from selfspec.study import page_check, page_finish
from selfspec.study.errors import RefusedModelError, StudyError
from selfspec.study.markdown import literal
from selfspec.study.progress import watching

KERNEL = "python3"
_OWN_ERRORS = (
    *("StudyError", "PromptError", "ResultsError"),
    *("ModelError", "UnsupportedModelError"),
)
# Bars are drawn by the runner, from the marker file; in a page they would be noise.
_QUIET = {
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "NO_COLOR": "1",
}


def page_path(root: Path, machine: str, model: str, experiment: str, size: str) -> Path:
    """Where the page of one run stands."""
    return root / "book" / "runs" / f"{machine}--{model}" / f"{experiment}-{size}.ipynb"


def run_notebook(
    template: Path,
    parameters: Mapping[str, Any],
    *,
    page: Path,
    label: str,
    title: str,
    progress: Path | None = None,
    cwd: Path | None = None,
) -> Path:
    """Run a template with these parameters and put the result at `page`.

    Args:
        template: a notebook without outputs, one cell tagged `parameters`.
        parameters: plain values; each name must be one that the template sets.
        page: where the page goes; replaced only by a complete one.
        label: unique in the book; ends every figure label of the page.
        title: the page's heading, plain text; the label is added if another page has it.
        progress: the run's .unfinished.json, followed and shown; None shows nothing.
        cwd: the folder that the notebook runs in, the current one if not given.

    Raises:
        RefusedModelError: the notebook found that the model cannot be measured.
        StudyError: the template, a parameter or the finished page is not fit, or the
            notebook raised; the message is one line, and `page` is as it was.
    """
    template, page = template.resolve(), page.absolute()
    cwd = (cwd or Path.cwd()).resolve()
    progress = progress and progress.absolute()
    plain = {name: plain_value(name, value) for name, value in parameters.items()}
    first = check_template(template, plain)
    title = _own_title(page, literal(title), label)
    with tempfile.TemporaryDirectory(prefix="selfspec-") as scratch:
        with watching(progress):
            notebook = _execute(template, plain, Path(scratch), cwd, first)
    complaints = page_check.failures(notebook)
    run_id = _run_id(notebook)
    page_finish.dress(
        notebook,
        label=label,
        title=title,
        intro=f"```{{include}} {_fragment(page)}\n```",
        data=lambda path: _from_page(page, cwd, path),
        parameters=_without_places(plain),
    )
    _describe(notebook, template, label, _without_places(plain), run_id)
    if complaints := complaints or page_check.problems(notebook):
        raise StudyError(
            f"{template.name} ran, but its page cannot be published: {complaints[0]}"
            + (f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else "")
            + ". Way out: correct that cell and run again; measured rows are kept"
        )
    _write(page, nbformat.writes(notebook))
    return page


def check_template(template: Path, parameters: Mapping[str, Any]) -> int:
    """Refuse a template that papermill would run wrongly without a word.

    Returns:
        Which cell is the `parameters` cell, counted from 0.

    Raises:
        StudyError: not a notebook, no kernel named, not exactly one `parameters` cell,
            or a parameter that the template does not set.
    """
    import papermill

    try:
        notebook = nbformat.read(template, as_version=4)
    except FileNotFoundError:
        raise StudyError(
            f"there is no template {template.name}. Way out: see `ls notebooks`"
        ) from None
    except Exception as error:
        raise StudyError(
            f"{template.name} is not a notebook ({_first_line(error)}). "
            "Way out: restore it with git"
        ) from None
    tagged = [
        index
        for index, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", [])
    ]
    if len(tagged) != 1:
        raise StudyError(
            f"{template.name} has {len(tagged)} cells tagged `parameters` and needs "
            "exactly one. Way out: tag the cell that sets the defaults, and only that"
        )
    kernel = notebook.metadata.get("kernelspec", {})
    if not kernel.get("name") or kernel.get("language", "python") != "python":
        raise StudyError(
            f"{template.name} names no Python kernel. Way out: in its metadata set "
            'kernelspec to {"name": "python3", "display_name": "Python 3", '
            '"language": "python"}'
        )
    with _silent_papermill():
        known = set(papermill.inspect_notebook(str(template)))
    if unknown := sorted(set(parameters) - known):
        raise StudyError(
            f"{template.name} has no parameter {', '.join(unknown)}. "
            f"Way out: use one of {', '.join(sorted(known)) or '(it has none)'}"
        )
    return tagged[0]


def plain_value(name: str, value: Any) -> Any:
    """`value` as JSON can hold it; numpy numbers and arrays become plain ones.

    Raises:
        StudyError: a tuple, NaN, infinity, or anything else JSON cannot hold.
    """
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        raise StudyError(
            f"parameter {name} is {value}, which JSON cannot hold. Way out: use None"
        )
    if isinstance(value, list):
        return [plain_value(name, item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain_value(name, item) for key, item in value.items()}
    way_out: dict[type, str] = {tuple: "a list", set: "a list", dict: "text as keys"}
    raise StudyError(
        f"parameter {name} is a {type(value).__name__}, which a notebook cannot take. "
        f"Way out: use {way_out.get(type(value), 'a number, text, list or None')}"
    )


def _execute(template: Path, parameters: dict, scratch: Path, cwd: Path, first: int):
    """Run the template in a fresh kernel of this very interpreter."""
    import papermill
    from jupyter_client.manager import AsyncKernelManager
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    class OwnKernel(AsyncKernelManager):
        """Whatever kernels are registered on this machine, run this interpreter."""

        @property
        def kernel_spec(self):
            return _own_kernel_spec(scratch)

    try:
        with _silent_papermill():
            return papermill.execute_notebook(
                str(template),
                str(scratch / "page.ipynb"),
                parameters=parameters,
                kernel_name=KERNEL,
                language="python",
                progress_bar=False,
                cwd=str(cwd),
                kernel_manager_class=OwnKernel,
            )
    except PapermillExecutionError as error:
        if error.ename == "UnsupportedModelError":
            raise RefusedModelError(_first_line(error.evalue)) from None
        if error.ename in _OWN_ERRORS:  # it says all that there is to say
            raise StudyError(_first_line(error.evalue)) from None
        what = f"{error.ename}: {_first_line(error.evalue)}".rstrip(": ")
        injected = bool(parameters) and error.cell_index > first
        number = error.cell_index + 1 - injected  # as the template counts
        raise StudyError(f"{template.name} stopped in cell {number}: {what}") from None
    except (DeadKernelError, RuntimeError) as error:
        raise StudyError(
            f"the Python that runs {template.name} died ({_first_line(error)}), perhaps "
            "for want of memory. Way out: close other programs or take a smaller "
            "model, then run the same command again; measured rows are kept"
        ) from None


def _own_kernel_spec(scratch: Path):
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec

    spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())
    spec.argv[0] = sys.executable
    # No advice about its transport, no traceback when Ctrl-C closes it at work.
    spec.argv.append("--IPKernelApp.log_level=50")
    # A profile of its own: a reader's start-up files have no part in a measurement.
    spec.env = {**_QUIET, "IPYTHONDIR": str(scratch / "ipython")}
    return spec


class _silent_papermill:
    """Papermill's log and ipykernel's advice are for their own users."""

    def __enter__(self):
        self._logger = logging.getLogger("papermill")
        self._level = self._logger.level
        self._logger.setLevel(logging.CRITICAL)
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, *details):
        self._warnings.__exit__(*details)
        self._logger.setLevel(self._level)


def _without_places(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as a page may show them: a folder or file by its name only."""
    return {
        name: Path(value).name
        if isinstance(value, str) and Path(value).expanduser().is_absolute()
        else value
        for name, value in parameters.items()
    }


def _run_id(notebook) -> str:
    """The run that the page shows: the last one an output names in its metadata."""
    named = [
        output.metadata["selfspec"].get("run_id", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "selfspec" in output.get("metadata", {})
    ]
    return next((name for name in reversed(named) if name), "")


def _describe(notebook, template, label, parameters, run_id) -> None:
    """Keep what a later reader or the book needs to know; no date, no path."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"] = {
        "name": KERNEL,
        "display_name": "Python 3",
        "language": "python",
    }
    notebook.metadata["selfspec"] = {
        "template": template.name,
        "label": label,
        "parameters": parameters,
        "run_id": run_id,
    }


def _fragment(page: Path) -> str:
    """The page's provenance box (written by pages.py), as seen from the page."""
    book = page.parents[2]
    box = book / "_generated" / "runs" / page.parent.name / f"{page.stem}.md"
    return Path(os.path.relpath(box, page.parent)).as_posix()


def _from_page(page: Path, cwd: Path, path: str) -> str:
    """A data file as the page links to it; '' for one outside the project."""
    place, root = (cwd / path).resolve(), page.parents[3].resolve()
    made = place.is_relative_to(root / "book" / "_generated")  # by pages.write, later
    if not place.is_relative_to(root) or not (made or place.is_file()):
        return ""
    return Path(os.path.relpath(place, page.parent.resolve())).as_posix()


def _own_title(page: Path, title: str, label: str) -> str:
    """`title`, with the label added when another page of the book has the same.

    Raises:
        StudyError: another page has the same label; labels cannot be mended so.
    """
    taken = False
    for other in sorted(page.parents[1].glob("*/*.ipynb")):
        try:
            notebook = json.loads(other.read_text(encoding="utf-8"))
            sources = ["".join(cell["source"]) for cell in notebook["cells"]]
            its_label = notebook["metadata"].get("selfspec", {}).get("label")
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not a page; pages.py will say so
        if other == page:
            continue
        if its_label == label:
            raise StudyError(
                f"the page {other.parent.name}/{other.name} has the label {label} too. "
                "Way out: give each page a label of its own"
            )
        taken |= any(f"# {title}" in source.splitlines() for source in sources)
    return f"{title} ({label})" if taken else title


def _write(page: Path, text: str) -> None:
    """Put `text` at `page` in one step."""
    page.parent.mkdir(parents=True, exist_ok=True)
    part = page.with_name(f".{page.name}.part")
    try:
        part.write_text(text + "\n", encoding="utf-8")
        os.replace(part, page)
    except OSError as error:
        raise StudyError(
            f"cannot write the page {page.parent.name}/{page.name}: {error.strerror}. "
            "Way out: free some disk space, or make the folder writable"
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _first_line(error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
