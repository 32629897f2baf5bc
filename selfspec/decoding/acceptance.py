"""When a drafted token is kept, and what is emitted where the first one is not.

Three rules, as objects: `Greedy` keeps a token that is the target's argmax,
`Speculative` accepts and rejects so that the text has exactly the target's distribution
(Leviathan et al. 2023, arXiv:2211.17192, algorithm 1), `Match` (match.py) serves any
sampler and logits processors. Throughout, `target_probs` is p, `draft_probs` is q. A
rule knows rows of logits; it knows no model and no cache.

    rule = Speculative(temperature=0.8, top_p=0.9)
    accepted, token = rule.accept(drafted, draft_probs, logprobs)
"""

from typing import NamedTuple, Protocol

import mlx.core as mx
from mlx_lm.sample_utils import apply_min_p, apply_top_k, apply_top_p


class Verdict(NamedTuple):
    """How many drafted tokens are kept (A), the token after them, the target's rows."""

    accepted: mx.array  # ()
    token: mx.array  # (1,)
    logprobs: mx.array  # (D + 1, V)


class Rule(Protocol):
    """What the loop asks of an acceptance rule; nothing is read back from the device."""

    def start_round(self) -> None:
        """Called before the first draft step of a round."""

    def sample(self, logits, history) -> tuple[mx.array, mx.array]:
        """The target's next token (1,) and its logprobs (V,), from one row (1, V)."""

    def draw(self, logits, shortlist, history) -> tuple[mx.array, mx.array | None]:
        """A draft token (1,), and q (V,) where it was sampled, from one draft row."""

    def accept(self, drafted, draft_probs, logits, history) -> Verdict:
        """Judge `drafted` (D,) against the target's rows (D + 1, V)."""


def log_softmax(logits: mx.array) -> mx.array:
    """As mlx-lm writes it, so that rounding, and with it every tie, is the same."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def row_ids(index: mx.array, shortlist) -> mx.array:
    """Token ids of a draft's column numbers."""
    return index if shortlist is None else shortlist.ids[index]


class Greedy:
    """Temperature 0: the target's argmax, whatever was drafted."""

    def start_round(self) -> None:
        pass

    def sample(self, logits, history):
        logprobs = log_softmax(logits)
        return mx.argmax(logprobs, axis=-1), logprobs[0]

    def draw(self, logits, shortlist, history):
        return row_ids(mx.argmax(logits, axis=-1), shortlist), None

    def accept(self, drafted, draft_probs, logits, history):
        logprobs = log_softmax(logits)
        best = mx.argmax(logprobs, axis=-1)  # (D + 1,)
        agree = (best[:-1] == drafted).astype(mx.int32)
        accepted = mx.cumprod(agree).sum()
        return Verdict(accepted, best[accepted][None], logprobs)


class Speculative:
    """Sampling: accept with min(1, p/q), else draw from the residual max(p - q, 0).

    p is the target's distribution after mlx-lm's own filters and temperature, in
    mlx-lm's order. The draft samples from its own, filtered likewise, or is greedy
    (then q is a point mass: accept with p(x), else draw from p without x).

    Args:
        temperature: above 0.
        top_p, min_p, top_k: as in mlx_lm.sample_utils.make_sampler.
        seed: for reproducible text; None draws from MLX's global state.
        greedy_draft: let the draft take its argmax instead of sampling.
    """

    def __init__(
        self,
        temperature: float,
        top_p: float = 0.0,
        min_p: float = 0.0,
        top_k: int = 0,
        seed: int | None = None,
        greedy_draft: bool = False,
    ):
        self.temperature = temperature
        self.top_p, self.min_p, self.top_k = top_p, min_p, top_k
        self.greedy_draft = greedy_draft
        self._key = None if seed is None else mx.random.key(seed)

    def _next_key(self) -> mx.array | None:
        if self._key is None:
            return None
        self._key, key = mx.random.split(self._key)
        return key

    def start_round(self) -> None:
        pass

    def filtered(self, logprobs: mx.array) -> mx.array:
        """Unnormalised log of the distribution that is sampled: (..., V)."""
        if 0 < self.top_p < 1:
            logprobs = apply_top_p(logprobs, self.top_p)
        if self.min_p:
            logprobs = apply_min_p(logprobs, self.min_p)
        if 0 < self.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, self.top_k)
        return logprobs * (1.0 / self.temperature)

    def probs(self, logprobs: mx.array) -> mx.array:
        return mx.softmax(self.filtered(logprobs).astype(mx.float32), axis=-1)

    def sample(self, logits, history):
        logprobs = log_softmax(logits)
        token = mx.random.categorical(self.filtered(logprobs), key=self._next_key())
        return token, logprobs[0]

    def draw(self, logits, shortlist, history):
        if self.greedy_draft:
            return row_ids(mx.argmax(logits, axis=-1), shortlist), None
        probs = self.probs(log_softmax(logits))  # (1, V'), V' the shortlist's size
        index = mx.random.categorical(mx.log(probs), key=self._next_key())
        if shortlist is not None:
            probs = shortlist.expand(probs, 0.0)
        return row_ids(index, shortlist), probs[0]

    def accept(self, drafted, draft_probs, logits, history):
        logprobs = log_softmax(logits)
        accepted, token = accept_or_resample(
            self.probs(logprobs),
            draft_probs,
            drafted,
            mx.random.uniform(shape=drafted.shape, key=self._next_key()),
            self._next_key(),
        )
        return Verdict(accepted, token[None], logprobs)


def accept_or_resample(
    target_probs: mx.array,
    draft_probs: mx.array | None,
    drafted: mx.array,
    uniforms: mx.array,
    key: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """The accept rule, over any leading axes.

    Args:
        target_probs: p, (..., D + 1, V), the target's rows.
        draft_probs: q, (..., D, V), what each token was drawn from; None where every
            token was certain to be drafted (a point mass).
        drafted: (..., D) token ids.
        uniforms: (..., D) in [0, 1).

    Returns:
        accepted: (...) how many tokens are kept.
        token: (...) the token after them, drawn from the residual of the first row
            that rejects, or from p's last row.
    """
    D = drafted.shape[-1]
    heads = target_probs[..., :D, :]
    at = drafted[..., None]
    p = mx.take_along_axis(heads, at, axis=-1)[..., 0]  # (..., D)
    if draft_probs is None:
        q = mx.ones_like(p)
        residual = mx.put_along_axis(heads, at, mx.array(0.0), axis=-1)
    else:
        q = mx.take_along_axis(draft_probs, at, axis=-1)[..., 0]
        residual = mx.maximum(heads - draft_probs, 0)
    # u < p/q without dividing: a token that p excludes (p = 0) is never kept.
    kept = (uniforms * q < p).astype(mx.int32)
    accepted = mx.cumprod(kept, axis=-1).sum(axis=-1)
    rows = mx.concatenate([residual, target_probs[..., D:, :]], axis=-2)
    at = accepted[..., None, None]
    row = mx.take_along_axis(rows, at, axis=-2)[..., 0, :]  # (..., V)
    # p = q up to rounding leaves no residual, and a rejection that is rounding too.
    whole = mx.take_along_axis(target_probs, at, axis=-2)[..., 0, :]
    row = mx.where(row.sum(axis=-1, keepdims=True) > 0, row, whole)
    return accepted, mx.random.categorical(mx.log(row), key=key)
