"""How often a draft says what the target says, and how close it comes.

Agreement is what acceptance is made of: at a draft position, given that those before it
in its round were right, does the draft's token equal the target's? It is measured on the
target's own text, teacher-forced, which changes nothing: up to the first wrong token the
engine drafts on the same tokens. Cosine similarity and KL are what published selectors
look at instead.

    scorer = Scorer(model, windows)
    scorer.score(SkipDraft(mlp={12})).agreement             # first-token agreement
    scorer.score(draft, depth=4).agreement_at               # by draft position
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from selfspec.decoding import self_test
from selfspec.decoding.drafts import ExitDraft, ShortlistDraft, SkipDraft
from selfspec.decoding.shortlist import find_head
from selfspec.decoding.skip import skipping_layers
from selfspec.models.blocks import find_stack
from selfspec.selection.passes import TargetText, round_starts
from selfspec.selection.windows import Window

OWN = 0.9  # of a window's tokens, at least, are the target's argmax


@dataclass(frozen=True)
class Score:
    """What one draft did on all windows.

    Attributes:
        positions: rows that were scored.
        agreement: first-token agreement, a share of the positions.
        agreement_at: by draft position from the first, each the share of rounds kept up
            to there that were right there as well; NaN where none was kept so far.
        counts_at: how many rounds each of these is a share of.
        agreed: first-token agreement of each row, (positions,) bool.
        window: the window that each row is of, (positions,).
        cosine_before_norm, cosine_after_norm: mean over rows of the cosine similarity
            between draft's and target's residual stream after the last layer, without
            and with the final norm; the latter NaN where no norm was found.
        kl: mean over rows of KL(target || draft) in nats; NaN for a shortlist, which
            gives most tokens no chance at all.
        cosines, cosines_after_norm: the same of each row, (positions,).
    """

    positions: int
    agreement: float
    agreement_at: tuple[float, ...]
    counts_at: tuple[int, ...]
    agreed: np.ndarray
    window: np.ndarray
    cosine_before_norm: float
    cosine_after_norm: float
    kl: float
    cosines: np.ndarray
    cosines_after_norm: np.ndarray

    def by_window(self) -> np.ndarray:
        """First-token agreement of each window, (windows,)."""
        return np.array(
            [self.agreed[self.window == w].mean() for w in np.unique(self.window)]
        )


class Scorer:
    """Windows as the target read them, once, and any number of drafts scored on them.

    Args:
        model: of mlx-lm.
        windows: of `make_windows`.

    Raises:
        ValueError: no windows, or logits that are not numbers.
        UnsupportedModelError: a model that the engine refuses to draft with.
    """

    def __init__(self, model, windows: Sequence[Window]):
        if not windows:
            raise ValueError("a Scorer needs one or more windows")
        self_test.check(model)
        self.model, self.windows = model, tuple(windows)
        self.stack = find_stack(model)
        self.norm = _final_norm(self.stack)
        self.texts = [TargetText(self.stack, window) for window in self.windows]
        self.vocab_size = self.texts[0].log_probs.shape[-1]
        if not all(mx.isfinite(text.log_probs).all().item() for text in self.texts):
            raise ValueError(
                "the target's logits are not numbers. Way out: a model that is whole"
            )
        for window, text in zip(self.windows, self.texts, strict=True):
            own = np.array(text.target) == np.array(window.generated)
            if own.mean() < OWN:  # a tie may read otherwise in a pass of many rows
                raise ValueError(
                    f"a window of {len(own)} tokens is the target's own text at "
                    f"{own.sum()} of them only. Way out: make_windows with this model"
                )

    @property
    def num_positions(self) -> int:
        return sum(text.num_rows for text in self.texts)

    def score(self, draft, depth: int = 1) -> Score:
        """Score a skip, exit or shortlist draft.

        Args:
            depth: draft positions looked at. One pass over every window finds the
                first; more positions take a pass each on top of it.

        Raises:
            TypeError: another kind of draft.
            ValueError: it names layers or tokens that the model has not.
        """
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, got {depth}")
        inner, tokens = _unwrap(draft, self.stack.num_layers, self.vocab_size)
        layers = skipping_layers(self.stack, inner)
        kept, tried = np.zeros(depth, int), np.zeros(depth, int)
        rows: list[dict] = []
        for text in self.texts:
            row = self._first_tokens(text, layers, tokens)
            rows.append(row)
            kept[0] += row["agreed"].sum()
            tried[0] += text.num_rows
            for phase in range(depth if depth > 1 else 0):
                _count(text, layers, tokens, depth, phase, kept, tried)
        agreed = np.concatenate([row["agreed"] for row in rows])
        cosines = np.concatenate([row["cosine"] for row in rows])
        after = np.concatenate([row["normed"] for row in rows])
        kl = np.concatenate([row["kl"] for row in rows])
        return Score(
            positions=len(agreed),
            agreement=float(agreed.mean()),
            agreement_at=tuple(
                float(k / n) if n else float("nan")
                for k, n in zip(kept, tried, strict=True)
            ),
            counts_at=tuple(int(n) for n in tried),
            agreed=agreed,
            window=np.repeat(
                np.arange(len(rows)), [len(row["agreed"]) for row in rows]
            ),
            cosine_before_norm=float(cosines.mean()),
            cosine_after_norm=float(after.mean()),
            kl=float(kl.mean()),
            cosines=cosines,
            cosines_after_norm=after,
        )

    def sampled_acceptance(self, draft, temperature: float = 0.7) -> dict[str, float]:
        """Chance that a first token sampled by the draft is kept, by both rules.

        Rejection keeps it with min(1, p/q), so with the sum of min(p, q) over tokens;
        the match rule samples the target as well and keeps it if they are equal, so with
        the sum of p*q. Exact, from the two distributions at every row.

        Returns:
            "rejection" and "match", means over all rows.

        Raises:
            TypeError, ValueError: as `score`; a temperature that samples nothing.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(
                f"temperature must be above 0 to sample, got {temperature}. "
                "Way out: score, for the greedy rule"
            )
        inner, tokens = _unwrap(draft, self.stack.num_layers, self.vocab_size)
        layers = skipping_layers(self.stack, inner)
        kept = {"rejection": 0.0, "match": 0.0}
        for text in self.texts:
            logits, _ = text.draft(layers, starts=range(text.num_rows))
            target = mx.softmax(text.log_probs / temperature, axis=-1)
            drafted = logits[0]
            if tokens is not None:
                target, drafted = target[:, tokens], drafted[:, tokens]
            chance = mx.softmax(drafted / temperature, axis=-1)
            kept["rejection"] += mx.minimum(target, chance).sum().item()
            kept["match"] += (target * chance).sum().item()
        return {name: total / self.num_positions for name, total in kept.items()}

    def lemma_cosines(self) -> list[float]:
        """The cosine that the lemma of KnapSpec asks for at every row.

        1 - margin^2 / (2 |x|^2 max |w_top - w_other|^2), with x after the final norm,
        margin the top logit's lead and w the rows of the head (arXiv 2602.20217). Empty
        where norm or head cannot be told by structure.
        """
        if self.norm is None:
            return []
        head = head_rows(self.model)
        if head is None:
            return []
        lengths = (head * head).sum(axis=-1)
        found = []
        for text in self.texts:
            states = self.norm(text.last)[0].astype(mx.float32)
            logits = states @ head.T
            best = mx.argmax(logits, axis=-1)
            two = mx.topk(logits, 2, axis=-1)
            lead = mx.abs(two[:, 0] - two[:, 1])
            top = head[best]
            apart = (top * top).sum(-1, keepdims=True) + lengths - 2 * top @ head.T
            spread = mx.maximum(apart.max(axis=-1), 1e-12)
            size = (states * states).sum(axis=-1)
            found += (1 - lead * lead / (2 * size * spread)).tolist()
        return found

    def _first_tokens(self, text: TargetText, layers, tokens) -> dict[str, np.ndarray]:
        """Every row as the first of a round."""
        logits, last = text.draft(layers, starts=range(text.num_rows))
        if mx.isnan(logits).any().item():
            raise ValueError(
                "the draft's logits are not numbers. Way out: a model that is whole, or "
                "one of a wider type"
            )
        said = _argmax(logits[0], tokens)
        found = {
            "agreed": said == text.target,
            "cosine": _cosine(last[0], text.last[0]),
            "normed": mx.full((text.num_rows,), float("nan")),
            "kl": mx.full((text.num_rows,), float("nan")),
        }
        if self.norm is not None:
            found["normed"] = _cosine(self.norm(last)[0], self.norm(text.last)[0])
        if tokens is None:
            draft = logits[0] - mx.logsumexp(logits[0], axis=-1, keepdims=True)
            chance = mx.exp(text.log_probs)
            found["kl"] = (chance * (text.log_probs - draft)).sum(axis=-1)
        mx.eval(found)
        return {name: np.array(values) for name, values in found.items()}


