"""Train the arms of the recipe, seed by seed, and score every exit of each on the way.

Every arm sees the same examples in the same order for as many steps. What is scored at
the end are the weights as they would be kept: in half precision, expanded again. A
series that was interrupted goes on where it stopped; an arm that is done is not trained
again. Where results go and how they are read is arms_table.py's.

    train_arms(root, plan=[("baseline", 0), ("ld-ee", 0)], told=print)
    arms_table.load(root)
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pandas as pd
from mlx.utils import tree_map

from selfspec import blas
from selfspec.study import arms_table, provenance
from selfspec.study.errors import StudyError
from selfspec.study.exit_scores import Text, score_exits
from selfspec.study.results import RESULTS, write_atomic
from selfspec.training import ARMS, Settings, TrainResult, build, make_task, train
from selfspec.training.arms import plan as whole_plan
from selfspec.training.parses import Task

SCORED = 500  # held-out texts at the end of an arm
SCORED_ON_THE_WAY = 200
VISITS = 10  # times that the exits are scored while an arm trains
WORK = ".work"  # checkpoints of arms, below the results; not committed


def train_arms(
    root: Path,
    *,
    plan: Iterable[tuple[str, int]] | None = None,
    settings: Settings | None = None,
    task: Task | None = None,
    layers: int | None = None,
    scored: int = SCORED,
    visits: int = VISITS,
    told: Callable[[str], None] = lambda what: None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Path:
    """Train what is not trained yet, and put its rows into results/.

    Args:
        root: the study's folder.
        plan: (arm, seed) of each; default, the whole series.
        settings: the same for every arm, but for the seed.
        task: default, the one of seed 0.
        layers: of the model; default, the small model's.
        scored: held-out texts at the end.
        visits: times that exits are scored on the way.
        told: which arm is trained, and what came of it.
        progress: as `training.train` takes it.

    Returns:
        results/<machine>/layerskip-arms.

    Raises:
        StudyError: an arm that does not exist, or arms of other settings there already.
        TrainingError, ResultsError: one line each.
    """
    plan = list(whole_plan() if plan is None else plan)
    unknown = sorted({arm for arm, _ in plan} - set(ARMS))
    if unknown:
        raise StudyError(f"no arm {unknown[0]!r}. Way out: one of {', '.join(ARMS)}")
    task = task or make_task()
    settings = settings or Settings()
    machine = provenance.machine()
    folder = root / RESULTS / provenance.machine_slug(machine) / arms_table.FOLDER
    _describe(folder, machine, task, settings, layers, scored)
    for arm, seed in plan:
        if (arm, seed) in _done(folder):
            told(f"{arm}, seed {seed}: there already")
            continue
        told(f"{arm}, seed {seed}: {settings.steps} steps")
        rows, result = _one(
            folder / WORK / f"{arm}-{seed}",
            arm,
            replace(settings, seed=seed),
            task,
            layers=layers,
            scored=scored,
            visits=visits,
            progress=progress,
        )
        _put(folder / arms_table.EXITS, rows)
        # last: an arm is done when it stands here
        _put(folder / arms_table.TRAINING, [_training_row(arm, seed, result)])
        last = rows[-1]
        told(f"{arm}, seed {seed}: exact match {last['exact'] / last['texts']:.1%}")
    return folder


def texts_of(task: Task, count: int) -> list[Text]:
    """The first held-out examples, scored from the parse on."""
    samples = [task.encode(example) for example in task.test[:count]]
    return [Text(sample.ids, sample.start) for sample in samples]


def halved(model) -> None:
    """The weights as they are kept: rounded to half precision, float32 again."""
    model.update(
        tree_map(lambda w: w.astype(mx.float16).astype(w.dtype), model.parameters())
    )
    mx.eval(model.parameters())


def _one(
    work: Path,
    arm: str,
    settings: Settings,
    task: Task,
    *,
    layers: int | None,
    scored: int,
    visits: int,
    progress,
) -> tuple[list[dict[str, Any]], TrainResult]:
    """Train one arm; the rows of its exits at every visit and at the end."""
    shape = {} if layers is None else {"layers": layers}
    model = build(len(task.vocabulary), seed=settings.seed, **shape)
    steps = _visited(settings.steps, visits)
    few = texts_of(task, min(scored, SCORED_ON_THE_WAY))

    def rows_at(step: int, texts: Sequence[Text]) -> list[dict[str, Any]]:
        key = {"arm": arm, "seed": settings.seed, "step": step}
        return [{**key, **score.to_json()} for score in score_exits(model, texts)]

    def visit(step: int) -> None:
        write_atomic(_visit(work, step), json.dumps(rows_at(step, few)))

    result = train(
        model,
        ARMS[arm],
        [task.encode(example) for example in task.train],
        settings,
        work,
        about={"arm": arm},
        visit=visit,
        visits=steps,
        progress=progress,
    )
    halved(model)
    found = [json.loads(_visit(work, step).read_text()) for step in steps]
    rows = [row for rows in found for row in rows]
    return [*rows, *rows_at(settings.steps, texts_of(task, scored))], result


def _visited(steps: int, visits: int) -> list[int]:
    """Steps at which exits are scored on the way: evenly, the last one not among them."""
    marks = (
        {round(steps * (i + 1) / visits) for i in range(visits)} if visits else set()
    )
    return sorted(marks & set(range(1, steps)))


def _visit(work: Path, step: int) -> Path:
    return work / f"exits-{step}.json"


def _training_row(arm: str, seed: int, result: TrainResult) -> dict[str, Any]:
    return {
        "arm": arm,
        "seed": seed,
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "step_seconds": round(result.step_seconds, 6),
        "peak_bytes": result.peak_bytes,
        "layers_run": round(result.layers_run, 6),
        "loss": round(result.loss, 6),
    }


def _describe(folder: Path, machine, task: Task, settings, layers, scored) -> None:
    """about.json, written once; arms of other settings are not mixed with these.

    Raises:
        StudyError: there are arms of other settings.
    """
    same = {
        "settings": {k: v for k, v in settings.to_json().items() if k != "seed"},
        "layers": layers,
        "scored": scored,
        "vocabulary": len(task.vocabulary),
        "train": len(task.train),
        "test": len(task.test),
    }
    path = folder / arms_table.ABOUT
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
        differing = sorted(k for k in same if known.get(k) != same[k])
        if differing:
            raise StudyError(
                f"{folder.parent.name}/{folder.name} holds arms with another "
                f"{differing[0]}. Way out: move that folder away, or train as before"
            )
        return
    facts = provenance.code_and_versions()
    about = {
        **same,
        **facts,
        "machine": _in_words(machine),
        "blas_threads": blas.threads(),
        "steps": settings.steps,
        "batch": settings.batch,
    }
    write_atomic(path, json.dumps(about, indent=1, sort_keys=True) + "\n")


def _in_words(machine) -> str:
    return (
        f"{machine['chip']} ({machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['device'].upper()})"
    )


def _done(folder: Path) -> Collection[tuple[str, int]]:
    path = folder / arms_table.TRAINING
    if not path.is_file():
        return set()
    table = pd.read_csv(path)
    return set(zip(table["arm"], table["seed"], strict=True))


def _put(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows of one arm and seed behind all others, in the place of its own."""
    table = pd.DataFrame(rows)
    if path.is_file():
        known = pd.read_csv(path)
        own = (known["arm"] == rows[0]["arm"]) & (known["seed"] == rows[0]["seed"])
        table = pd.concat([known[~own], table], ignore_index=True)
    write_atomic(path, table.to_csv(index=False))
