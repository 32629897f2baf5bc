"""The first layers of a model, run once for both draft and verification.

The draft's rows through the first `depth` layers are the target's own. This keeps their
residual stream (un-normalised, (1, 1, dim) a row) and lets the verification begin at
layer `depth`. The model's own forward is driven both times: while drafting, the last of
the first layers keeps what it returns; while verifying, the very first returns what was
kept. So no embedding scale, mask, soft-cap or logit scale is written again here.

    prefix = Prefix(stack, depth=8)
    layers[7] = prefix.tap                           # whoever runs it keeps its rows
    logits = prefix.verify(ids_of_all_rows, caches, length)
"""

import mlx.core as mx

from selfspec.decoding.caches import Caches
from selfspec.models.blocks import Stack
from selfspec.models.surgery import advance, cache_of, pass_through, with_call


class Prefix:
    """Layers 0 to `depth` - 1 of a stack, with what they computed in this round.

    Attributes:
        rows: what the first layers returned, in order; the draft empties it as it
            begins a round.
        tap: layer `depth` - 1, which adds to `rows` whenever it runs.
    """

    def __init__(self, stack: Stack, depth: int):
        self.depth = depth
        self.num_layers = stack.num_layers
        self.rows: list[mx.array] = []
        first, late = list(stack.layers[:depth]), list(stack.layers[depth:])
        self.tap = holding(first[-1], run_and_keep, self.rows)
        inject = holding(first[0], _return_kept, self.rows)
        self.early_model = stack.with_layers(
            [*first[:-1], self.tap, *map(pass_through, late)]
        )
        self.late_model = stack.with_layers(
            [inject, *map(pass_through, first[1:]), *late]
        )

    def read(self, ids: mx.array, caches: Caches) -> mx.array:
        """Run `ids` (T,) through the first layers: early-exit logits (T, V).

        The first layers' cache moves on, the late ones' stays where it is.
        """
        entries = caches.stand_ins(range(self.depth, self.num_layers))
        stand_at(entries[self.depth :], entries[0].offset)
        return self.early_model(ids[None], cache=entries)[0]

    def complete(self, ids: mx.array, caches: Caches) -> None:
        """Run those of `ids` (D + 1,) through the first layers that no step has run."""
        missing = ids[sum(row.shape[1] for row in self.rows) :]
        if len(missing):
            self.read(missing, caches)  # its head is never evaluated

    def verify(self, ids: mx.array, caches: Caches, length: int) -> mx.array:
        """The late layers over every row of `ids` (D + 1,): logits (D + 1, V).

        Rows that no draft step has run yet go through the first layers now. The cache
        stands at `length`, but for what the draft wrote after it.
        """
        self.complete(ids, caches)
        caches.roll_back(length, first_layer=self.depth)
        entries = caches.stand_ins(range(self.depth))
        stand_at(entries[: self.depth], length)
        logits = self.late_model(ids[None], cache=entries)[0]
        self.rows.clear()
        return logits


def stand_at(stand_ins, length: int) -> None:
    """Move position-only entries to `length`."""
    for entry in stand_ins:
        advance(entry, length - entry.offset)


def holding(layer, call, rows: list):
    """The layer with another call, which finds the layer and `rows` on it, as `kept`."""
    clone = with_call(layer, call)
    object.__setattr__(clone, "kept", (layer, rows))
    return clone


# Plain functions that find what they need on the module: a closure over the prefix would
# be a cycle, and keep the caches alive until Python's collector comes round.


def run_and_keep(tap, *args, **kwargs):
    """What the layer returns, kept too."""
    layer, rows = tap.kept
    rows.append(layer(*args, **kwargs))
    return rows[-1]


def run_and_tell(tap, *args, **kwargs):
    """What the layer returns, kept with where in its cache it begins."""
    layer, told = tap.kept
    start = cache_of(args, kwargs).offset
    told.append((start, layer(*args, **kwargs)))
    return told[-1][1]


def _return_kept(inject, x, *args, **kwargs):
    _, rows = inject.kept
    advance(cache_of(args, kwargs), x.shape[1])
    return mx.concatenate(rows, axis=1)
