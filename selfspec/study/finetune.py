"""Teach the exits of a model that was never taught, and compare before with after.

LayerSkip's recipe continues the training of a loaded model, on the task or on the
reader's own texts; every exit is scored on held-out texts before and after, and the
acceptance of exits as drafts is counted on held-out prompts. Rows go to
results/<machine>/layerskip-finetune/<model>.csv, what is known of the run beside them.

    done = finetune("smollm2-135m", root=root, settings=Settings(steps=40, batch=4))
    done.rows[0]["surprise"], done.folder            # rows; the model that came out
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pandas as pd

from selfspec import models
from selfspec.decoding import ExitDraft
from selfspec.study import exit_scores, finetune_table, layerskip_counts, provenance
from selfspec.study.draft_grid import Case
from selfspec.study.exit_scores import Text
from selfspec.study.finetune_table import AFTER, BEFORE, FOLDER
from selfspec.study.results import RESULTS, slug, write_atomic
from selfspec.training import lora, texts, weights
from selfspec.training.arms import FINETUNE
from selfspec.training.batches import Sample
from selfspec.training.errors import TrainingError
from selfspec.training.loop import TrainResult, train
from selfspec.training.parses import make_task
from selfspec.training.recipe import Recipe
from selfspec.training.settings import Settings

WORK = ".work"
LORA, FULL = "lora", "full"
# a model that is trained already is moved gently; adapters bear more
SETTINGS = Settings(
    steps=200, batch=4, warmup=10, weight_decay=0.0, checkpoint_every=10
)
RATES = {LORA: 5e-4, FULL: 3e-5}
ADAPTERS = lora.Adapters(rank=8, scale=4.0)
EXITS = (1 / 4, 1 / 3, 1 / 2, 2 / 3)  # shares of the depth whose drafts are counted
NUM_DRAFT_TOKENS = 4
NUM_TOKENS = 48
SCORED, COUNTED = 32, 8  # held-out texts
COLUMNS = (
    "when step exit_layer texts exact positions surprise agreed right"
    " num_draft_tokens rounds drafted accepted tokens"
).split()


@dataclass(frozen=True)
class Finetuned:
    """What came of it.

    Attributes:
        rows: COLUMNS, one an exit before and one after; drafts are counted at some.
        training: what it took.
        folder: the model that came out, in the hub's layout; None where it cannot be
            written so (quantised weights), and adapters alone are.
        csv: where the rows are.
    """

    rows: list[dict[str, Any]]
    training: TrainResult
    folder: Path | None
    csv: Path


def finetune(
    model: str,
    *,
    root: Path,
    data: str = "",
    method: str = LORA,
    recipe: Recipe = FINETUNE,
    settings: Settings | None = None,
    adapters: lora.Adapters = ADAPTERS,
    scored: int = SCORED,
    counted: int = COUNTED,
    num_tokens: int = NUM_TOKENS,
    say: Callable[[str], None] = print,
    progress: Callable[[int, int, float], None] | None = None,
) -> Finetuned:
    """Score, train (or go on from the checkpoint), score again.

    Args:
        model: alias, hub name or folder.
        data: JSONL of the reader's own; "" for the task.
        method: "lora" or "full".
        settings: of the training; None for `settings_for(method)`.
        scored: held-out texts on which exits are scored.
        counted: held-out prompts that drafts continue by `num_tokens` tokens.

    Raises:
        ModelError, TrainingError: one line each.
    """
    loaded = models.load(model)
    if method not in RATES:
        raise TrainingError(
            f"method must be {LORA} or {FULL}, got {method!r}. Way out: one of them"
        )
    if method == FULL and any("scales" in m for _, m in loaded.model.named_modules()):
        raise TrainingError(
            f"{loaded.source.name} has quantised weights, which cannot be trained "
            "themselves. Way out: --method lora, or a version that is not quantised"
        )
    settings = settings or settings_for(method)
    samples, held_out = _samples(data, loaded.tokenizer, settings.seed)
    tested = [Text(s.ids, s.start) for s in held_out[:scored]]
    prompts = [_asked(sample) for sample in held_out[:counted]]
    configuration = {
        "source": loaded.source.to_json(),
        "method": method,
        "adapters": vars(adapters) if method == LORA else None,
        "data": Path(data).name if data else "task",
    }
    name = f"{loaded.source.slug}-{method}-{_digest(configuration, recipe, settings)}"
    folder = root / RESULTS / provenance.machine_slug(provenance.machine()) / FOLDER
    work = folder / WORK / name

    def look(when: str, step: int) -> list[dict[str, Any]]:
        say(f"{when}: scoring {len(tested)} held-out texts")
        return score(
            loaded.model,
            tested,
            prompts,
            when=when,
            step=step,
            num_tokens=num_tokens,
            eos=frozenset(loaded.tokenizer.eos_token_ids),
        )

    before = _once(work / "before.json", lambda: look(BEFORE, 0))
    mx.random.seed(settings.seed)
    if method == LORA:
        lora.add_lora(loaded.model, adapters)
    say(
        f"training {loaded.source.name} on {len(samples)} texts, {settings.steps} steps"
    )
    result = train(
        loaded.model,
        recipe,
        samples,
        settings,
        work,
        about=configuration,
        progress=progress,
    )
    out = _write_model(loaded, method, adapters, work, configuration)
    rows = [*before, *look(AFTER, settings.steps)]
    path = folder / f"{slug(loaded.source.slug)}.csv"
    _write(path, rows)
    facts = {
        "machine": provenance.machine(),
        **provenance.code(),
        "date": provenance.now(),
        "configuration": configuration,
        "recipe": recipe.to_json(),
        "settings": settings.to_json(),
        "texts": {
            "train": len(samples),
            "scored": len(tested),
            "counted": len(prompts),
        },
        "training": {
            "seconds": result.seconds,
            "step_seconds": result.step_seconds,
            "peak_bytes": result.peak_bytes,
            "layers_run": result.layers_run,
        },
    }
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    write_atomic(path.with_suffix(".json"), text)
    return Finetuned(rows, result, out, path)


def score(
    model: nn.Module,
    tested: Sequence[Text],
    prompts: Sequence[Sequence[int]],
    *,
    when: str,
    step: int,
    num_tokens: int = NUM_TOKENS,
    eos: frozenset[int] = frozenset(),
) -> list[dict[str, Any]]:
    """One row an exit: its scores, and at some exits what it is worth as a draft."""
    num_layers = len(model.layers)
    layers = sorted({max(1, round(share * num_layers)) for share in EXITS})
    cases = [
        Case(f"exit {layer}", ExitDraft(layer), NUM_DRAFT_TOKENS)
        for layer in layers
        if layer < num_layers
    ]
    counts = {
        line["draft"]: line
        for line in layerskip_counts.count_cases(
            model, cases, prompts, num_tokens=num_tokens, eos=eos
        )
    }
    rows = []
    for one in exit_scores.score_exits(model, tested):
        line = counts.get(f"exit {one.exit_layer}")
        names = ("num_draft_tokens", "rounds", "drafted", "accepted", "tokens")
        drafts = {name: line[name] if line else "" for name in names}
        rows.append({"when": when, "step": step, **one.to_json(), **drafts})
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line an exit whose drafts were counted, and one for the last: before -> after."""
    return finetune_table.lines(finetune_table.compared(pd.DataFrame(rows)))


