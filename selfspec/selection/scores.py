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

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from selfspec.decoding import self_test
from selfspec.decoding.drafts import ExitDraft, ShortlistDraft, SkipDraft
from selfspec.decoding.skip import skipping_layers
from selfspec.models.blocks import find_stack
from selfspec.selection.passes import TargetText, round_starts
from selfspec.selection.windows import Window


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
        cosines: cosine before the norm of each row, (positions,).
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
        if not all(mx.isfinite(text.log_probs).all().item() for text in self.texts):
            raise ValueError(
                "the target's logits are not numbers. Way out: a model that is whole"
            )

    @property
    def num_positions(self) -> int:
        return sum(text.num_rows for text in self.texts)

    def score(self, draft, depth: int = 1) -> Score:
        """Score a skip, exit or shortlist draft.

        Args:
            depth: draft positions looked at; each costs a pass over every window.

        Raises:
            TypeError: another kind of draft.
            ValueError: it names layers or tokens that the model has not.
        """
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, got {depth}")
        inner, tokens = _unwrap(draft, self.stack.num_layers)
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
        )

    def _first_tokens(self, text: TargetText, layers, tokens) -> dict[str, np.ndarray]:
        """Every row as the first of a round."""
        logits, last = text.draft(layers, starts=range(text.num_rows))
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
    inner, tokens = _unwrap(draft, text.stack.num_layers)
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


def _unwrap(draft, num_layers: int) -> tuple[SkipDraft, mx.array | None]:
    """What it leaves out, and the tokens that its head scores (None: all)."""
    tokens = None
    if isinstance(draft, ShortlistDraft):
        tokens, draft = mx.array(draft.tokens), draft.draft
    if isinstance(draft, ExitDraft):
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
