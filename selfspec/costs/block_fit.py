"""Seconds of each kind of block, from the seconds of passes that run some of them.

A pass over m rows after n tokens of context takes, by the model stated here,

    sum over running blocks of   fixed + wide*[m > 1] + row*(m - 1)
                                 + context*n + row_context*(m - 1)*n

where a layer, once for its norms and additions, the head (by its share of the
vocabulary) and the rest count as blocks, only attention pays for context, and a pass
whose outcome is waited for pays `wait` besides (building the graph with an idle
device). The coefficients come from one non-negative least squares fit of relative
errors, in which outliers count less. Pure: arrays in, numbers out.

    blocks, residuals = fit_blocks([Sample({"attention": 30, "rest": 1}, 1, 128, 0.02), ...])
    blocks["attention"].seconds(rows=1, context=512)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

TOLERANCE = 0.02  # relative error beyond which a sample counts as an outlier
ROUNDS = 12  # of reweighting


@dataclass(frozen=True)
class Sample:
    """One measured pass.

    Attributes:
        running: how many blocks of each kind ran; the head's share of the vocabulary.
        rows: m.
        context: n, tokens in the cache.
        seconds: of the pass.
        waits: 1 if its outcome was waited for, 1/k if k such passes were queued.
    """

    running: Mapping[str, float]
    rows: int
    context: int
    seconds: float
    waits: float = 0.0


@dataclass(frozen=True)
class BlockSeconds:
    """Coefficients of one kind of block, in seconds, none of them negative."""

    fixed: float = 0.0
    wide: float = 0.0
    row: float = 0.0
    context: float = 0.0
    row_context: float = 0.0
    wait: float = 0.0

    def __post_init__(self):
        wrong = {k: v for k, v in vars(self).items() if not 0 <= v < float("inf")}
        if wrong:
            raise ValueError(f"seconds of a block must be 0 or more, got {wrong}")

    def seconds(self, rows: int, context: int, waits: float = 0.0) -> float:
        """Of a pass over `rows` after `context` tokens in the cache."""
        terms = _terms(rows, context, waits)
        return sum(getattr(self, name) * value for name, value in terms.items())


@dataclass(frozen=True)
class Residuals:
    """Relative errors of a fit over its own samples, as shares (0.02 is 2 %)."""

    median: float
    largest: float
    samples: int


def running_blocks(kinds, left_out, head: float = 1.0) -> dict[str, float]:
    """How many blocks of each kind run.

    Args:
        kinds: the kind of each layer's attention, and of each layer's MLP.
        left_out: the layers whose attention, and whose MLP, is left out; a layer
            without either does not run at all.
        head: share of the vocabulary that the head scores.
    """
    running = {"rest": 1.0, "head": head, "layer": 0.0}
    for index, pair in enumerate(zip(*kinds, strict=True)):
        runs = [index not in layers for layers in left_out]
        running["layer"] += any(runs)
        for kind, block_runs in zip(pair, runs, strict=True):
            running[kind] = running.get(kind, 0.0) + block_runs
    return running


def fit_blocks(samples: Sequence[Sample]) -> tuple[dict[str, BlockSeconds], Residuals]:
    """Fit every kind of block that occurs in the samples.

    Raises:
        ValueError: no samples, or a sample that took no time.
    """
    if not samples or min(s.seconds for s in samples) <= 0:
        raise ValueError("fit_blocks needs samples, each of more than 0 seconds")
    kinds = list(dict.fromkeys(kind for s in samples for kind in s.running))
    columns = [(kind, name) for kind in kinds for name in _names(kind)]
    matrix = np.array([[_entry(s, *column) for column in columns] for s in samples])
    seconds = np.array([s.seconds for s in samples])
    weights = np.ones(len(samples))
    for _ in range(ROUNDS):
        # Columns of one size, so that tiny coefficients are found as well.
        weighted = matrix * (weights / seconds)[:, None]
        size = np.linalg.norm(weighted, axis=0)
        size[size == 0] = 1.0
        solution = nnls(weighted / size, weights)[0] / size
        errors = np.abs(matrix @ solution / seconds - 1)
        # Squares up to the tolerance, absolute values beyond (Huber 1964, by
        # reweighting): one probe that another program hit does not bend all.
        weights = np.sqrt(TOLERANCE / np.maximum(errors, TOLERANCE))
    blocks = {kind: {} for kind in kinds}
    for (kind, name), value in zip(columns, solution, strict=True):
        blocks[kind][name] = float(value)
    residuals = Residuals(float(np.median(errors)), float(errors.max()), len(samples))
    return {kind: BlockSeconds(**parts) for kind, parts in blocks.items()}, residuals


def _terms(rows: int, context: int, waits: float) -> dict[str, float]:
    return {
        "fixed": 1.0,
        "wide": float(rows > 1),
        "row": rows - 1.0,
        "context": float(context),
        "row_context": (rows - 1.0) * context,
        "wait": waits,
    }


def _names(kind: str) -> tuple[str, ...]:
    """The coefficients that a kind of block has; the others stay 0."""
    if kind.startswith("attention"):
        return "fixed", "wide", "row", "context", "row_context"
    if kind in ("layer", "rest"):
        return "fixed", "row", "wait"
    return "fixed", "wide", "row"


def _entry(sample: Sample, kind: str, name: str) -> float:
    count = sample.running.get(kind, 0.0)
    return count * _terms(sample.rows, sample.context, sample.waits)[name]
