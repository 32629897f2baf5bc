"""Fit a bridge: distillation from the target's last layer, of nothing but the bridge.

What the target said is on disk, so a step is one layer and the head, twice. Held-out
texts say after every so many steps what the loss is and what a draft would be accepted;
the best bridge is kept, and the training ends early when it gets no better. Killed at
any moment and started again, it ends with the very same bridge.

    result = fit(stack, readings, held_out, FitSettings(steps=500), folder)
    result.draft, result.curve[-1]["acceptance"]
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from selfspec.decoding import AdapterDraft, Bridge, ShortlistDraft
from selfspec.decoding.adapter import bridge_model
from selfspec.decoding.bridge import BRIDGES, LAYER, MLP
from selfspec.decoding.shortlist import Shortlist
from selfspec.models.blocks import Stack
from selfspec.training import bridge_score, checkpoint, exit_loss
from selfspec.training.batches import Order
from selfspec.training.bridge_text import Reading
from selfspec.training.errors import TrainingError
from selfspec.training.forward import head_of
from selfspec.training.settings import Settings, learning_rate

LOSSES = ("kl", "ce")


@dataclass(frozen=True)
class FitSettings:
    """How a bridge is fitted.

    Attributes:
        exit_layer: E, the bridge begins after it.
        kind: "layer" or "mlp".
        loss: "kl", the target's whole distribution, or "ce", its best token.
        steps: updates at most.
        batch: windows of text a step; window: their longest length, in tokens.
        learning_rate: at its peak; warmup: steps until then.
        evaluate_every: steps between looks at held-out text, each a checkpoint.
        patience: looks without a better acceptance after which it ends; 0 for never.
        num_draft_tokens: of the rounds in which acceptance is counted.

    Raises:
        ValueError: a value outside its range.
    """

    exit_layer: int
    kind: str = LAYER
    loss: str = "kl"
    steps: int = 500
    batch: int = 4
    window: int = 128
    learning_rate: float = 2e-3
    warmup: int = 20
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    evaluate_every: int = 25
    patience: int = 8
    num_draft_tokens: int = 4

    def __post_init__(self):
        if self.loss not in LOSSES or self.kind not in BRIDGES:
            raise ValueError(
                f"loss must be one of {', '.join(LOSSES)} and kind one of "
                f"{', '.join(BRIDGES)}, got {self.loss!r} and {self.kind!r}"
            )
        for name in ("steps", "batch", "window", "evaluate_every", "num_draft_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        self.schedule()

    def schedule(self) -> Settings:
        """What the learning rate follows."""
        return Settings(
            steps=self.steps,
            batch=self.batch,
            learning_rate=self.learning_rate,
            warmup=self.warmup,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Fitted:
    """What came of it.

    Attributes:
        draft: with the best bridge, and the shortlist it was taught on, if any.
        curve: one row a look: step, tokens read, seconds of training so far, loss of
            the steps since the last look, held_out_loss, acceptance (accepted /
            drafted), positions (acceptance by draft position).
        steps: made.
    """

    draft: AdapterDraft | ShortlistDraft
    curve: list[dict[str, Any]]
    steps: int

    @property
    def best(self) -> dict[str, Any]:
        return max(self.curve, key=lambda row: row["acceptance"])


class Student:
    """A bridge that learns, and the head that scores what it says.

    Args:
        tokens: the shortlist it chooses among; () for every token.
    """

    def __init__(self, stack: Stack, bridge: Bridge, tokens: Sequence[int] = ()):
        self.stack, self.kind, self.tokens = stack, bridge.kind, tuple(tokens)
        self.layer = bridge.module(stack)
        if bridge.kind == MLP:
            self.layer[stack.attention[-1]].freeze()
        self.crossing: list[mx.array] = []
        model = bridge_model(stack, self.layer, self.crossing)
        head = stack
        self.columns = None
        if self.tokens:
            vocab_size = stack.model(mx.array([[0]])).shape[-1]  # never run
            shortlist = Shortlist(self.tokens, stack.model, vocab_size)
            model = shortlist.applied_to(model)
            head = Stack(
                shortlist.applied_to(stack.model),
                stack.path,
                stack.layers,
                stack.attention,
                stack.mlp,
            )
            self.columns = np.array(shortlist.ids)
        self.model, self.head = model, head_of(head)

    def logits(self, early: mx.array) -> mx.array:
        """(B, T, dim) after the exit layer to (B, T, N)."""
        self.crossing.append(early)
        logits = self.model(mx.zeros(early.shape[:2], mx.int32))
        self.crossing.clear()
        return logits

    def target_logits(self, late: mx.array) -> mx.array:
        """(R, dim) after the last layer to (R, N)."""
        return mx.stop_gradient(self.head(late))

    def bridge(self) -> Bridge:
        return Bridge.of(self.layer, self.stack, self.kind)

    def draft(self, exit_layer: int, bridge: Bridge) -> AdapterDraft | ShortlistDraft:
        draft = AdapterDraft(exit_layer, bridge)
        return ShortlistDraft(draft, self.tokens) if self.tokens else draft


def fit(
    stack: Stack,
    readings: Sequence[Reading],
    held_out: Sequence[Reading],
    settings: FitSettings,
    folder: Path,
    *,
    tokens: Sequence[int] = (),
    begin: Bridge | None = None,
    about: Mapping[str, Any] | None = None,
    told: Callable[[dict[str, Any]], None] | None = None,
) -> Fitted:
    """Fit a bridge, or go on from `folder`'s checkpoint.

    Args:
        readings: to learn from, read up to `settings.exit_layer`.
        held_out: greedy texts that nothing is learnt from.
        tokens: a shortlist; a head of few columns makes a step much cheaper, and the
            draft too.
        begin: the bridge to begin with; default, the model's last layer.
        about: what else the bridge depends on; kept and compared on resuming.
        told: of every row of the curve.

    Raises:
        TrainingError: a checkpoint of another configuration, a loss that is no number,
            a full disk, too little text.
    """
    windows = _windows(readings, settings.window)
    try:
        order = Order(
            [n for *_, n in windows], batch=settings.batch, seed=settings.seed
        )
    except ValueError as error:
        raise TrainingError(f"{error}. Way out: more text") from None
    if not held_out:
        raise TrainingError("no text is held out. Way out: two prompts or more")
    student = Student(stack, begin or Bridge.like(stack, settings.kind), tokens)
    run = _Run(student, settings)
    path = folder / checkpoint.NAME
    configuration = {
        "settings": settings.to_json(),
        "tokens": len(student.tokens),
        "windows": len(windows),
        **(about or {}),
    }
    found = checkpoint.load(path, configuration)
    step_of = nn.value_and_grad(student.layer, run.loss)
    step = run.restore(*found) if found else 0
    if not found:
        run.look(0, held_out, [])
        _tell(told, run.curve[-1])
    schedule, losses = settings.schedule(), []
    while step < settings.steps and not run.stuck():
        began = time.perf_counter()
        batch = [windows[i] for i in order.at(step)]
        run.optimiser.learning_rate = learning_rate(schedule, step)
        loss, gradients = step_of(*_collate(readings, batch))
        gradients, _ = optim.clip_grad_norm(gradients, settings.clip)
        run.optimiser.update(student.layer, gradients)
        mx.eval(loss, student.layer.parameters(), run.optimiser.state)
        del gradients
        step += 1
        run.tokens += sum(n for *_, n in batch)
        run.seconds += time.perf_counter() - began
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise TrainingError(
                f"the loss is {losses[-1]} at step {step}. Way out: a lower learning "
                "rate, in another folder"
            )
        if step % settings.evaluate_every == 0 or step == settings.steps:
            run.look(step, held_out, losses)
            losses = []
            checkpoint.save(path, step, run.arrays(), configuration, run.facts())
            _tell(told, run.curve[-1])
    draft = student.draft(settings.exit_layer, Bridge(settings.kind, run.best))
    return Fitted(draft, run.curve, step)


def seconds_a_step(
    stack: Stack,
    readings: Sequence[Reading],
    settings: FitSettings,
    tokens: Sequence[int] = (),
) -> float:
    """What a step takes here: of three, the fastest but the first. Nothing is kept."""
    windows = _windows(readings, settings.window)
    student = Student(stack, Bridge.like(stack, settings.kind), tokens)
    run = _Run(student, settings)
    step_of = nn.value_and_grad(student.layer, run.loss)
    order = Order([n for *_, n in windows], batch=settings.batch, seed=settings.seed)
    seconds = []
    for step in range(3):
        began = time.perf_counter()
        batch = [windows[i] for i in order.at(step)]
        loss, gradients = step_of(*_collate(readings, batch))
        run.optimiser.update(student.layer, gradients)
        mx.eval(loss, student.layer.parameters(), run.optimiser.state)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])


def agreement(student: Student, reading: Reading) -> tuple[list[bool], float]:
    """Where the student would have drafted the answer's next token, and its KL loss."""
    logits = student.logits(reading.early[None].astype(mx.float32))[0]
    own = np.array(mx.argmax(logits, axis=-1))[reading.start - 1 :]
    if student.columns is not None:
        own = student.columns[own]
    loss = exit_loss.divergence(
        student.target_logits(reading.late.astype(mx.float32)), logits
    )
    wanted = np.array(reading.ids[reading.start :])
    return (own == wanted).tolist(), loss.item()


