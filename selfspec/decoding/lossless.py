"""Is a greedy text the target's own? Every position is checked, nothing is forced.

A pass over m rows may round differently from a pass over one row, so where the two best
tokens nearly tie either may win. A text is lossless when every emitted token is the
argmax of the target's plain one-row logits on the emitted prefix, or within `tie_bound`
of it. Knows token ids, never text.

    bound = tie_bound(model, prompt)
    verdict = check(model, prompt, tokens, baseline=baseline_tokens, tie_bound=bound)
    verdict.word, verdict.ties          # "equal", 0
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

TIE_FACTOR = 4  # eps = 4 x the largest difference measured (DESIGN.md section 5)
ROWS = 6


@dataclass(frozen=True)
class Verdict:
    """`word`: equal (to the baseline), tie (lossless with ties) or diverged.

    `ties` counts tokens that are not the argmax but within the bound; `position` is the
    first token that is not the target's own, or None.
    """

    word: str
    ties: int = 0
    position: int | None = None

    @property
    def lossless(self) -> bool:
        """True unless some token is not the target's own."""
        return self.word != "diverged"


def tie_bound(model, prompt: Sequence[int], *, rows: int = ROWS) -> float:
    """eps: 4 x the largest logit difference between one-row and m-row passes.

    Measured on this model, dtype and device, over the last tokens of `prompt`, which
    needs at least rows + 1 tokens (fewer rows are used otherwise). Units: logits.
    """
    rows = min(rows, len(prompt) - 1)
    if rows < 1:
        raise ValueError("a tie bound needs a prompt of at least 2 tokens")
    context, tail = list(prompt[:-rows]), list(prompt[-rows:])
    cache = make_prompt_cache(model)
    model(mx.array([context]), cache=cache)
    together = model(mx.array([tail]), cache=cache)[0]  # (m, V)
    mx.eval(together)
    trim_prompt_cache(cache, rows)
    alone = [model(mx.array([[token]]), cache=cache)[0, -1] for token in tail]
    difference = mx.abs(mx.stack(alone) - together).max().item()
    return TIE_FACTOR * float(difference)


def check(
    model,
    prompt: Sequence[int],
    tokens: Sequence[int],
    *,
    baseline: Sequence[int],
    tie_bound: float,
) -> Verdict:
    """Judge `tokens`, emitted after `prompt`, against the target's one-row logits.

    Equal texts need no replay: the baseline is plain decoding. Otherwise the whole
    emitted text is replayed one row at a time, after a tie as before it.
    """
    tokens = list(tokens)
    if tokens == list(baseline):
        return Verdict("equal")
    shorter = min(len(tokens), len(baseline))
    if tokens[:shorter] == list(baseline)[:shorter]:
        # one stopped earlier: the missing or extra tail is a difference of length
        return Verdict("diverged", position=shorter)
    cache = make_prompt_cache(model)
    if len(prompt) > 1:
        model(mx.array([prompt[:-1]]), cache=cache)
    ties, previous = 0, prompt[-1]
    for position, token in enumerate(tokens):
        logits = model(mx.array([[previous]]), cache=cache)[0, -1].astype(mx.float32)
        gap = (logits.max() - logits[token]).item()
        if not gap <= tie_bound:  # NaN is a divergence too
            return Verdict("diverged", ties=ties, position=position)
        ties += gap > 0
        previous = token
    return Verdict("tie", ties=ties)
