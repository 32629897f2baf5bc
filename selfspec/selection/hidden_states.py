"""Following drafts block by block: the dynamic program on hidden states.

Through the depths of the model, each cell keeps what its drafts have left out so far (in
units of microseconds saved) and the residual stream that this leaves. At each item a
draft either runs it or does without; of the drafts that have saved as much, those whose
residual stream points most where the target's does survive (KnapSpec, arXiv 2602.20217,
with one survivor a cell; CLaSp, arXiv 2505.24196, on whole layers). One survivor is no
optimum: what a draft loses now it may not lose at the end. More survivors make it a
beam. Every draft reads the target's keys and values for the past and its own for the
present, and all drafts of a depth run as one batch.

    survivors = follow(texts, stages, unit=400, most=20_000, width=1)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from selfspec.selection.items import Item
from selfspec.selection.passes import TargetText

CELLS_AT_ONCE = 32


@dataclass(frozen=True)
class Stage:
    """One decision: the items that are left out together, or nothing.

    Attributes:
        depths: blocks that run if they are not (2i: attention of layer i, 2i + 1: MLP).
        items: what is left out; empty where everything must run.
    """

    depths: tuple[int, ...]
    items: tuple[Item, ...]

    @property
    def saved(self) -> int:
        return sum(item.microseconds for item in self.items)


@dataclass(frozen=True)
class Survivor:
    """A draft that was followed to the end.

    Attributes:
        items: what it leaves out.
        saved: microseconds.
        cosine: mean over all rows of the cosine similarity to the target's residual
            stream, before the final norm.
    """

    items: tuple[Item, ...]
    saved: int
    cosine: float


@dataclass
class _State:
    """A draft on its way: what it left out, and its rows in every text."""

    items: tuple[Item, ...]
    saved: int
    cosine: float
    rows: list[mx.array]  # one (r, d) a text


def follow(
    texts: Sequence[TargetText],
    stages: Sequence[Stage],
    *,
    unit: int,
    most: int,
    width: int = 1,
    threshold: float = 0.5,
    only_last_row: bool = False,
) -> list[Survivor]:
    """Run the program over all stages.

    Args:
        texts: windows as the target read them.
        stages: decisions in the order in which the blocks run.
        unit: microseconds that one cell spans; drafts within it compete.
        most: microseconds that may be left out at most.
        width: survivors a cell.
        threshold: a draft whose cosine falls below it is dropped.
        only_last_row: judge a draft by the last row of each text, as CLaSp does.

    Returns:
        Survivors, least saved first; the draft that leaves nothing out is one.

    Raises:
        ValueError: a width or unit below 1, or a cosine that is not a number.
        UnsupportedModelError: a model whose blocks do not follow one another.
    """
    if width < 1 or unit < 1:
        raise ValueError(f"width and unit must be 1 or more, got {width} and {unit}")
    states = [_State((), 0, 1.0, [text.depths[0][0] for text in texts])]
    for stage in stages:
        found = _decide(texts, stage, states, most)
        after = stage.depths[-1] + 1
        _judge(texts, found, after, only_last_row)
        states = _survive(found, unit, width, threshold)
    return [
        Survivor(state.items, state.saved, state.cosine)
        for state in sorted(states, key=lambda s: s.saved)
    ]


def _decide(texts, stage: Stage, states: list[_State], most: int) -> list[_State]:
    """Both ways on for every draft: run the stage, or leave it out."""
    ran: list[list[mx.array]] = [[] for _ in states]
    for begin in range(0, len(states), CELLS_AT_ONCE):
        part = states[begin : begin + CELLS_AT_ONCE]
        for number, text in enumerate(texts):
            rows = mx.stack([state.rows[number] for state in part])
            for depth in stage.depths:
                rows = text.run_block(depth, rows)
            mx.eval(rows)
            for place in range(len(part)):
                ran[begin + place].append(rows[place])
    found = [
        _State(state.items, state.saved, 0.0, rows)
        for state, rows in zip(states, ran, strict=True)
    ]
    if stage.items:
        found += [
            _State((*s.items, *stage.items), s.saved + stage.saved, 0.0, s.rows)
            for s in states
            if s.saved + stage.saved <= most
        ]
    return found


def _judge(texts, states: list[_State], depth: int, only_last_row: bool) -> None:
    """Write the cosine to the target's residual stream at that depth into each state."""
    total, count = np.zeros(len(states)), 0
    for number, text in enumerate(texts):
        # in half precision the squares of a residual stream overflow
        target = text.depths[depth].astype(mx.float32)  # (1, r, d)
        rows = mx.stack([state.rows[number] for state in states]).astype(mx.float32)
        if only_last_row:
            target, rows = target[:, -1:], rows[:, -1:]
        lengths = mx.linalg.norm(rows, axis=-1) * mx.linalg.norm(target, axis=-1)
        cosines = (rows * target).sum(axis=-1) / mx.maximum(lengths, 1e-12)
        total += np.array(cosines.sum(axis=-1))
        count += target.shape[1]
    if not np.isfinite(total).all():
        raise ValueError(
            "a hidden state is not a number. Way out: a model whose weights are whole"
        )
    for state, cosine in zip(states, total / count, strict=True):
        state.cosine = float(cosine)


def _survive(
    states: list[_State], unit: int, width: int, threshold: float
) -> list[_State]:
    """The best of each cell; the draft that leaves nothing out always."""
    cells: dict[int, list[_State]] = {}
    for state in states:
        if state.cosine >= threshold or not state.items:
            cells.setdefault(state.saved // unit, []).append(state)
    return [
        state
        for cell in cells.values()
        for state in sorted(cell, key=lambda s: (-s.cosine, s.saved))[:width]
    ]
