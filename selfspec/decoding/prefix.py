"""The first layers of a model, run once for both draft and verification.

The draft's rows through the first `depth` layers are the target's own. This keeps their
residual stream (un-normalised, (1, 1, dim) a row) and lets the verification begin at
layer `depth`. The model's own forward is driven both times: while drafting the layers
beyond pass their input through, while verifying the first layer returns the kept rows.
So no embedding scale, mask, soft-cap or logit scale is written again here.

    prefix = Prefix(stack, depth=8)
    prefix.start(caches); prefix.step(ids)             # draft rows, kept
    logits = prefix.verify(ids_of_all_rows, caches)
"""

import mlx.core as mx

from selfspec.decoding.caches import Caches
from selfspec.models.blocks import Stack
from selfspec.models.surgery import advance, cache_of, pass_through, with_call


class Prefix:
    """Layers 0 to `depth` - 1 of a stack, with what they computed in this round."""

    def __init__(self, stack: Stack, depth: int):
        self.depth = depth
        self.num_layers = stack.num_layers
        self.rows: list[mx.array] = []
        first, late = list(stack.layers[:depth]), list(stack.layers[depth:])
        self.tap = self._tapped(first[-1])
        self.early_model = stack.with_layers(
            [*first[:-1], self.tap, *map(pass_through, late)]
        )
        inject = self._injecting(first[0])
        self.late_model = stack.with_layers(
            [inject, *map(pass_through, first[1:]), *late]
        )

    def _tapped(self, layer):
        """The layer as it is, keeping what it returns."""
        tap = with_call(layer, _run_and_keep)
        object.__setattr__(tap, "kept", (layer, self.rows))
        return tap

    def _injecting(self, layer):
        """In the first layer's place: what was kept, whatever comes in."""
        inject = with_call(layer, _return_kept)
        object.__setattr__(inject, "kept", (layer, self.rows))
        return inject

    def start(self, caches: Caches) -> None:
        """Begin a round: nothing kept, late layers stand in at the present length."""
        self.rows.clear()
        self.entries = caches.stand_ins(range(self.depth, self.num_layers))

    def step(self, ids: mx.array) -> mx.array:
        """Run `ids` (T,) through the first layers: early-exit logits (T, V)."""
        return self.early_model(ids[None], cache=self.entries)[0]

    def verify(self, ids: mx.array, caches: Caches, length: int) -> mx.array:
        """The late layers over every row of `ids` (D + 1,): logits (D + 1, V).

        Rows that no draft step has run yet go through the first layers now. The cache
        of the late layers must stand at `length`; the early ones' has run ahead.
        """
        missing = ids[sum(row.shape[1] for row in self.rows) :]
        if len(missing):
            # The draft may have stood elsewhere meanwhile (a skip draft's late layers).
            self.entries = caches.stand_ins(range(self.depth, self.num_layers))
            self._stand_at(self.entries[self.depth :], caches.entries[0].offset)
            self.step(missing)  # its head is never evaluated
        entries = caches.stand_ins(range(self.depth))
        self._stand_at(entries[: self.depth], length)
        logits = self.late_model(ids[None], cache=entries)[0]
        self.rows.clear()
        return logits

    @staticmethod
    def _stand_at(stand_ins, length):
        for entry in stand_ins:
            advance(entry, length - entry.offset)


# Plain functions that find what they need on the module: a closure over the prefix would
# be a cycle, and keep the caches alive until Python's collector comes round.


def _run_and_keep(tap, *args, **kwargs):
    layer, rows = tap.kept
    rows.append(layer(*args, **kwargs))
    return rows[-1]


def _return_kept(inject, x, *args, **kwargs):
    _, rows = inject.kept
    advance(cache_of(args, kwargs), x.shape[1])
    return mx.concatenate(rows, axis=1)
