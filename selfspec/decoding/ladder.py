"""The first layers of a model in steps, with an exit after each of them.

prefix.py with several depths: between two exits lies a step of layers, and rows wait at
an exit until a deeper one is asked for. Then all that wait there run through the next
step together, so that a row that goes deep finds the keys and values of the rows before
it. The verification takes up every row where it waits. The model's own forward is
driven each time, as in prefix.py.

    ladder = Ladder(stack, exits=(2, 4, 6))
    ladder.clear()                             # a round begins
    logits = ladder.read(ids, caches)          # exit after 2 layers, last row (1, V)
    logits = ladder.climb(1, caches)           # the same row after 4
    logits = ladder.verify(ids_of_all_rows, caches)        # (D + 1, V)
"""

from collections.abc import Sequence

import mlx.core as mx

from selfspec.decoding.caches import Caches
from selfspec.decoding.prefix import holding, run_and_keep, stand_at
from selfspec.models.blocks import Stack
from selfspec.models.surgery import advance, cache_of, pass_through


class Ladder:
    """Layers 0 to `exits[-1]` - 1 of a stack in steps, and those beyond as the last.

    Args:
        exits: layers run at each exit, ascending, each below the stack's number.
    """

    def __init__(self, stack: Stack, exits: Sequence[int]):
        self.bounds = (0, *exits, stack.num_layers)
        # at exit i: un-normalised rows (1, n, dim) that step i + 1 has not run yet
        self.waiting: list[list[mx.array]] = [[] for _ in exits]
        self.ids: list[mx.array] = []
        self.models = [self._step(stack, i) for i in range(len(exits) + 1)]

    def _step(self, stack: Stack, index: int):
        """The model that runs only step `index`; up to an exit, it ends with one row."""
        begin, end = self.bounds[index], self.bounds[index + 1]
        layers = list(map(pass_through, stack.layers))
        layers[begin:end] = stack.layers[begin:end]
        if begin:
            waiting = self.waiting[index - 1]
            layers[0] = holding(stack.layers[0], _take_waiting, waiting)
        if end < stack.num_layers:
            waiting = self.waiting[index]
            layers[end - 1] = holding(layers[end - 1], run_and_keep, waiting)
            # An exit speaks for the last row; the head is dear, others need none.
            layers[end] = holding(layers[end], _last_row, waiting)
        return stack.with_layers(layers)

    def clear(self) -> None:
        """Forget every row: a new round begins."""
        self.ids.clear()
        for rows in self.waiting:
            rows.clear()

    def read(self, ids: mx.array, caches: Caches) -> mx.array:
        """Run `ids` (T,) to the first exit: logits of the last row (1, V)."""
        self.ids.append(ids)
        return self._drive(0, ids, caches)[:, -1]

    def climb(self, index: int, caches: Caches) -> mx.array:
        """Run what waits before step `index` through it: logits of the last row (1, V)."""
        return self._climb(index, caches)[:, -1]

    def verify(self, ids: mx.array, caches: Caches) -> mx.array:
        """Every row of `ids` (D + 1,) through what it has not run yet: logits (D + 1, V)."""
        missing = ids[sum(map(len, self.ids)) :]
        if len(missing):
            self.read(missing, caches)  # no head of an exit is evaluated here
        for index in range(1, len(self.waiting)):
            if self.waiting[index - 1]:
                self._climb(index, caches)
        logits = self._climb(len(self.waiting), caches)[0]
        self.clear()
        return logits

    def _climb(self, index: int, caches: Caches) -> mx.array:
        count = sum(rows.shape[1] for rows in self.waiting[index - 1])
        ids = mx.concatenate(self.ids)[-count:]  # those that wait are the last ones
        return self._drive(index, ids, caches)

    def _drive(self, index: int, ids: mx.array, caches: Caches) -> mx.array:
        begin, end = self.bounds[index], self.bounds[index + 1]
        others = [*range(begin), *range(end, self.bounds[-1])]
        entries = caches.stand_ins(others)
        # Masks may be made from any layer's cache, so all stand where this step does.
        stand_at([entries[i] for i in others], entries[begin].offset)
        return self.models[index](ids[None], cache=entries)


# Plain functions, for the reason that prefix.py gives.


def _take_waiting(inject, x, *args, **kwargs):
    _, waiting = inject.kept
    rows = mx.concatenate(waiting, axis=1)
    waiting.clear()
    advance(cache_of(args, kwargs), x.shape[1])
    return rows


def _last_row(layer, x, *args, **kwargs):
    advance(cache_of(args, kwargs), x.shape[1])
    return x[:, -1:]
