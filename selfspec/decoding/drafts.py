"""What a draft is, as plain values: what it leaves out, where it exits, what it scores.

A draft proposes tokens that the target verifies. The classes only carry the choice,
checked when made; binding.py turns a choice and a model into something that runs.

    SkipDraft(attention={12, 13}, mlp={13})          # blocks left out, cache shared
    SkipDraft.middle(num_layers=30, skip_fraction=0.3)
    FallbackDraft(LookupDraft(), ShortlistDraft(SkipDraft(), range(16384)))
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from selfspec.decoding.bridge import Bridge


def _indices(name: str, values: Iterable[int]) -> frozenset[int]:
    try:
        numbers = frozenset(map(operator.index, values))
    except TypeError:
        numbers = frozenset({-1})
    if min(numbers, default=0) < 0:
        raise ValueError(f"{name} must hold layer numbers from 0, got {values!r}")
    return numbers


def _whole(name: str, value) -> int:
    """`value` as an int from 1, whatever kind of whole number it is."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a whole number from 1, got {value!r}")
    return number


@dataclass(frozen=True)
class SkipDraft:
    """The target with some attention and MLP blocks left out, on the target's cache.

    Args:
        attention: layers whose attention is left out.
        mlp: layers whose MLP is left out.
        reuse_prefix: the layers before the first one with a block left out compute the
            same in draft and verification; keep what they computed while drafting.
    """

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()
    reuse_prefix: bool = False

    def __post_init__(self):
        object.__setattr__(self, "attention", _indices("attention", self.attention))
        object.__setattr__(self, "mlp", _indices("mlp", self.mlp))

    @classmethod
    def middle(cls, num_layers: int, skip_fraction: float) -> "SkipDraft":
        """The contiguous middle run of whole layers of the June 2026 post.

        `skip_fraction` of `num_layers`, rounded, at least one layer.
        """
        if not 0 < skip_fraction < 1:
            raise ValueError(
                f"skip_fraction must be between 0 and 1, got {skip_fraction}"
            )
        count = max(1, round(num_layers * skip_fraction))
        if count >= num_layers:
            raise ValueError(
                f"skip_fraction {skip_fraction} leaves none of {num_layers} layers"
            )
        start = (num_layers - count) // 2
        skipped = frozenset(range(start, start + count))
        return cls(attention=skipped, mlp=skipped)

    @property
    def whole_layers(self) -> frozenset[int]:
        """Layers of which both blocks are left out."""
        return self.attention & self.mlp


@dataclass(frozen=True)
class ExitDraft:
    """LayerSkip: the first layers draft, the head reads them early.

    Args:
        exit_layer: how many layers run while drafting, 1 to L - 1.
        reuse: keep what the early layers computed, so that verification runs only the
            late ones; False computes them again (the ablation).
    """

    exit_layer: int
    reuse: bool = True

    def __post_init__(self):
        object.__setattr__(self, "exit_layer", _whole("exit_layer", self.exit_layer))


@dataclass(frozen=True, eq=False)
class AdapterDraft:
    """A fitted exit: the first layers, a small bridge that was taught, then the head.

    Shares the target's cache and its first layers' rows as an ExitDraft does; no weight
    of the target is another one.

    Args:
        exit_layer: how many layers run before the bridge, 1 to L - 1.
        bridge: what `selfspec fit` made (see `selfspec.load_bridge`).
    """

    exit_layer: int
    bridge: Bridge

    def __post_init__(self):
        object.__setattr__(self, "exit_layer", _whole("exit_layer", self.exit_layer))
        if not isinstance(self.bridge, Bridge):
            raise ValueError(
                f"bridge must be a Bridge, got {type(self.bridge).__name__}. "
                "Way out: selfspec.load_bridge(path, loaded)"
            )


