"""What a model would say if it stopped after each of its layers, scored on given texts.

One pass a batch keeps the residual stream after every layer; the model's own norm and
head then read each of them, by driving the model with its layers passed through. Nothing
is generated: greedy decoding gives the answer exactly where every token of it is the
best one after the tokens before, so exact match of early exit alone is read off too.

    texts = [Text(ids=(5, 8, 2, 9, 1), start=3)]     # the answer begins at index 3
    for score in score_exits(model, texts): score.exit_layer, score.exact_match
    depths = prediction_depths(model, texts[0])      # layer from which each token stays
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from selfspec.models.blocks import find_stack
from selfspec.models.surgery import pass_through, with_call

LOGITS = 2**24  # most logits that are held at a time


@dataclass(frozen=True)
class Text:
    """Token ids, of which those from `start` on are scored (1 or more)."""

    ids: tuple[int, ...]
    start: int

    def __post_init__(self):
        if not 1 <= self.start < len(self.ids):
            raise ValueError(
                f"start must be from 1 to {len(self.ids) - 1}, got {self.start}"
            )


@dataclass(frozen=True)
class ExitScore:
    """How the exit after `exit_layer` layers did; sums, so that they can be pooled.

    Attributes:
        texts: scored.
        exact: texts of which every scored token was the best one.
        positions: scored tokens.
        surprise: sum of their -log probability, in nats.
        agreed: positions whose best token is the last layer's.
        right: positions whose best token is the text's.
    """

    exit_layer: int
    texts: int
    exact: int
    positions: int
    surprise: float
    agreed: int
    right: int

    @property
    def exact_match(self) -> float:
        return self.exact / self.texts

    @property
    def perplexity(self) -> float:
        """exp of the mean surprise; infinite where that is beyond a float."""
        mean = self.surprise / self.positions
        return math.exp(mean) if mean < 700 else math.inf

    @property
    def agreement(self) -> float:
        """Share of positions at which the exit's best token is the last layer's."""
        return self.agreed / self.positions

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score_exits(model, texts: Sequence[Text]) -> list[ExitScore]:
    """Score the exit after every layer, 1 to L; the last one is the model itself.

    Raises:
        ValueError: no text.
    """
    if not texts:
        raise ValueError("score_exits needs at least one text")
    sums: np.ndarray | None = None
    for batch in _batches(model, texts):
        ids, scored = _padded(batch)
        found = [
            _sums(logits, ids, scored) for logits in exit_logits(model, mx.array(ids))
        ]
        last = found[-1][-1]
        lines = [
            [surprise, right, exact, ((top == last) & scored[:, 1:]).sum()]
            for surprise, right, exact, top in found
        ]
        sums = np.array(lines, float) + (0 if sums is None else sums)
    positions = sum(len(text.ids) - text.start for text in texts)
    return [
        ExitScore(
            exit_layer=layer,
            texts=len(texts),
            exact=int(exact),
            positions=positions,
            surprise=float(surprise),
            agreed=int(agreed),
            right=int(right),
        )
        for layer, (surprise, right, exact, agreed) in enumerate(sums, start=1)
    ]


def prediction_depths(model, text: Text) -> list[int]:
    """For each scored token, the first layer from which the best token stays the last's.

    1 where every exit already says what the last layer says; L where only it does.
    """
    ids = mx.array([text.ids])
    tops = np.array(
        [
            np.array(mx.argmax(logits[0], axis=-1))[text.start - 1 : -1]
            for logits in exit_logits(model, ids)
        ]
    )  # (L, positions)
    stays = np.cumprod((tops == tops[-1])[::-1], axis=0).sum(axis=0)
    return [int(len(tops) - count + 1) for count in stays]


def exit_logits(model, ids: mx.array) -> Iterator[mx.array]:
    """Logits (B, T, V) of the model stopped after 1, 2, ... L layers.

    Args:
        ids: (B, T).
    """
    stack = find_stack(model)
    kept: list[mx.array] = []

    def keeping(layer):
        def call(self, *args, **kwargs):
            kept.append(layer(*args, **kwargs))
            return kept[-1]

        return with_call(layer, call)

    last = stack.with_layers(list(map(keeping, stack.layers)))(ids)
    mx.eval(kept)
    passing = [pass_through(layer) for layer in stack.layers[1:]]
    for stream in kept[:-1]:
        inject = with_call(
            stack.layers[0], lambda self, *args, stream=stream, **kwargs: stream
        )
        yield stack.with_layers([inject, *passing])(ids)
    yield last


def _batches(model, texts: Sequence[Text]) -> Iterator[list[Text]]:
    """Texts of about one length together, as many as the memory for logits allows."""
    vocab_size = model(mx.array([[0]])).shape[-1]  # never run
    batch: list[Text] = []
    for text in sorted(texts, key=lambda text: len(text.ids)):
        if batch and (len(batch) + 1) * len(text.ids) * vocab_size > LOGITS:
            yield batch
            batch = []
        batch.append(text)
    yield batch


def _padded(batch: Sequence[Text]) -> tuple[np.ndarray, np.ndarray]:
    """ids (B, T), padded on the right where causality ignores it; which are scored."""
    longest = max(len(text.ids) for text in batch)
    ids = np.zeros((len(batch), longest), np.int64)
    scored = np.zeros((len(batch), longest), bool)
    for row, text in enumerate(batch):
        ids[row, : len(text.ids)] = text.ids
        scored[row, text.start : len(text.ids)] = True
    return ids, scored


def _sums(logits: mx.array, ids: np.ndarray, scored: np.ndarray):
    """Surprise, right tokens, exact texts, and the best tokens (B, T - 1)."""
    logits = logits[:, :-1].astype(mx.float32)
    wanted = mx.array(ids[:, 1:])[..., None]
    log_probs = mx.take_along_axis(logits, wanted, axis=-1)[..., 0] - mx.logsumexp(
        logits, axis=-1
    )
    top = mx.argmax(logits, axis=-1)
    mx.eval(log_probs, top)
    mask, top = scored[:, 1:], np.array(top)
    hit = top == ids[:, 1:]
    surprise = -float(np.array(log_probs, dtype=float)[mask].sum())
    return surprise, int((hit & mask).sum()), int((hit | ~mask).all(axis=1).sum()), top
