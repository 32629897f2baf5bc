"""One timed pair of a run of drafts as a row, its two predictions beside it.

One prediction takes the acceptance of the very rounds that were timed, the other that
of prompts which are not evaluated; the costs of both were known before the first pair.

    measured(block, case, known=DraftCosts(...), context=128, held_out=HeldOut(...))
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from selfspec.costs.profile import DRAFTED
from selfspec.study.draft_grid import Case
from selfspec.study.known_costs import DraftCosts
from selfspec.study.paired import Block
from selfspec.study.row_table import read_rounds, write_rounds
from selfspec.study.sweep_rows import number, timed

COLUMNS = (
    "size draft num_draft_tokens temperature prompt_id domain repeat order"
    " baseline_tokens"
    " baseline_prefill_seconds baseline_decode_seconds baseline_decode_tokens"
    " baseline_peak_bytes tokens prefill_seconds decode_seconds decode_tokens peak_bytes"
    " speedup rounds drafted accepted first_drafted first_accepted"
    " drafted_accepted_per_round plain_tokens lossless ties repeated_ngram_share"
    " cost_ratio verify_ratio overhead_ratio predicted_speedup held_out_acceptance_rate"
    " predicted_held_out blas_threads device"
).split()


@dataclass(frozen=True)
class HeldOut:
    """What a case did on prompts that are not evaluated.

    Attributes:
        rounds: (drafted, accepted) of every round, by prompt.
        tokens: emitted in them.
        plain: how many of the rounds were plain steps that a rule chose.
    """

    rounds: tuple[tuple[tuple[int, int], ...], ...]
    tokens: int
    plain: int = 0

    @property
    def every_round(self) -> tuple[tuple[int, int], ...]:
        return tuple(pair for rounds in self.rounds for pair in rounds)

    @property
    def acceptance_rate(self) -> float:
        """Sum of accepted over sum of drafted; NaN where nothing was drafted."""
        drafted = sum(d for d, _ in self.every_round)
        accepted = sum(a for _, a in self.every_round)
        return accepted / drafted if drafted else float("nan")

    @property
    def per_token_acceptance(self) -> float:
        """Share kept of the tokens that verification reached; NaN without any."""
        kept = sum(a for _, a in self.every_round)
        reached = kept + sum(a < d for d, a in self.every_round)
        return kept / reached if reached else float("nan")

    def to_json(self) -> dict[str, Any]:
        """As provenance keeps it."""
        return {
            "rounds": [write_rounds(rounds) for rounds in self.rounds],
            "tokens": self.tokens,
            "plain": self.plain,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "HeldOut":
        rounds = tuple(map(read_rounds, values["rounds"]))
        return cls(rounds, values["tokens"], values["plain"])


def measured(
    block: Block, case: Case, *, known: DraftCosts, context: int, held_out: HeldOut
) -> dict[str, Any]:
    """What one block says of one case, beside what was predicted.

    Args:
        known: costs of its draft, from before the first pair.
        context: mean number of tokens in the cache during the pair.
    """
    variant = block.decoded[case.name]
    length = DRAFTED if case.is_auto else case.num_draft_tokens
    # the first round is timed with the prompt
    rounds, plain = variant.rounds[1:], sum(variant.plain[1:])
    return {
        "draft": case.label,
        "num_draft_tokens": case.num_draft_tokens,
        "temperature": case.temperature,
        **timed(block, case.name),
        "plain_tokens": sum(variant.plain),
        "cost_ratio": number(known.cost_ratio(context, length)),
        # a rule verifies another number of rows every round
        "verify_ratio": ""
        if case.is_auto
        else number(known.verify_ratio(length + 1, context)),
        "overhead_ratio": number(known.overhead_ratio(context)),
        "predicted_speedup": number(
            known.speedup(rounds, variant.decode_tokens, context, plain)
        ),
        "held_out_acceptance_rate": number(held_out.acceptance_rate),
        "predicted_held_out": number(
            known.speedup(
                held_out.every_round, held_out.tokens, context, held_out.plain
            )
        ),
    }
