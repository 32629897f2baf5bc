"""Samples into batches: padded on the right, scored where the sample says.

The order of the data is a function of the seed and the step alone, so a training that
resumes needs to remember nothing of it. Samples of about one length go together.

    order = Order([len(s.ids) for s in samples], batch=32, seed=0)
    batch = collate([samples[i] for i in order.at(step)])
    batch.ids, batch.rows, batch.targets
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

POOL = 8  # batches that are sorted by length together


@dataclass(frozen=True)
class Sample:
    """Token ids, of which those from `start` on are to be learnt (1 or more)."""

    ids: tuple[int, ...]
    start: int = 1

    def __post_init__(self):
        if not 1 <= self.start < len(self.ids):
            raise ValueError(
                f"start must be from 1 to {len(self.ids) - 1}, got {self.start}"
            )


@dataclass(frozen=True)
class Batch:
    """Padded ids (B, T), the rows of (B T) whose next token is learnt, and those tokens."""

    ids: np.ndarray
    rows: np.ndarray
    targets: np.ndarray


def collate(samples: Sequence[Sample]) -> Batch:
    """One batch. Padding stands on the right, where causality ignores it, and is
    neither a row nor a target."""
    longest = max(len(sample.ids) for sample in samples)
    ids = np.zeros((len(samples), longest), np.int32)
    rows, targets = [], []
    for place, sample in enumerate(samples):
        ids[place, : len(sample.ids)] = sample.ids
        # row t predicts token t + 1, at every exit alike
        ends = len(sample.ids) - 1
        rows.extend(range(place * longest + sample.start - 1, place * longest + ends))
        targets.extend(sample.ids[sample.start :])
    return Batch(ids, np.array(rows, np.int32), np.array(targets, np.int32))


class Order:
    """Which samples make up the batch of each step, epoch after epoch.

    Args:
        lengths: of every sample.
        batch: samples a step; what is left of an epoch waits for another one.
        seed: another seed, another order.

    Raises:
        ValueError: fewer samples than a batch holds.
    """

    def __init__(self, lengths: Sequence[int], *, batch: int, seed: int):
        if len(lengths) < batch:
            raise ValueError(
                f"a batch of {batch} needs as many samples, got {len(lengths)}"
            )
        self.lengths = np.array(lengths)
        self.batch, self.seed = batch, seed
        self.per_epoch = len(lengths) // batch
        self._epoch, self._batches = -1, []

    def at(self, step: int) -> np.ndarray:
        """Indices of the samples of a step, from 0."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._shuffled(epoch)
        return self._batches[place]

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.lengths))[: self.per_epoch * self.batch]
        batches = []
        for begin in range(0, len(order), POOL * self.batch):
            pool = order[begin : begin + POOL * self.batch]
            pool = pool[np.argsort(self.lengths[pool], kind="stable")]
            together = pool.reshape(-1, self.batch)
            batches += [together[i] for i in rng.permutation(len(together))]
        return batches
