"""What a bound draft does in a round, and the loop that all model drafts share.

A drafter proposes tokens after the text so far, runs the verification (most leave that
to the target; ExitDraft keeps part of it), and rolls its own state back. Knows the
target's caches and an acceptance rule; does not know what is accepted, or why.

    proposal = drafter.propose(tokens, limit=3, rule=Greedy())
    logits = proposal.drafter.verify(tokens, proposal.tokens)       # (D + 1, V)
"""

from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn

from selfspec.decoding.caches import UNLIMITED, Caches
from selfspec.decoding.prefix import holding, run_and_tell
from selfspec.models.blocks import Stack, find_stack


@dataclass
class Target:
    """The model whose text must come out, with its caches and how they are filled."""

    model: nn.Module = field(repr=False)
    caches: Caches = field(repr=False)
    stack: Stack | None = field(default=None, repr=False)
    prefill_step_size: int = 2048
    window_cache: str = "ring"
    base: int = 0  # tokens in the cache before this prompt
    tapped: nn.Module | None = field(default=None, repr=False)  # with listeners

    def length(self, tokens: list[int]) -> int:
        """Where the cache must stand: all of the text but its last token."""
        return self.base + len(tokens) - 1

    def logits(self, ids: mx.array) -> mx.array:
        """One pass over `ids` (T,): logits (T, V)."""
        return (self.tapped or self.model)(ids[None], cache=self.caches.entries)[0]

    def listen(self, depth: int) -> list[tuple[int, mx.array]]:
        """What the first `depth` layers return in every pass of `logits` from now on.

        The list, which whoever listens empties, fills with pairs: where in the text the
        rows begin, and the rows (1, T, dim), not normed.
        """
        told: list[tuple[int, mx.array]] = []
        stack = find_stack(self.tapped or self.model)
        layers = list(stack.layers)
        layers[depth - 1] = holding(layers[depth - 1], run_and_tell, told)
        self.tapped = stack.with_layers(layers)
        return told

    def vocab_size(self) -> int:
        """V, from the shape of a pass that is never run."""
        return self.model(mx.array([[0]])).shape[-1]


@dataclass
class Proposal:
    """What a draft proposes: D tokens, on the device, and who verifies them."""

    drafter: "Drafter"
    tokens: mx.array  # (D,)
    probs: mx.array | None = None  # (D, V): q, where the tokens were sampled


def rows_to_verify(tokens: list[int], drafted: mx.array) -> mx.array:
    """What a verification reads, (D + 1,): the last token and the drafted ones."""
    return mx.concatenate([mx.array(tokens[-1:], mx.uint32), drafted])


class Drafter:
    """A draft bound to a target. This one proposes nothing."""

    name = "none"

    def __init__(self, target: Target):
        self.target = target

    def prefill(self, tokens: list[int]) -> None:
        """Read the prompt, all but its last token."""

    def propose(self, tokens, limit, rule, min_confidence=0.0) -> Proposal:
        """Propose up to `limit` tokens after `tokens`; the last is in no cache yet."""
        return Proposal(self, mx.array([], mx.uint32))

    def verify(self, tokens: list[int], drafted: mx.array) -> mx.array:
        """The target's logits after the last token and after each drafted one."""
        self.target.caches.roll_back(self.target.length(tokens))
        return self.target.logits(rows_to_verify(tokens, drafted))

    def settle(self, length: int) -> None:
        """Forget what was read after the first `length` tokens of the text."""

    def finish(self, tokens: list[int]) -> None:
        """Leave caches of its own, if any, at all of `tokens` but the last."""

    def room(self) -> int:
        """Tokens that may still be drafted before a cache of its own wraps."""
        return UNLIMITED

    def copied_bytes(self) -> int:
        """Weights copied for this draft alone; all others are the model's own."""
        return 0


class StepDrafter(Drafter):
    """Drafts one token a pass of some model."""

    shortlist = None

    def copied_bytes(self):
        return self.shortlist.nbytes if self.shortlist else 0

    def start(self, tokens: list[int]) -> mx.array:
        """Make ready for a round; returns the ids that the first pass reads."""
        return mx.array(tokens[-1:], mx.uint32)

    def step(self, ids: mx.array) -> mx.array:
        """One pass over `ids` (T,): draft logits of its last row (1, V')."""
        raise NotImplementedError

    def propose(self, tokens, limit, rule, min_confidence=0.0) -> Proposal:
        rule.start_round()
        history = None
        if getattr(rule, "needs_history", False):
            history = mx.array(tokens, mx.uint32)
        ids, drafted, probs = self.start(tokens), [], []
        while len(drafted) < limit:
            logits = self.step(ids)
            # The one place where drafting waits for the device, and only if asked to.
            if min_confidence and mx.softmax(logits).max().item() < min_confidence:
                break
            ids, prob = rule.draw(logits, self.shortlist, history)
            ids = ids.astype(mx.uint32)
            mx.async_eval(ids)
            drafted.append(ids)
            probs.append(prob)
            if history is not None:
                history = mx.concatenate([history, ids])
        if not drafted:
            return Proposal(self, mx.array([], mx.uint32))
        sampled = probs[0] is not None
        return Proposal(
            self, mx.concatenate(drafted), mx.stack(probs) if sampled else None
        )
