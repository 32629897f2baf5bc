"""The training loop: a step, a note of it, now and then a checkpoint.

Knows nothing of the task: samples are token ids, and whoever wants to look at the model
on the way is called at the steps it names. Killed at any moment and started again, it
ends with the very weights that it would have ended with.

    result = train(model, recipe, samples, Settings(steps=500), Path("runs/ld-ee-0"))
    result.seconds, result.losses                    # what it took; losses.csv
"""

import csv
import hashlib
import io
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from selfspec.models import device
from selfspec.models.blocks import Stack, find_stack, name_of
from selfspec.training import checkpoint, curricula, dropout, exit_loss, forward
from selfspec.training.batches import Batch, Order, Sample, collate
from selfspec.training.errors import TrainingError
from selfspec.training.recipe import Recipe
from selfspec.training.settings import Settings, learning_rate

LOSSES = "losses.csv"
# of every step: how many exits had a loss, and the share of the layers that were run
COLUMNS = (
    "step",
    "loss",
    "last_exit",
    "exits",
    "layers_run",
    "rate",
    "tokens",
    "seconds",
)
_DROPOUT = 1  # which of a step's random streams


@dataclass(frozen=True)
class TrainResult:
    """What a training took.

    Attributes:
        steps: made, those before a resume included.
        seconds: of all steps; looking at the model and checkpoints left out.
        step_seconds: median.
        peak_bytes: most that MLX held.
        layers_run: mean share of the layers that a sample ran.
        loss: of the last step.
        losses: CSV, a row a step.
    """

    steps: int
    seconds: float
    step_seconds: float
    peak_bytes: int
    layers_run: float
    loss: float
    losses: Path


def train(
    model: nn.Module,
    recipe: Recipe,
    samples: Sequence[Sample],
    settings: Settings,
    folder: Path,
    *,
    about: Mapping[str, Any] | None = None,
    visit: Callable[[int], None] | None = None,
    visits: Collection[int] = (),
    progress: Callable[[int, int, float], None] | None = None,
) -> TrainResult:
    """Train what is trainable of `model`, in place, or go on from `folder`'s checkpoint.

    Args:
        samples: to learn from.
        folder: of the checkpoint and of losses.csv.
        about: what else the weights depend on; kept and compared with the rest of the
            configuration.
        visit: called after so many steps as `visits` names; a resumed training may
            call it again with the same number.
        progress: told step, steps and loss after every step.

    Raises:
        TrainingError: a checkpoint of another configuration, a loss that is no number,
            a disk that is full.
        UnsupportedModelError: a model whose exits cannot be taught.
        ValueError: fewer samples than a batch.
    """
    stack = find_stack(model)
    order = Order(
        [len(s.ids) for s in samples], batch=settings.batch, seed=settings.seed
    )
    configuration = {
        "recipe": recipe.to_json(),
        "settings": settings.to_json(),
        "model": _shapes(model),
        "samples": _digest(samples),
        **(about or {}),
    }
    path = folder / checkpoint.NAME
    optimiser = optim.AdamW(
        learning_rate(settings, 0),
        weight_decay=settings.weight_decay,
        bias_correction=True,
    )
    run = _Run(model, optimiser)
    found = checkpoint.load(path, configuration)
    done = run.restore(*found) if found else 0
    step_of = nn.value_and_grad(model, _loss)

    def keep(step: int) -> None:
        checkpoint.save(path, step, run.arrays(), configuration, run.facts)
        _write_losses(folder / LOSSES, run.notes)

    model.train()
    device.reset_peak_memory()
    try:
        for step in range(done, settings.steps):
            began = time.perf_counter()
            batch = collate([samples[i] for i in order.at(step)])
            kept = draws(recipe, stack, settings, step)
            weights = weights_at(recipe, stack, settings, step)
            optimiser.learning_rate = learning_rate(settings, step)
            (loss, last), gradients = step_of(stack, batch, kept, weights, recipe)
            gradients, _ = optim.clip_grad_norm(gradients, settings.clip)
            optimiser.update(model, gradients)
            mx.eval(loss, last, model.parameters(), optimiser.state)
            del gradients
            seconds = time.perf_counter() - began
            if not math.isfinite(loss.item()):
                raise TrainingError(
                    f"the loss is {loss.item()} at step {step + 1}. Way out: a lower "
                    "learning rate, in another folder"
                )
            run.note(
                step + 1,
                loss.item(),
                last.item(),
                sum(weight > 0 for weight in weights),
                dropout.share_run(kept, settings.batch),
                learning_rate(settings, step),
                len(batch.targets),
                seconds,
            )
            if progress:
                progress(step + 1, settings.steps, loss.item())
            seen = visit is not None and step + 1 in visits
            if seen:
                run.look()
                model.eval()
                visit(step + 1)
                model.train()
                device.reset_peak_memory()
            if seen or (step + 1) % settings.checkpoint_every == 0:
                run.look()
                keep(step + 1)
    finally:
        model.eval()
    run.look()
    keep(settings.steps)
    return run.result(folder / LOSSES)


