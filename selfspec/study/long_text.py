"""A text that was read once and that many arms go on from, each with its own cache.

Reading thousands of tokens takes longer than the few that are timed after them, and no
arm differs in it.

    before = LongText(model, ids)
    generate_step(prompt, model, prompt_cache=before.cache())
"""

from collections.abc import Sequence
from copy import copy

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

STEP = 512  # tokens read at once


class LongText:
    """Token ids as the model read them.

    Args:
        model: of mlx-lm, whose caches can be set back, as drafting asks anyway.
        ids: of the text, one or more.
    """

    def __init__(self, model, ids: Sequence[int]):
        self.model, self.ids = model, list(ids)
        self._read = make_prompt_cache(model)
        for begin in range(0, len(self.ids), STEP):
            model(mx.array([self.ids[begin : begin + STEP]]), cache=self._read)
            mx.eval([entry.state for entry in self._read])

    def cache(self) -> list:
        """A cache that holds the text; what is written to it is written to no other."""
        fresh = [copy(entry) for entry in self._read]
        for entry in fresh:
            # sums are new arrays: a cache writes into the ones it holds
            entry.state = [part + 0 for part in entry.state]
        mx.eval([entry.state for entry in fresh])
        return fresh
