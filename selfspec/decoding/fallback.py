"""Two drafts as one: the second drafts where the first proposes nothing.

drafter = FallbackDrafter(lookup_drafter, shortlist_drafter, target)
"""

from selfspec.decoding.drafting import Drafter, Target


class FallbackDrafter(Drafter):
    """Asks `first`, then `second`; whoever proposes verifies."""

    name = "FallbackDraft"

    def __init__(self, first: Drafter, second: Drafter, target: Target):
        super().__init__(target)
        self.first, self.second = first, second

    def prefill(self, tokens):
        self.first.prefill(tokens)
        self.second.prefill(tokens)

    def propose(self, tokens, limit, rule, min_confidence=0.0):
        proposal = self.first.propose(tokens, limit, rule, min_confidence)
        if len(proposal.tokens):
            return proposal
        return self.second.propose(tokens, limit, rule, min_confidence)

    def settle(self, length):
        self.first.settle(length)
        self.second.settle(length)

    def finish(self, tokens):
        self.first.finish(tokens)
        self.second.finish(tokens)

    def room(self):
        return min(self.first.room(), self.second.room())

    def copied_bytes(self):
        return self.first.copied_bytes() + self.second.copied_bytes()