def agreed_rows(text: TargetText, draft) -> mx.array:
    """(r,) bool: at which rows the draft's first token is the target's. One pass.

    Raises:
        TypeError, ValueError: as `Scorer.score`.
    """
    vocab_size = text.stack.model(mx.array([[0]])).shape[-1]  # never run
    inner, tokens = _unwrap(draft, text.stack.num_layers, vocab_size)
    layers = skipping_layers(text.stack, inner)
    logits, _ = text.draft(layers, starts=range(text.num_rows))
    return _argmax(logits[0], tokens) == text.target


def _count(text, layers, tokens, depth, phase, kept, tried) -> None:
    """Add one pass of rounds of `depth` rows to the counts of later draft positions."""
    starts = round_starts(text.num_rows, depth, phase)
    logits, _ = text.draft(layers, starts=starts)
    right = np.array(_argmax(logits[0], tokens) == text.target)
    alive = True
    for row, start in enumerate(starts):
        position = row - start
        if position == 0:
            alive = row >= phase  # the rows before are of another phase's round
        if not alive:
            continue
        if position:  # first positions are counted once, where every row is one
            tried[position] += 1
            kept[position] += right[row]
        alive = bool(right[row])


def _unwrap(
    draft, num_layers: int, vocab_size: int
) -> tuple[SkipDraft, mx.array | None]:
    """What it leaves out, and the tokens that its head scores (None: all).

    Refuses what the engine refuses: MLX reads past the end of an array in silence, and
    an exit beyond the last layer would be right everywhere.
    """
    tokens = None
    if isinstance(draft, ShortlistDraft):
        if max(draft.tokens) >= vocab_size:
            raise ValueError(
                f"the shortlist names token {max(draft.tokens)}, but the model has "
                f"{vocab_size} tokens. Way out: a shortlist of this model's tokens"
            )
        # sorted as the engine has them: of equal logits the first one wins
        tokens, draft = mx.array(sorted(draft.tokens)), draft.draft
    if isinstance(draft, ExitDraft):
        if not 1 <= draft.exit_layer < num_layers:
            raise ValueError(
                f"exit_layer must be from 1 to {num_layers - 1} for {num_layers} "
                f"layers, got {draft.exit_layer}"
            )
        beyond = range(draft.exit_layer, num_layers)
        draft = SkipDraft(beyond, beyond)
    if not isinstance(draft, SkipDraft):
        raise TypeError(
            f"skip, exit and shortlist drafts are scored, not a {type(draft).__name__}"
        )
    return draft, tokens


