"""Drafting with another model: the ordinary, two-model kind.

It has its own cache and reads the prompt for itself. Whatever part of the text it has
not read (a bonus token after full acceptance, a stretch that others decoded) it reads
at its next first step.

    drafter = ModelDrafter(ModelDraft(small), target, cache=make_prompt_cache(small))
"""

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import StepDrafter, Target
from selfspec.decoding.drafts import ModelDraft
from selfspec.models.blocks import name_of


class ModelDrafter(StepDrafter):
    """Runs `draft.model` on a cache of its own.

    Args:
        cache: mlx-lm's list of caches for the draft model, changed in place.
    """

    name = "ModelDraft"

    def __init__(self, draft: ModelDraft, target: Target, cache: list | None = None):
        super().__init__(target)
        self.model = draft.model
        entries = make_prompt_cache(draft.model) if cache is None else cache
        theirs = target.caches
        self.caches = Caches(
            entries, theirs.kv_bits, theirs.kv_group_size, theirs.quantized_kv_start
        )
        self.caches.check(f"draft model {name_of(draft.model)}", len(entries))
        if target.window_cache == "full":
            self.caches.widen()
        self.is_callers = cache is not None
        self.base = self.caches.length
        self.vocab_size = target.vocab_size()
        self.known = draft.model(mx.array([[0]])).shape[-1]  # never run

    def _read(self, ids: list[int]) -> None:
        step = self.target.prefill_step_size
        for start in range(0, len(ids), step):
            chunk = mx.array([ids[start : start + step]], mx.uint32)
            self.model(self._readable(chunk), cache=self.caches.entries)
            self.caches.quantise()
            self.caches.evaluate()

    def _readable(self, ids: mx.array) -> mx.array:
        """Tokens that this model has not are read as its last one."""
        if self.known >= self.vocab_size:
            return ids
        return mx.minimum(ids, self.known - 1)

    def prefill(self, tokens):
        self.base = self.caches.length
        self._read(tokens[:-1])

    def start(self, tokens):
        unread = tokens[self.caches.length - self.base :]
        # A long stretch decoded without this draft is read like a prompt.
        if len(unread) > 8:
            self._read(unread[:-1])
            unread = unread[-1:]
        return mx.array(unread, mx.uint32)

    def step(self, ids):
        ids = self._readable(ids[None])
        logits = self.model(ids, cache=self.caches.entries)[:, -1]
        if self.shortlist is not None:
            return logits
        # Heads are padded to different sizes: only the target's tokens can be drafted.
        missing = self.vocab_size - logits.shape[-1]
        if missing > 0:
            logits = mx.pad(logits, [(0, 0), (0, missing)], constant_values=-mx.inf)
        return logits[:, : self.vocab_size]

    def settle(self, length):
        self.caches.roll_back(self.base + length)
        self.caches.quantise()

    def finish(self, tokens):
        if not self.caches.can_roll_back:
            return
        self.settle(len(tokens) - 1)
        if self.is_callers:  # who will go on with both caches
            self._read(tokens[self.caches.length - self.base : -1])

    def room(self):
        return self.caches.room() - 1
