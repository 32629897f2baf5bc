"""Run an experiment on a model and put its page into the book.

run_study("smollm2-135m", size="smoke", root=Path("."))
run_preset("post", size="paper", root=Path("."))
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from selfspec import models
from selfspec.models.source import unknown
from selfspec.study import bench, pages, provenance, refusals, runner, trained
from selfspec.study.errors import RefusedModelError, StudyError
from selfspec.study.experiments import EXPERIMENTS, NAIVE_SWEEP
from selfspec.study.prompt_set import PromptError
from selfspec.study.results import RESULTS, ResultsError

SIZES = ("smoke", "default", "paper")
PRESETS = {
    # the pair that the post measured on a Mac, in MLX's 4-bit conversions
    "post": (
        "mlx-community/Qwen3-4B-4bit",
        "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",
    )
}


def run_study(
    model: str,
    *,
    size: str,
    root: Path,
    experiment: str = NAIVE_SWEEP,
    parameters: Mapping[str, Any] | None = None,
) -> Path:
    """Measure one experiment on one model; its page and rows are in place afterwards.

    Args:
        model: alias, hub name or folder.
        size: smoke, default or paper.
        root: the study's folder.
        parameters: further parameters of the experiment's notebook.

    Returns:
        The page, below book/runs.

    Raises:
        RefusedModelError: it cannot be measured with this model; a page says so.
        StudyError, ModelError, ResultsError: one line each.
    """
    if experiment not in EXPERIMENTS:
        raise StudyError(
            f"no experiment {experiment!r}. Way out: one of {', '.join(EXPERIMENTS)}"
        )
    if size not in SIZES:
        raise StudyError(f"no size {size!r}. Way out: one of {', '.join(SIZES)}")
    model = trained.located(model, root)
    try:
        source = _source(model)
    except models.UnsupportedModelError as error:
        raise _refused(root, unknown(model), size, experiment, str(error)) from None
    facts = provenance.machine()
    machine = provenance.machine_slug(facts)
    run = partial(
        runner.run_notebook,
        root / "notebooks" / f"{experiment}.ipynb",
        {"model": _absolute(model), "size": size, **(parameters or {})},
        page=runner.page_path(root, machine, source.slug, experiment, size),
        label=f"{machine}--{source.slug}--{experiment}-{size}",
        title=f"{EXPERIMENTS[experiment].title}: {source.name} on {facts['chip']} ({size})",
        progress=root
        / RESULTS
        / machine
        / source.slug
        / f".{experiment}.unfinished.json",
        cwd=root,
    )
    try:
        page = run()
    except RefusedModelError as error:
        raise _refused(root, source, size, experiment, str(error)) from None
    pages.write(root)
    return page


def _refused(
    root: Path, source: models.ModelSource, size: str, experiment: str, reason: str
) -> StudyError:
    """The refusal, which is on a page of the book by then."""
    command = bench.command(source.name, experiment, size, "")
    facts = provenance.collect(source, command)
    folder = root / RESULTS / provenance.machine_slug(facts["machine"]) / source.slug
    asked = {"size": size, "parameters": {}}
    refusals.record(folder, experiment, {**facts, **asked}, reason)
    pages.write(root)
    place = f"book/runs/{folder.parent.name}--{folder.name}/{refusals.PAGE}.md"
    return RefusedModelError(f"{reason} (this is kept as a result, see {place})")


def run_preset(
    preset: str,
    *,
    size: str,
    root: Path,
    finished: Callable[[Path], None] = lambda page: None,
    **options: Any,
) -> list[Path]:
    """`run_study` for each model of a preset; one that fails does not stop the others.

    Args:
        finished: told of each page as soon as it is there.
        options: further arguments of `run_study`.

    Raises:
        StudyError: unknown preset; or, after all models had their turn, which of them
            failed and why.
    """
    if preset not in PRESETS:
        raise StudyError(f"no preset {preset!r}. Way out: one of {', '.join(PRESETS)}")
    jobs = {
        model: partial(run_study, model, size=size, root=root, **options)
        for model in PRESETS[preset]
    }
    return _each(jobs, "models of the preset", finished)


def run_all(
    model: str | None,
    *,
    size: str,
    root: Path,
    finished: Callable[[Path], None] = lambda page: None,
    **options: Any,
) -> list[Path]:
    """`run_study` for each experiment; one that fails does not stop the others.

    Args:
        model: of all of them; None for each experiment's own.
        finished, options: as in `run_preset`.

    Raises:
        StudyError: after all experiments had their turn, which of them failed and why.
    """
    jobs = {
        name: partial(
            run_study,
            model or experiment.model,
            size=size,
            root=root,
            experiment=name,
            **options,
        )
        for name, experiment in EXPERIMENTS.items()
    }
    return _each(jobs, "experiments", finished)


def _each(
    jobs: Mapping[str, Callable[[], Path]], what: str, finished: Callable[[Path], None]
) -> list[Path]:
    """Each job's page, told as soon as it is there; those that failed are told at the end."""
    pages_there, failed = [], []
    for name, job in jobs.items():
        try:
            page = job()
        except (StudyError, models.ModelError, ResultsError, PromptError) as error:
            failed.append(f"{name}: {error}")
            continue
        pages_there.append(page)
        finished(page)
    if failed:
        raise StudyError(
            f"{len(failed)} of {len(jobs)} {what} were not measured. {'; '.join(failed)}"
        )
    return pages_there


def _source(model: str) -> models.ModelSource:
    """What the model is; loading it here gives a bad name its one line early."""
    source = models.load(model).source
    mx.clear_cache()
    return source


def _absolute(model: str) -> str:
    """A folder or file as the notebook finds it, wherever it runs; names as they are."""
    path = Path(model).expanduser()
    local = path.is_dir() or (path.suffix == ".gguf" and path.is_file())
    return str(path.resolve()) if local else model