def draws(
    recipe: Recipe, stack: Stack, settings: Settings, step: int
) -> tuple[dropout.Kept, ...]:
    """Which samples run each layer at a step: a function of seed and step alone."""
    if not recipe.max_dropout:
        return (None,) * stack.num_layers
    rates = dropout.dropout_rates(
        recipe, stack.num_layers, step=step, steps=settings.steps
    )
    rng = np.random.default_rng([settings.seed, step, _DROPOUT])
    return dropout.draw(rates, batch=settings.batch, rng=rng)


def weights_at(
    recipe: Recipe, stack: Stack, settings: Settings, step: int
) -> tuple[float, ...]:
    """What every exit's loss weighs at a step."""
    return exit_loss.exit_weights(
        exit_loss.exit_scales(stack.num_layers, recipe.exit_scale),
        curricula.enabled(recipe, stack.num_layers, step=step, steps=settings.steps),
    )


def _loss(
    stack: Stack,
    batch: Batch,
    kept: Sequence[dropout.Kept],
    weights: Sequence[float],
    recipe: Recipe,
) -> tuple[mx.array, mx.array]:
    """J of one batch and the last exit's cross-entropy, over what is to be learnt.

    The mean is over the rows that are learnt, the same ones at every exit: padding and
    prompts count nowhere, and only these rows pass the head.
    """
    streams = forward.residual_streams(stack, mx.array(batch.ids), kept)
    head = forward.head_of(stack)
    rows = mx.array(batch.rows)

    def logits_of(layer: int) -> mx.array:
        stream = streams[layer]  # (B, T, dim)
        return head(stream.reshape(-1, stream.shape[-1])[rows])  # (N, V)

    return exit_loss.total_loss(
        weights, logits_of, mx.array(batch.targets), distillation=recipe.distillation
    )


class _Run:
    """The state that changes while a training goes on."""

    def __init__(self, model: nn.Module, optimiser: optim.Optimizer):
        self.model, self.optimiser = model, optimiser
        optimiser.init(model.trainable_parameters())
        self.notes: list[tuple[float, ...]] = []
        self.facts: dict[str, Any] = {"peak_bytes": 0}

    def note(self, *values: float) -> None:
        self.notes.append(values)

    def look(self) -> None:
        """Note the memory, before something else uses it."""
        peak = max(self.facts["peak_bytes"], device.peak_memory())
        self.facts["peak_bytes"] = peak

    def arrays(self) -> dict[str, mx.array]:
        """Everything that a checkpoint holds."""
        found = {
            f"model.{name}": array
            for name, array in tree_flatten(self.model.trainable_parameters())
        }
        found |= {
            f"optimiser.{name}": array
            for name, array in tree_flatten(self.optimiser.state)
        }
        found["random"] = mx.random.state[0]
        found["notes"] = mx.array(np.array(self.notes, np.float32))
        return found

    def restore(self, step: int, arrays: dict[str, mx.array], facts: dict) -> int:
        """Be what a checkpoint holds; returns its step."""

        def part(prefix):
            own = [(k, v) for k, v in arrays.items() if k.startswith(prefix)]
            return tree_unflatten([(k.removeprefix(prefix), v) for k, v in own])

        self.model.update(part("model."))
        self.optimiser.state = part("optimiser.")
        high, low = arrays["random"].tolist()  # a key is the two halves of a seed
        mx.random.seed((high << 32) | low)
        self.notes = [tuple(map(float, row)) for row in np.array(arrays["notes"])]
        self.facts = facts
        return step

    def result(self, losses: Path) -> TrainResult:
        table = np.array(self.notes)
        column = {name: table[:, place] for place, name in enumerate(COLUMNS)}
        return TrainResult(
            steps=len(table),
            seconds=float(column["seconds"].sum()),
            step_seconds=float(median(column["seconds"])),
            peak_bytes=self.facts["peak_bytes"],
            layers_run=float(column["layers_run"].mean()),
            loss=float(column["loss"][-1]),
            losses=losses,
        )


def _write_losses(path: Path, notes: Sequence[Sequence[float]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    whole = {"step", "exits", "tokens"}
    for row in notes:
        writer.writerow(
            int(value) if name in whole else f"{value:.6g}"
            for name, value in zip(COLUMNS, row, strict=True)
        )
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text.getvalue(), encoding="utf-8")
    os.replace(temporary, path)


def _shapes(model: nn.Module) -> dict[str, Any]:
    """What tells one model from another: its kind and what of it is trained."""
    digest = hashlib.sha256()
    for name, array in tree_flatten(model.trainable_parameters()):
        digest.update(f"{name} {array.shape} {array.dtype}\n".encode())
    return {"kind": name_of(model), "trained": digest.hexdigest()[:16]}


def _digest(samples: Sequence[Sample]) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(np.array([sample.start, *sample.ids], np.int32).tobytes())
    return digest.hexdigest()[:16]