class _Run:
    """The state that changes while a fit goes on."""

    def __init__(self, student: Student, settings: FitSettings):
        self.student, self.settings = student, settings
        self.optimiser = optim.AdamW(
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            bias_correction=True,
        )
        self.optimiser.init(student.layer.trainable_parameters())
        self.best = dict(student.bridge().weights)
        self.curve: list[dict[str, Any]] = []
        self.tokens, self.seconds = 0, 0.0

    def loss(self, early: mx.array, late: mx.array, rows: mx.array) -> mx.array:
        """Over the rows that are text: early (B, T, dim), late (R, dim), rows (R,)."""
        logits = self.student.logits(early)
        logits = logits.reshape(-1, logits.shape[-1])[rows]
        teacher = self.student.target_logits(late)
        if self.settings.loss == "ce":
            return exit_loss.cross_entropy(logits, mx.argmax(teacher, axis=-1))
        return exit_loss.divergence(teacher, logits)

    def look(self, step: int, held_out: Sequence[Reading], losses) -> None:
        """Add a row to the curve, and keep the bridge if it is the best so far."""
        seen = [agreement(self.student, reading) for reading in held_out]
        flags = [agreed for agreed, _ in seen]
        count = self.settings.num_draft_tokens
        row = {
            "step": step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "loss": sum(losses) / len(losses) if losses else None,
            "held_out_loss": sum(loss for _, loss in seen) / len(seen),
            "num_draft_tokens": count,
            "acceptance": bridge_score.acceptance_rate(flags, count),
            "agreed": sum(map(sum, flags)) / max(1, sum(map(len, flags))),
            "positions": bridge_score.by_position(flags, count),
        }
        if math.isnan(row["acceptance"]):  # texts too short for a round
            row["acceptance"] = row["agreed"]
        better = not self.curve or row["acceptance"] > max(
            old["acceptance"] for old in self.curve
        )
        self.curve.append(row)
        if better:
            self.best = dict(self.student.bridge().weights)

    def stuck(self) -> bool:
        """Whether the last looks brought nothing better."""
        patience, curve = self.settings.patience, self.curve
        if not patience or len(curve) <= patience:
            return False
        best = max(range(len(curve)), key=lambda i: curve[i]["acceptance"])
        return len(curve) - 1 - best >= patience

    def arrays(self) -> dict[str, mx.array]:
        """Everything that a checkpoint holds."""
        own = tree_flatten(self.student.layer.trainable_parameters())
        state = tree_flatten(self.optimiser.state)
        return {
            **{f"bridge.{name}": array for name, array in own},
            **{f"best.{name}": array for name, array in self.best.items()},
            **{f"optimiser.{name}": array for name, array in state},
        }

    def facts(self) -> dict[str, Any]:
        return {"curve": self.curve, "tokens": self.tokens, "seconds": self.seconds}

    def restore(self, step: int, arrays: dict[str, mx.array], facts: dict) -> int:
        """Be what a checkpoint holds; returns its step."""

        def part(prefix):
            own = [(k, v) for k, v in arrays.items() if k.startswith(prefix)]
            return [(k.removeprefix(prefix), v) for k, v in own]

        self.student.layer.update(tree_unflatten(part("bridge.")))
        self.optimiser.state = tree_unflatten(part("optimiser."))
        self.best = dict(part("best."))
        self.curve = facts["curve"]
        self.tokens, self.seconds = facts["tokens"], facts["seconds"]
        return step


def _windows(readings: Sequence[Reading], window: int) -> list[tuple[int, int, int]]:
    """(reading, first row, rows) of every stretch of text that is learnt together."""
    found = []
    for index, reading in enumerate(readings):
        count = len(reading.ids) - 1
        for begin in range(0, count, window):
            found.append((index, begin, min(window, count - begin)))
    return found


def _collate(readings: Sequence[Reading], batch: Sequence[tuple[int, int, int]]):
    """Streams of a batch, padded on the right, where causality ignores it."""
    longest = max(count for *_, count in batch)
    early, late, rows = [], [], []
    for place, (index, begin, count) in enumerate(batch):
        one = readings[index].early[begin : begin + count].astype(mx.float32)
        early.append(mx.pad(one, [(0, longest - count), (0, 0)]))
        late.append(readings[index].late[begin : begin + count].astype(mx.float32))
        rows.extend(range(place * longest, place * longest + count))
    return mx.stack(early), mx.concatenate(late), mx.array(rows, mx.int32)


def _tell(told, row) -> None:
    if told:
        told(row)
