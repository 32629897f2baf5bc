"""Time several ways to decode the same prompt, back to back, in a seeded order.

A laptop drifts by more than most speedups, so a ratio is only believed when both of its
halves ran side by side. This file shuffles and times; it does not know what an arm does.

    block = run_block({"baseline": plain, "two caches": post}, rng)
    block.order, block.decoded["baseline"].seconds_per_token
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Decoded:
    """What one arm emitted for one prompt, and what it took.

    Attributes:
        tokens: emitted token ids.
        prefill_seconds: call to first token (a speculative first round is in it).
        decode_seconds: first token, or end of the first round, to the last token.
        decode_tokens: tokens emitted within decode_seconds.
        peak_bytes: highest memory in use, weights included.
        rounds: (drafted, accepted) of every round and, as (0, 0), of every plain step;
            empty for the baseline.
        plain: for each of them whether it was a plain step, where any was.
    """

    tokens: tuple[int, ...]
    prefill_seconds: float
    decode_seconds: float
    decode_tokens: int
    peak_bytes: int
    rounds: tuple[tuple[int, int], ...] = field(default=())
    plain: tuple[bool, ...] = field(default=())

    @property
    def seconds_per_token(self) -> float:
        """Decode seconds per token; NaN when the first round already emitted all."""
        if not self.decode_tokens:
            return float("nan")
        return self.decode_seconds / self.decode_tokens


@dataclass(frozen=True)
class Block:
    """One back-to-back run of all arms on one prompt; `order` is the order they ran in."""

    order: tuple[str, ...]
    decoded: dict[str, Decoded]

    def speedup(self, arm: str, baseline: str = "baseline") -> float:
        """Baseline seconds per token over the arm's, both from this block."""
        return (
            self.decoded[baseline].seconds_per_token
            / self.decoded[arm].seconds_per_token
        )


def run_block(arms: Mapping[str, Callable[[], Decoded]], rng: random.Random) -> Block:
    """Run every arm once, in an order drawn from `rng`."""
    order = list(arms)
    rng.shuffle(order)
    return Block(order=tuple(order), decoded={name: arms[name]() for name in order})
