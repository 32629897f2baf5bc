"""The caches of one model as one thing: how long it is, and how to take rows back.

Rolling back is to an absolute length, layer by layer, so it can be repeated and it does
not matter that early layers ran ahead of late ones. Only caches that mlx-lm can roll
back are taken; a ring (sliding window) can be rolled back until it wraps. Knows nothing
of drafts.

    caches = Caches(make_prompt_cache(model))
    caches.roll_back(length)          # forget everything after `length` tokens
    caches.stand_ins({3, 4})          # the list, with position-only entries at 3 and 4
"""

import copy
from collections.abc import Collection

import mlx.core as mx
from mlx_lm.models.cache import (
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from selfspec.models.blocks import name_of
from selfspec.models.errors import UnsupportedModelError

UNLIMITED = 2**62


class WindowCache(KVCache):
    """All keys and values of a sliding-window layer, with the window as a mask.

    A ring forgets what left the window, and with it the way back; this keeps it, at the
    price of memory, so that speculation goes on past the window.
    """

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def make_mask(
        self, N: int, window_size: int | None = None, return_array: bool = False
    ):
        window = window_size or self.window
        if self.offset + N > window:  # (N, offset + N)
            return super().make_mask(N, window_size=window, return_array=True)
        return super().make_mask(N, window_size=None, return_array=return_array)

    def to_quantized(self, group_size: int = 64, bits: int = 4):
        raise NotImplementedError("a window-masked cache cannot be quantised")


TAKEN = (KVCache, QuantizedKVCache, RotatingKVCache, WindowCache)


def _is_plain(entry) -> bool:
    """Whether mlx-lm can quantise it; a draft model's windows stay as they are."""
    return isinstance(entry, KVCache) and not isinstance(entry, WindowCache)


def _first_line(error: Exception) -> str:
    return f"{error}".splitlines()[0] if f"{error}" else type(error).__name__


class Caches:
    """One cache a layer, in the caller's own list, which is changed in place.

    Args:
        entries: mlx-lm's list of caches.
        kv_bits, kv_group_size, quantized_kv_start: as in mlx-lm.
    """

    def __init__(
        self,
        entries: list,
        kv_bits: int | None = None,
        kv_group_size: int = 64,
        quantized_kv_start: int = 0,
    ):
        self.entries = entries
        self.kv_bits = kv_bits
        self.kv_group_size = kv_group_size
        self.quantized_kv_start = quantized_kv_start

    @property
    def length(self) -> int:
        """Tokens whose keys and values every layer holds."""
        offsets = (getattr(entry, "offset", None) for entry in self.entries)
        return min((o for o in offsets if isinstance(o, int)), default=0)

    def check(self, name: str, num_layers: int) -> None:
        """Refuse what cannot be rolled back, naming it.

        Raises:
            UnsupportedModelError: a cache of another kind, or not one a layer.
            ValueError: caches of different lengths.
        """
        strange = {type(e).__name__ for e in self.entries if type(e) not in TAKEN}
        if strange:
            raise UnsupportedModelError(
                f"{name}: its cache {'/'.join(sorted(strange))} cannot be rolled back, "
                "so nothing can be drafted. Way out: decode without a draft"
            )
        if len(self.entries) != num_layers:
            raise UnsupportedModelError(
                f"{name}: {len(self.entries)} caches for {num_layers} layers (layers "
                "share keys and values, or run twice). Way out: decode without a draft"
            )
        offsets = {entry.offset for entry in self.entries}
        if len(offsets) != 1:
            raise ValueError(
                f"prompt_cache holds layers of different lengths {sorted(offsets)}. "
                "Way out: start from a new cache"
            )

    def check_quantisable(self, model) -> None:
        """Refuse kv_bits where mlx-lm would fail in the middle of a text.

        Raises:
            ValueError: naming kv_bits and the model.
        """
        if self.kv_bits is None:
            return
        name = name_of(model)
        windows = any(
            isinstance(e, RotatingKVCache | WindowCache) for e in self.entries
        )
        if windows:
            raise ValueError(
                f"kv_bits={self.kv_bits}: {name} has sliding-window layers, whose cache "
                "mlx-lm cannot quantise. Way out: kv_bits=None"
            )
        fresh = make_prompt_cache(model)
        try:
            for index, entry in enumerate(fresh):
                if _is_plain(entry):
                    fresh[index] = entry.to_quantized(self.kv_group_size, self.kv_bits)
            model(mx.array([[0]]), cache=fresh)  # never run
        except Exception as error:
            raise ValueError(
                f"kv_bits={self.kv_bits}, kv_group_size={self.kv_group_size}: mlx-lm "
                f"cannot quantise the cache of {name} ({_first_line(error)}). "
                "Way out: kv_bits=None, or other sizes"
            ) from None

    def widen(self) -> None:
        """Put a full, window-masked cache in the place of every ring.

        Raises:
            ValueError: a ring has already forgotten tokens, or keeps its first ones.
        """
        for index, ring in enumerate(self.entries):
            if not isinstance(ring, RotatingKVCache):
                continue
            if ring.keep:
                raise ValueError(
                    'window_cache="full" cannot stand for max_kv_size, which drops '
                    'tokens that a full window would keep. Way out: window_cache="ring"'
                )
            if ring.keys is not None and ring.offset > ring.keys.shape[2]:
                raise ValueError(
                    f"prompt_cache has wrapped its window of {ring.max_size} and lost "
                    'tokens. Way out: window_cache="ring", or a new cache'
                )
            full = WindowCache(ring.max_size)
            if ring.keys is not None:
                full.keys = ring.keys[..., : ring.offset, :]
                full.values = ring.values[..., : ring.offset, :]
                full.offset = ring.offset
            self.entries[index] = full

    def roll_back(self, length: int, first_layer: int = 0) -> None:
        """Forget every token after the first `length`, from layer `first_layer` on."""
        for entry in self.entries[first_layer:]:
            extra = entry.offset - length
            if extra > 0:
                entry.trim(extra)

    @property
    def can_roll_back(self) -> bool:
        return all(entry.is_trimmable() for entry in self.entries)

    def room(self) -> int:
        """Rows that may still be written and taken back again.

        A ring is rolled back by moving its index; once it is full, old rows are gone.
        """
        rings = [e for e in self.entries if isinstance(e, RotatingKVCache)]
        return min((e.max_size - 1 - e.offset for e in rings), default=UNLIMITED)

    def window(self) -> int:
        """The narrowest ring."""
        return min(e.max_size for e in self.entries if isinstance(e, RotatingKVCache))

    def rows_until_quantised(self) -> int:
        """Rows until mlx-lm's loop would quantise the cache; a round must not straddle.

        Every token then attends to just the keys it attends to in plain decoding.
        """
        pending = any(map(_is_plain, self.entries))
        if self.kv_bits is None or not pending:
            return UNLIMITED
        return max(1, self.quantized_kv_start - self.length)

    def quantise(self) -> None:
        """Quantise what is due, as mlx-lm does after every pass."""
        if self.kv_bits is None:
            return
        for index, entry in enumerate(self.entries):
            if _is_plain(entry) and entry.offset >= self.quantized_kv_start:
                self.entries[index] = entry.to_quantized(
                    group_size=self.kv_group_size, bits=self.kv_bits
                )

    def stand_ins(self, where: Collection[int]) -> list:
        """The list with position-only copies of the entries at `where`.

        They answer for offset and mask as the real ones do, and hold nothing.
        """
        entries = list(self.entries)
        for index in where:
            entry = copy.copy(entries[index])
            entry.keys = entry.values = None
            entries[index] = entry
        return entries

    def evaluate(self) -> None:
        mx.eval([entry.state for entry in self.entries])
