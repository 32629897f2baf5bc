"""Drafting through a fitted bridge, on the target's own cache and a small one more.

The first layers run as in an ExitDraft: on the target's cache, their rows kept for the
verification. What they return goes through the bridge and then through the model's own
final norm and head. The first layers are the target's, so the bridge reads, of drafted
tokens too, just what it would read in the finished text; its own cache follows the text
by what those layers said in every pass, its own drafts or not.

    drafter = AdapterDrafter(AdapterDraft(8, bridge), target)
"""

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, RotatingKVCache

from selfspec.decoding.caches import Caches, WindowCache
from selfspec.decoding.drafting import StepDrafter, Target, rows_to_verify
from selfspec.decoding.drafts import AdapterDraft
from selfspec.decoding.prefix import Prefix, holding, stand_at
from selfspec.models.blocks import Stack
from selfspec.models.surgery import advance, cache_of, pass_through

READ_APART = 64  # unread rows that are not left to the next draft step


class AdapterDrafter(StepDrafter):
    """Runs the first layers, the bridge and the head; verification goes on from there.

    Attributes:
        end: how much of the text, in the target's count, the bridge has read or has at
            hand in `unread`. What nobody told it of (an earlier conversation in the
            cache, say) it has not, and its own cache is shorter by that.
    """

    name = "AdapterDraft"

    def __init__(self, draft: AdapterDraft, target: Target):
        super().__init__(target)
        num_layers = target.stack.num_layers
        if draft.exit_layer >= num_layers:
            raise ValueError(
                f"exit_layer must be from 1 to {num_layers - 1} for "
                f"{num_layers} layers, got {draft.exit_layer}"
            )
        self.prefix = Prefix(target.stack, draft.exit_layer)
        self.crossing: list[mx.array] = []
        layer = draft.bridge.module(target.stack)
        self.model = bridge_model(target.stack, layer, self.crossing, last_row)
        self.attends = draft.bridge.attends
        self.caches = Caches([_fresh_like(target.caches.entries[-1])])
        self.heard = target.listen(draft.exit_layer) if self.attends else []
        self.unread: list[mx.array] = []
        self.end = 0

    # A round

    def prefill(self, tokens):
        self._listen()
        self._read()

    def start(self, tokens):
        length = self.target.length(tokens)
        # Another draft may have run ahead in this very round, and proposed nothing.
        self.target.caches.roll_back(length)
        self.prefix.rows.clear()
        self._listen()
        self._forget(length)
        self.end = length
        if sum(rows.shape[1] for rows in self.unread) > READ_APART:
            self._read()
        return super().start(tokens)

    def step(self, ids):
        self.prefix.read(ids, self.target.caches)  # its head is never evaluated
        rows = [*self.unread, self.prefix.rows[-1]]
        self.unread = []
        self.end += len(ids)
        return self._cross(mx.concatenate(rows, axis=1))

    def verify(self, tokens, drafted):
        rows, length = rows_to_verify(tokens, drafted), self.target.length(tokens)
        caches = self.target.caches
        self.prefix.complete(rows, caches)
        kept = mx.concatenate(self.prefix.rows, axis=1)
        self._hear(self.end, kept[:, self.end - length :])
        return self.prefix.verify(rows, caches, length)

    def settle(self, length):
        self._forget(self.target.base + length)

    def room(self):
        return self.caches.room() - 1

    # What the bridge reads

    def _listen(self) -> None:
        """Take over what the first layers returned in passes of the target."""
        for start, rows in self.heard:
            self._hear(start, rows)
        self.heard.clear()

    def _hear(self, start: int, rows: mx.array) -> None:
        """Rows (1, T, dim) that begin at `start` of the text take the place of others."""
        self._forget(start)
        self.end = start + rows.shape[1]
        if self.attends and rows.shape[1]:
            self.unread.append(rows)

    def _forget(self, length: int) -> None:
        """Drop what stands after the first `length` tokens of the text."""
        extra, self.end = self.end - length, min(self.end, length)
        while extra > 0 and self.unread:
            rows = self.unread.pop()
            if rows.shape[1] > extra:
                self.unread.append(rows[:, : rows.shape[1] - extra])
            extra -= rows.shape[1]
        if extra > 0:
            self.caches.roll_back(max(0, self.caches.length - extra))

    def _read(self) -> None:
        """Run what is unread through the bridge alone, like a prompt."""
        if not self.unread:
            return
        rows, step = mx.concatenate(self.unread, axis=1), self.target.prefill_step_size
        self.unread = []
        for begin in range(0, rows.shape[1], step):
            self._cross(rows[:, begin : begin + step])
            self.caches.evaluate()

    def _cross(self, rows: mx.array) -> mx.array:
        """Rows (1, T, dim) through the bridge and the head: logits of the last (1, V)."""
        entries = self.target.caches.stand_ins(range(self.prefix.num_layers))
        if self.attends:
            stand_at(entries, self.caches.length)
            entries[-1] = self.caches.entries[0]
        self.crossing.append(rows)
        logits = self.model(mx.zeros(rows.shape[:2], mx.uint32), cache=entries)[:, -1]
        self.crossing.clear()
        return logits


def bridge_model(stack: Stack, layer: nn.Module, crossing: list[mx.array], call=None):
    """The model that runs the bridge alone, over what `crossing` holds: its logits.

    The bridge stands where the last layer stood, so it is handed that layer's mask.

    Args:
        layer: a bridge's module.
        call: what is done in its place, if not the layer itself (see `last_row`).
    """
    layers = list(map(pass_through, stack.layers))
    layers[0] = holding(stack.layers[0], _take_crossing, crossing)
    layers[-1] = holding(layer, call, crossing) if call else layer
    return stack.with_layers(layers)


def _fresh_like(entry):
    """An empty cache of the kind that the last layer has; never quantised."""
    if isinstance(entry, RotatingKVCache):
        return RotatingKVCache(entry.max_size, keep=entry.keep)
    if isinstance(entry, WindowCache):
        return WindowCache(entry.window)
    return KVCache()


# Plain functions, for the reason that prefix.py gives.


def _take_crossing(inject, x, *args, **kwargs):
    _, crossing = inject.kept
    advance(cache_of(args, kwargs), x.shape[1])
    return crossing[-1] if crossing else x  # asked for its shape, never run


def last_row(holder, *args, **kwargs):
    """The layer, of which only the last row goes on to the head, which is dear."""
    layer, _ = holder.kept
    return layer(*args, **kwargs)[:, -1:]
