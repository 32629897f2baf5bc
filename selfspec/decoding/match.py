"""The match rule: any sampler and logits processors, at the price of acceptance.

Draft and target each draw with the same sampler; a drafted token is kept where the
target draws the same one. Every emitted token is the target's own draw, so any sampler
keeps its distribution; what is lost is acceptance (sum of p*q instead of min(p, q)).
The target's rows are judged one by one and stop at the first that differs, so stateful
samplers and processors are called just as in plain decoding, with just that history.
The draft sees the same history, through private copies.

    rule = Match(sampler, logits_processors)
"""

import copy
import types
from collections.abc import Callable

import mlx.core as mx

from selfspec.decoding.acceptance import Verdict, log_softmax

PURE = "mlx_lm.sample_utils"  # its samplers and processors keep no state


def private_copy(function: Callable) -> Callable:
    """A copy of a callable whose state, in itself or in its closure, is its own."""
    if getattr(function, "__module__", None) == PURE:
        return function
    if not isinstance(function, types.FunctionType):
        return copy.deepcopy(function)
    if not function.__closure__:
        return function
    cells = tuple(
        types.CellType(_copied(cell.cell_contents)) for cell in function.__closure__
    )
    clone = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        cells,
    )
    clone.__kwdefaults__ = function.__kwdefaults__
    return clone


def _copied(value):
    if isinstance(value, types.FunctionType):
        return private_copy(value)
    return copy.deepcopy(value)


class Match:
    """Keep what the target's own draw equals; see the module's first lines.

    Args:
        sampler: logprobs (1, V) to tokens (1,).
        processors: each takes the tokens so far (T,) and logits (1, V).
    """

    needs_history = True

    def __init__(self, sampler: Callable, processors: list[Callable] | None = None):
        self.sampler = sampler
        self.processors = list(processors or [])
        self._draft = (sampler, self.processors)

    def start_round(self) -> None:
        """Copy the state that the draft will run ahead with."""
        try:
            self._draft = (
                private_copy(self.sampler),
                [private_copy(p) for p in self.processors],
            )
        except Exception:  # state that cannot be copied: draft without it
            self._draft = (lambda logprobs: mx.argmax(logprobs, axis=-1), [])

    def sample(self, logits, history):
        token, logprobs = self._sample(self.sampler, self.processors, logits, history)
        return token, logprobs[0]

    def draw(self, logits, shortlist, history):
        if shortlist is not None:
            logits = shortlist.expand(logits, -mx.inf)
        token, _ = self._sample(*self._draft, logits, history)
        return token, None

    @staticmethod
    def _sample(sampler, processors, logits, history):
        for processor in processors:
            logits = processor(history, logits)
        logprobs = log_softmax(logits)
        return sampler(logprobs), logprobs

    def accept(self, drafted, draft_probs, logits, history):
        rows = []
        for accepted in range(len(drafted) + 1):
            so_far = mx.concatenate([history, drafted[:accepted]])
            token, logprobs = self.sample(logits[accepted : accepted + 1], so_far)
            rows.append(logprobs)
            # Read back row by row: a call past the first difference would leave state.
            if accepted < len(drafted) and token.item() != drafted[accepted].item():
                break
        return Verdict(mx.array(accepted), token, mx.stack(rows))