@dataclass(frozen=True)
class DynamicExitDraft:
    """Several exits: each token leaves at the first one that the rule trusts.

    One of the two rules: `confidence`, the head's highest probability at an exit, or
    `agreeing`, that many exits one after the other with the same best token. A token
    that no exit is trusted with is drafted at the last one. Exits are shared with the
    verification as an ExitDraft's are.

    Args:
        exits: layers after which a token may leave, ascending, 1 to L - 1.
        confidence: above 0, up to 1; each exit that is asked waits for the device.
        agreeing: 2 or more, at most as many as there are exits.
    """

    exits: tuple[int, ...]
    confidence: float = 0.0
    agreeing: int = 0

    def __post_init__(self):
        given = self.exits if isinstance(self.exits, Iterable) else ()
        exits = tuple(_whole("exits", layer) for layer in given)
        if not exits or list(exits) != sorted(set(exits)):
            raise ValueError(
                f"exits must be ascending layer counts from 1, got {self.exits!r}"
            )
        object.__setattr__(self, "exits", exits)
        if bool(self.confidence) == bool(self.agreeing):
            raise ValueError(
                "a DynamicExitDraft has one rule: confidence or agreeing, got "
                f"{self.confidence!r} and {self.agreeing!r}"
            )
        if not 0 <= self.confidence <= 1:
            raise ValueError(
                f"confidence must be between 0 and 1, got {self.confidence!r}"
            )
        if self.agreeing:
            object.__setattr__(self, "agreeing", _whole("agreeing", self.agreeing))
            if not 2 <= self.agreeing <= len(exits):
                raise ValueError(
                    f"agreeing must be from 2 to the {len(exits)} exits, got "
                    f"{self.agreeing}"
                )


@dataclass(frozen=True, eq=False)
class ModelDraft:
    """The ordinary kind: another, smaller model with the same tokens."""

    model: Any = field(repr=False)

    def __post_init__(self):
        if not callable(self.model) or not hasattr(self.model, "layers"):
            raise ValueError(
                f"model must be a model of mlx-lm, got {type(self.model).__name__}. "
                "Way out: selfspec.load(name).model"
            )


@dataclass(frozen=True)
class LookupDraft:
    """Prompt lookup, the free draft: what followed the last n tokens before.

    Args:
        max_ngram: longest run of tokens looked for; longer matches are tried first.
        min_ngram: shortest run that counts as a match.
    """

    max_ngram: int = 3
    min_ngram: int = 1

    def __post_init__(self):
        for name in ("max_ngram", "min_ngram"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        if self.min_ngram > self.max_ngram:
            raise ValueError(
                "min_ngram must be from 1 to max_ngram, got "
                f"{self.min_ngram} and {self.max_ngram}"
            )


@dataclass(frozen=True)
class ShortlistDraft:
    """Any draft that scores tokens, scoring only some of them.

    The head is a large part of a small model's step. Verification uses the whole head,
    so the text stays the target's.

    Args:
        draft: the draft whose head is cut down.
        tokens: the token ids it scores (see `frequent_tokens`).
    """

    draft: Any
    tokens: tuple[int, ...] = field(repr=False)

    def __post_init__(self):
        tokens = self.tokens
        try:
            tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
            tokens = tuple(map(operator.index, tokens))
        except TypeError:
            tokens = ()
        if not tokens or min(tokens) < 0 or len(set(tokens)) != len(tokens):
            raise ValueError("tokens must be one or more different token ids from 0")
        if not isinstance(self.draft, SCORING):
            raise ValueError(
                f"a {type(self.draft).__name__} has no head of its own to cut down. "
                "Way out: put the shortlist on a skip, exit or model draft"
            )
        object.__setattr__(self, "tokens", tokens)
        # asked for in every round, and the tokens are many
        object.__setattr__(self, "_hash", hash((self.draft, tokens)))

    def __hash__(self):
        return self._hash


@dataclass(frozen=True)
class FallbackDraft:
    """Two drafts: the second drafts where the first proposes nothing."""

    first: Any
    second: Any

    def __post_init__(self):
        for draft in (self.first, self.second):
            if not isinstance(draft, KINDS):
                raise ValueError(
                    "a FallbackDraft is made of two drafts, got a "
                    f"{type(draft).__name__}"
                )


SCORING = SkipDraft | ExitDraft | AdapterDraft | ModelDraft  # with the head at the end
KINDS = (
    SkipDraft,
    ExitDraft,
    AdapterDraft,
    DynamicExitDraft,
    ModelDraft,
    LookupDraft,
    ShortlistDraft,
    FallbackDraft,
)


def frequent_tokens(
    calibration: Sequence[int], size: int, vocab_size: int
) -> tuple[int, ...]:
    """The `size` tokens most frequent in a calibration text, most frequent first.

    Tokens that the text has not, and ties, come in token order: tokenizers number
    merges from frequent to rare.
    """
    if not 1 <= size <= vocab_size:
        raise ValueError(f"size must be from 1 to {vocab_size}, got {size}")
    counts: dict[int, int] = {}
    for token in calibration:
        counts[token] = counts.get(token, 0) + 1
    ranked = sorted(range(vocab_size), key=lambda t: (-counts.get(t, 0), t))
    return tuple(ranked[:size])
