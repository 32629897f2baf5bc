"""Many positions of a text in one pass, each seeing what a draft would see there.

While drafting, a row reads the target's keys and values for the past and the draft's own
for what was drafted in this round. Both exist at once here: the target has read the
whole text before, and `Past` stands in for a layer's cache, handing out the target's
keys followed by the rows' own, with a mask in which each row sees the target's up to the
start of its round and its own from there on. So one pass of r rows says what r rounds
(or r/k rounds of k) of the engine would have drafted. Cells, the first dimension, are
different drafts of the same rows. The model's own forward is driven throughout.

    text = TargetText(stack, window)
    logits, last = text.draft(layers, starts=[0, 1, 2, ...])
    after = text.run_block(7, rows)                       # (cells, r, d) in and out
"""

from collections.abc import Sequence

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from selfspec.decoding.caches import Caches, WindowCache
from selfspec.models.blocks import Stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.surgery import pass_through, with_call, zero_attention, zero_mlp
from selfspec.selection.windows import Window

CHUNK = 512  # rows of a prompt read at once


class Past:
    """Stands in for one layer's cache during one pass over rows of a text.

    Args:
        keys, values: the target's, (1, heads, T, dim), positions 0 to T - 1.
        window: of a sliding-window layer, else None.
        first: position of the first row.
        starts: for each row, the row that began its round; (r,).
    """

    def __init__(self, keys, values, window: int | None, first: int, starts: mx.array):
        self.keys, self.values = keys, values
        self.window, self.offset = window, first
        self.first, self.starts = first, starts

    def update_and_fetch(self, keys: mx.array, values: mx.array):
        return _after(self.keys, keys), _after(self.values, values)

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array:
        """(N, T + N): the target's rows before the round, the draft's own in it."""
        window = window_size or self.window
        row = mx.arange(N)[:, None]
        past = mx.arange(self.keys.shape[2])[None]
        own = mx.arange(N)[None]
        start = self.starts[:, None]
        sees_past = past < self.first + start
        sees_own = (own >= start) & (own <= row)
        if window:
            sees_past = sees_past & (self.first + row < past + window)
            sees_own = sees_own & (row < own + window)
        return mx.concatenate([sees_past, sees_own], axis=1)


def _after(past: mx.array, own: mx.array) -> mx.array:
    """The same past before the rows of every cell."""
    shape = (own.shape[0], *past.shape[1:])
    return mx.concatenate([mx.broadcast_to(past, shape), own], axis=2)


