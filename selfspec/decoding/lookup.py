"""Drafting by prompt lookup: propose what followed the last few tokens before.

It costs no pass of any model, so it pays wherever it is right at all: in summaries,
code, anything that repeats itself. Knows token ids only.

    drafter = LookupDrafter(LookupDraft(max_ngram=3), target)
"""

import mlx.core as mx

from selfspec.decoding.drafting import Drafter, Proposal, Target
from selfspec.decoding.drafts import LookupDraft


class LookupDrafter(Drafter):
    """Finds the latest earlier place where the last n tokens stood, longest n first."""

    name = "LookupDraft"

    def __init__(self, draft: LookupDraft, target: Target):
        super().__init__(target)
        self.sizes = range(draft.max_ngram, draft.min_ngram - 1, -1)
        self.after: dict[tuple[int, ...], int] = {}  # run of tokens -> what follows it
        self.indexed = 0

    def _index(self, tokens):
        """Note every run that ends before the last token; the text only grows."""
        for end in range(self.indexed + 1, len(tokens)):
            for size in self.sizes:
                if size <= end:
                    self.after[tuple(tokens[end - size : end])] = end
        self.indexed = max(self.indexed, len(tokens) - 1)

    def matched(self, tokens: list[int], limit: int) -> list[int]:
        """Up to `limit` tokens that followed the latest match; empty without one."""
        self._index(tokens)
        for size in self.sizes:
            start = self.after.get(tuple(tokens[-size:]))
            if size < len(tokens) and start is not None:
                return tokens[start : start + limit]
        return []

    def propose(self, tokens, limit, rule, min_confidence=0.0):
        return Proposal(self, mx.array(self.matched(tokens, limit), mx.uint32))
