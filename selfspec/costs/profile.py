"""What passes cost on one machine with one model, and what that predicts for a draft.

A profile is measured once (profiling.py) and kept (store.py). It knows kinds of blocks
and seconds, no model: a draft's cost is the sum of the blocks it runs, the head and the
rest included, over the seconds of a plain step. Needs no MLX until a draft is asked
about.

    profile.verify_ratio(4)                                # v(4)
    profile.cost_ratio(SkipDraft.middle(30, 0.3), context=512)
    DeclinePolicy(draft, **profile.costs_of(draft, context=512))
    CostProfile.from_json(profile.to_json()) == profile
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass, fields
from typing import Any

from selfspec.costs.block_fit import BlockSeconds, Residuals, running_blocks
from selfspec.costs.draft_length import verify_at

DRAFTED = 3  # tokens a round for which c is told, where nothing else is said


@dataclass(frozen=True)
class CostProfile:
    """Measured costs of one model on one machine.

    Attributes:
        step_seconds: one plain, pipelined decoding step after `context` tokens.
        context: the reference length at which steps and passes were timed.
        pass_seconds: by rows, one verification pass, its outcome judged and read back.
        attention, mlp: the kind of each layer's block, keys of `blocks`.
        blocks: fitted seconds by kind; also "layer", "head" and "rest".
        vocab_size: tokens that the whole head scores.
        round_seconds: rolling back and bookkeeping of one round.
        contexts: lengths at which attention was timed.
        residuals: of the fit.
        repeats: interleaved repeats that were timed.
        blas_threads: BLAS threads in use (0 on a GPU).
        measured_seconds: what measuring took.
    """

    step_seconds: float
    context: int
    pass_seconds: dict[int, float]
    attention: tuple[str, ...]
    mlp: tuple[str, ...]
    blocks: dict[str, BlockSeconds]
    vocab_size: int
    round_seconds: float
    contexts: tuple[int, ...]
    residuals: Residuals
    repeats: int
    blas_threads: int
    measured_seconds: float

    def __post_init__(self):
        times = [self.step_seconds, *self.pass_seconds.values()]
        if not all(0 < seconds < math.inf for seconds in times):
            raise ValueError("CostProfile: every step and pass must take time")
        if len(self.attention) != len(self.mlp) or not self.pass_seconds:
            raise ValueError("CostProfile: one kind of block a layer, and passes")
        missing = {*self.attention, *self.mlp, "layer", "head", "rest"} - {*self.blocks}
        if missing:
            raise ValueError(f"CostProfile: no seconds for {sorted(missing)}")

    @property
    def num_layers(self) -> int:
        return len(self.attention)

    # Target

    def step(self, context: int | None = None) -> float:
        """Seconds of a plain decoding step; other contexts through the fit."""
        return self.step_seconds + self._more_context(1, context)

    def verify_ratio(self, rows: int, context: int | None = None) -> float:
        """v(rows): measured at the reference context, elsewhere moved by the fit."""
        seconds = verify_at(self.pass_seconds, rows) + self._more_context(rows, context)
        return seconds / self.step(context)

    def where_a_step_goes(self, context: int) -> dict[str, float]:
        """Seconds of one row by block: attention, mlp, layer, head, rest; fitted."""
        parts = dict.fromkeys(("attention", "mlp", "layer", "head", "rest"), 0.0)
        for kind, count in self._running(frozenset(), frozenset(), 1.0).items():
            part = next(name for name in parts if kind.startswith(name))
            parts[part] += count * self.blocks[kind].seconds(1, context)
        return parts

    # Drafts

    def cost_ratio(
        self, draft, context: int | None = None, num_draft_tokens: int = DRAFTED
    ) -> float:
        """c of a draft that is part of the target, predicted from the blocks.

        Args:
            draft: what drafts.
            context: tokens in the cache; default, the reference.
            num_draft_tokens: the first step of a round is waited for, which is shared
                among that many.

        Raises:
            TypeError: another kind of draft, which must be timed itself.
            ValueError: it names layers or tokens that the model has not.
        """
        context = self.context if context is None else context
        attention, mlp, head, _ = self._left_out(draft)
        running = self._running(attention, mlp, head)
        waits = 1 / num_draft_tokens
        seconds = sum(
            count * self.blocks[kind].seconds(1, context, waits)
            for kind, count in running.items()
        )
        return seconds / self.step(context)

    def draft_verify_ratio(self, draft, rows: int, context: int | None = None) -> float:
        """v(rows) after that draft: less what kept rows of the first layers save.

        Of `rows` all but one went through those layers while drafting.
        """
        seconds = self.verify_ratio(rows, context) * self.step(context)
        context = self.context if context is None else context
        *_, kept = self._left_out(draft)
        for kind in [*self.attention[:kept], *self.mlp[:kept], *["layer"] * kept]:
            block = self.blocks[kind]
            seconds -= block.seconds(rows, context) - block.seconds(1, context)
        return max(seconds, 0.0) / self.step(context)

    def overhead_ratio(self, context: int | None = None) -> float:
        """o: rolling back and bookkeeping; the rest is inside c and v."""
        return self.round_seconds / self.step(context)

    def costs_of(self, draft, context: int | None = None) -> dict[str, Any]:
        """The arguments that a rule for the draft length takes, by name."""
        return {
            "cost_ratio": self.cost_ratio(draft, context),
            "verify_ratio": {
                rows: self.draft_verify_ratio(draft, rows, context)
                for rows in self.pass_seconds
            },
            "overhead_ratio": self.overhead_ratio(context),
        }

    # JSON

    def to_json(self) -> dict[str, Any]:
        """A dict that JSON holds; widths become strings."""
        out = asdict(self)
        out["pass_seconds"] = {str(m): s for m, s in self.pass_seconds.items()}
        return {**out, **{n: list(out[n]) for n in ("attention", "mlp", "contexts")}}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "CostProfile":
        """The profile again.

        Raises:
            ValueError: a key is unknown or missing, or a value cannot be.
        """
        _check_keys(cls, values)
        try:
            blocks = dict(values["blocks"])
            for parts in [*blocks.values()]:
                _check_keys(BlockSeconds, parts)
            _check_keys(Residuals, values["residuals"])
            return cls(
                **{
                    **values,
                    "pass_seconds": {
                        int(m): float(s) for m, s in values["pass_seconds"].items()
                    },
                    "attention": tuple(values["attention"]),
                    "mlp": tuple(values["mlp"]),
                    "contexts": tuple(values["contexts"]),
                    "blocks": {k: BlockSeconds(**b) for k, b in blocks.items()},
                    "residuals": Residuals(**values["residuals"]),
                }
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"CostProfile: wrong kind of value ({error})") from None

    # Inside

    def _more_context(self, rows: int, context: int | None) -> float:
        """Seconds that a whole pass takes more than at the reference context."""
        if context is None:
            return 0.0
        return sum(
            count
            * (
                self.blocks[kind].seconds(rows, context)
                - self.blocks[kind].seconds(rows, self.context)
            )
            for kind, count in Counter(self.attention).items()
        )

    def _running(self, attention, mlp, head: float) -> dict[str, float]:
        return running_blocks((self.attention, self.mlp), (attention, mlp), head)

    def _left_out(self, draft) -> tuple[frozenset, frozenset, float, int]:
        return left_out(draft, self.num_layers, self.vocab_size)


def left_out(
    draft, num_layers: int, vocab_size: int
) -> tuple[frozenset, frozenset, float, int]:
    """What a draft does without, in a model of that shape.

    Returns:
        Layers whose attention, and layers whose MLP, is left out; the share of the
        vocabulary that its head scores; how many first layers keep their rows for the
        verification.

    Raises:
        TypeError: a draft that is no part of the target.
        ValueError: it names layers or tokens that the model has not.
    """
    from selfspec.decoding.drafts import (
        AdapterDraft,
        ExitDraft,
        ShortlistDraft,
        SkipDraft,
    )

    head = 1.0
    if isinstance(draft, ShortlistDraft):
        head = len(draft.tokens) / vocab_size
        draft = draft.draft
    if isinstance(draft, ExitDraft):
        late = frozenset(range(draft.exit_layer, num_layers))
        attention = mlp = late
        kept = draft.exit_layer if draft.reuse else 0
    elif isinstance(draft, AdapterDraft):
        # the bridge has the shape of the last layer, and costs as much
        mlp = frozenset(range(draft.exit_layer, num_layers - 1))
        attention = mlp if draft.bridge.attends else mlp | {num_layers - 1}
        kept = draft.exit_layer
    elif isinstance(draft, SkipDraft):
        attention, mlp = draft.attention, draft.mlp
        kept = min(attention | mlp, default=0) if draft.reuse_prefix else 0
    else:
        raise TypeError(
            f"a profile predicts skip, exit, adapter and shortlist drafts, not a "
            f"{type(draft).__name__}. Way out: time it with costs.measure"
        )
    if max(attention | mlp | {kept}, default=0) >= num_layers or head > 1:
        raise ValueError(
            f"{draft} does not fit a model of {num_layers} layers and "
            f"{vocab_size} tokens. Way out: a draft, or a profile, of that model"
        )
    return attention, mlp, head, kept


def _check_keys(cls, values) -> None:
    known = {field.name for field in fields(cls)}
    if not isinstance(values, dict) or set(values) != known:
        wrong = sorted(set(values) ^ known) if isinstance(values, dict) else values
        raise ValueError(f"{cls.__name__}: unknown or missing keys {wrong}")