class TargetText:
    """One window as the target read it: keys, values, what it says at each row.

    Attributes:
        ids: input tokens of the rows, (1, r): the last of the prompt and the generated
            ones but the last.
        target: the target's argmax at each row, (r,).
        log_probs: the target's, (r, V).
        depths: its residual stream before the first block and after every one,
            2L + 1 arrays of (1, r, d); empty if blocks do not follow one another.
    """

    def __init__(self, stack: Stack, window: Window):
        self.stack, self.first = stack, window.start - 1
        self.past = _read(stack, window.tokens[:-1])
        self.ids = mx.array([window.tokens[self.first : -1]])
        rows = list(range(self.num_rows))
        logits, last = self.draft(stack.layers, starts=rows)
        self.target = mx.argmax(logits[0], axis=-1)
        self.log_probs = logits[0] - mx.logsumexp(logits[0], axis=-1, keepdims=True)
        self.last = last
        mx.eval(self.target, self.log_probs, self.last)
        self._depths: list[mx.array] | None = None

    @property
    def num_rows(self) -> int:
        return self.ids.shape[1]

    @property
    def depths(self) -> list[mx.array]:
        if self._depths is None:
            self._depths = self._residuals()
        return self._depths

    def draft(
        self,
        layers: Sequence,
        *,
        starts: Sequence[int],
    ) -> tuple[mx.array, mx.array]:
        """One pass of every row through `layers`.

        Args:
            layers: as many as the model has, with what a draft leaves out silenced.
            starts: for each row, the row that began its round.

        Returns:
            Logits (1, r, V) and the residual stream after the last layer (1, r, d).
        """
        kept: list[mx.array] = []
        tapped = [*layers[:-1], _tap(layers[-1], kept)]
        model = self.stack.with_layers(tapped)
        logits = model(self.ids, cache=self._entries(starts))
        return logits.astype(mx.float32), kept[0]

    def run_block(
        self, depth: int, rows: mx.array, starts: Sequence[int] | None = None
    ) -> mx.array:
        """One block over given residual streams: (cells, r, d) in and out.

        Args:
            depth: 2i runs the attention of layer i, 2i + 1 its MLP.
            rows: what the block reads, at every row of the text.
            starts: default, every row begins a round.
        """
        layer, is_mlp = divmod(depth, 2)
        block = _half(self.stack, layer, is_mlp=bool(is_mlp))
        kept: list[mx.array] = []

        def call(module, x, *args, **kwargs):
            kept.append(block(rows, *args, **kwargs))
            return x

        layers = [pass_through(x) for x in self.stack.layers]
        layers[layer] = with_call(self.stack.layers[layer], call)
        every = range(self.num_rows) if starts is None else starts
        # the head that follows is never evaluated
        self.stack.with_layers(layers)(self._blank(rows), cache=self._entries(every))
        return kept[0]

    def _residuals(self) -> list[mx.array]:
        """Block by block from the embedding to the last layer."""
        kept: list[mx.array] = []
        first = self.stack.layers[0]

        def keep_input(module, x, *args, **kwargs):
            kept.append(x)
            return x

        layers = [with_call(first, keep_input)]
        layers += [pass_through(x) for x in self.stack.layers[1:]]
        self.stack.with_layers(layers)(
            self.ids, cache=self._entries(range(self.num_rows))
        )
        for depth in range(2 * self.stack.num_layers):
            kept.append(self.run_block(depth, kept[-1]))
        mx.eval(kept)
        scale = mx.abs(self.last).max()
        if (mx.abs(kept[-1] - self.last).max() > 1e-3 * scale).item():
            raise UnsupportedModelError(
                f"{name_of(self.stack.model)}: its blocks do not follow one another "
                "(attention and MLP read the same input), so none can be followed "
                "alone. Way out: another selector, such as knapsack or greedy"
            )
        return kept

    def _entries(self, starts: Sequence[int]) -> list[Past]:
        starts = mx.array(list(starts))
        return [
            Past(keys, values, window, self.first, starts)
            for keys, values, window in self.past
        ]

    def _blank(self, rows: mx.array) -> mx.array:
        """Tokens of the shape of the cells; what they are does not matter."""
        return mx.zeros(rows.shape[:2], mx.uint32)


def round_starts(num_rows: int, length: int, phase: int = 0) -> list[int]:
    """For each row the row that begins its round, rounds of `length` from row `phase`.

    Rows before `phase` are a first, shorter round.
    """
    if not (1 <= length and 0 <= phase < length):
        raise ValueError(
            f"rounds of 1 or more rows, phase below that, got {length} and {phase}"
        )
    return [
        0 if row < phase else row - (row - phase) % length for row in range(num_rows)
    ]


def _read(stack: Stack, tokens: Sequence[int]) -> list[tuple]:
    """Keys, values and window of every layer after the target read the tokens.

    Raises:
        UnsupportedModelError: caches that are not keys and values a row.
    """
    caches = Caches(make_prompt_cache(stack.model))
    caches.check(name_of(stack.model), stack.num_layers)
    if any(isinstance(entry, RotatingKVCache) for entry in caches.entries):
        caches.widen()  # a ring forgets what a row in the middle still sees
    for begin in range(0, len(tokens), CHUNK):
        stack.model(mx.array([tokens[begin : begin + CHUNK]]), cache=caches.entries)
        caches.evaluate()
    return [
        (
            entry.keys[..., : entry.offset, :],
            entry.values[..., : entry.offset, :],
            entry.window if isinstance(entry, WindowCache) else None,
        )
        for entry in caches.entries
    ]


def _tap(layer, kept: list):
    """The layer, keeping what it returns."""

    def call(module, *args, **kwargs):
        kept.append(layer(*args, **kwargs))
        return kept[-1]

    return with_call(layer, call)


def _half(stack: Stack, layer: int, *, is_mlp: bool):
    """The layer with its other block silenced."""
    if is_mlp:
        return stack.replace(layer, attention=zero_attention(stack.attention_of(layer)))
    return stack.replace(layer, mlp=zero_mlp(stack.mlp_of(layer)))