def _samples(data: str, tokenizer, seed: int) -> tuple[list[Sample], list[Sample]]:
    if data:
        return texts.split(texts.read_texts(data, tokenizer), seed=seed)
    task = make_task(seed)
    held_out = task.test[: texts.MOST_HELD_OUT]
    return texts.parses_for(tokenizer, task.train), texts.parses_for(
        tokenizer, held_out
    )


def _asked(sample: Sample) -> list[int]:
    """The question; of a text without one, its first quarter."""
    quarter = max(2, len(sample.ids) // 4)
    return list(sample.ids[: sample.start if sample.start > 1 else quarter])


def _write_model(loaded, method, adapters, work: Path, about) -> Path | None:
    """The model that came out; adapters too, before they are joined with it."""
    if method == LORA:
        lora.save_adapters(loaded.model, adapters, work / "adapters")
        lora.fuse_lora(loaded.model)
    try:
        # the weights are the reader's own: kept as they are, nothing rounded
        return weights.save_small(
            loaded.model, loaded.tokenizer, work / "model", about, half=False
        )
    except TrainingError:
        if method == FULL:
            raise
        return None


def _once(path: Path, make: Callable[[], list[dict]]) -> list[dict[str, Any]]:
    """What was found before the training; kept, because a resumed run cannot ask again
    of a model that is another one by then."""
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    rows = make()
    write_atomic(path, json.dumps(rows))
    return rows


def _digest(configuration: dict, recipe: Recipe, settings: Settings) -> str:
    whole = [configuration, recipe.to_json(), settings.to_json()]
    text = json.dumps(whole, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(path, text.getvalue())


def settings_for(method: str) -> Settings:
    """SETTINGS at the learning rate of the method."""
    return replace(SETTINGS, learning_rate=RATES[method])
