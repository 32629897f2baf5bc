"""Drafting with an exit chosen for each token, on the target's own cache.

Two ways were open: one exit for a whole round, or a token that goes deeper than those
before it. The second is built here, because it costs little: the rows that wait at an
earlier exit go along when a token goes deeper, which the verification would have run
anyway. Whatever leaves where, verification runs every row through every layer once.

    drafter = DynamicExitDrafter(DynamicExitDraft((2, 4, 6), confidence=0.8), target)
"""

import mlx.core as mx

from selfspec.decoding.drafting import StepDrafter, Target, rows_to_verify
from selfspec.decoding.drafts import DynamicExitDraft
from selfspec.decoding.ladder import Ladder


class DynamicExitDrafter(StepDrafter):
    """Runs the first layers until an exit is trusted."""

    name = "DynamicExitDraft"

    def __init__(self, draft: DynamicExitDraft, target: Target):
        super().__init__(target)
        num_layers = target.stack.num_layers
        if draft.exits[-1] >= num_layers:
            raise ValueError(
                f"exits must be from 1 to {num_layers - 1} for {num_layers} layers, "
                f"got {draft.exits}"
            )
        self.draft = draft
        self.ladder = Ladder(target.stack, draft.exits)

    def start(self, tokens):
        # Another draft may have run ahead in this very round, and proposed nothing.
        self.target.caches.roll_back(self.target.length(tokens))
        self.ladder.clear()
        return super().start(tokens)

    def step(self, ids):
        caches = self.target.caches
        logits = self.ladder.read(ids, caches)
        trusted = self._confident if self.draft.confidence else self._agreeing()
        for index in range(1, len(self.draft.exits)):
            if trusted(logits):
                break
            logits = self.ladder.climb(index, caches)
        return logits

    def verify(self, tokens, drafted):
        rows = rows_to_verify(tokens, drafted)
        return self.ladder.verify(rows, self.target.caches)

    def _confident(self, logits) -> bool:
        return mx.softmax(logits, axis=-1).max().item() >= self.draft.confidence

    def _agreeing(self):
        """The rule for one token: it sees the exits in turn."""
        seen: list[int] = []

        def trusted(logits) -> bool:
            seen.append(mx.argmax(logits).item())
            last = seen[-self.draft.agreeing :]
            return len(last) == self.draft.agreeing and len(set(last)) == 1

        return trusted