def _argmax(logits: mx.array, tokens: mx.array | None) -> mx.array:
    """(r, V) to the token of each row, among `tokens` if there are any."""
    if tokens is None:
        return mx.argmax(logits, axis=-1)
    return tokens[mx.argmax(logits[:, tokens], axis=-1)]


def _cosine(one: mx.array, other: mx.array) -> mx.array:
    """(r, d) twice to (r,)."""
    one, other = one.astype(mx.float32), other.astype(mx.float32)
    lengths = mx.linalg.norm(one, axis=-1) * mx.linalg.norm(other, axis=-1)
    return (one * other).sum(axis=-1) / mx.maximum(lengths, 1e-12)


def head_rows(model) -> mx.array | None:
    """The head's matrix (V, d) in float32; None where it has a bias, or is not found."""
    _, head = find_head(model)
    rows = head.get("weight")
    if rows is None or head.get("bias") is not None:
        return None
    if head.get("scales") is not None:
        rows = mx.dequantize(
            rows,
            head["scales"],
            head.get("biases"),
            head.group_size,
            head.bits,
            mode=getattr(head, "mode", "affine"),
        )
    return rows.astype(mx.float32)


def _final_norm(stack):
    """The module beside the layers that holds nothing but vectors, if it is the only one."""
    holder = stack.model
    for name in stack.path[:-1]:
        holder = holder[name]
    found = [
        child
        for child in dict.values(holder)
        if hasattr(child, "parameters")
        and (values := list(child.parameters().values()))
        and all(isinstance(v, mx.array) and v.ndim == 1 for v in values)
    ]
    return found[0] if len(found) == 1 else None
