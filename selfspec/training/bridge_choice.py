"""Which exit, and which bridge: what each choice must be accepted, before training.

A draft through a bridge costs its layers, the bridge and the head; from measured costs
follows the acceptance of a token at which it breaks even, and the one at which it gives
GOAL. An early exit needs little and is hard to teach, a late one is easily taught and
needs much. So the choice is the latest exit whose need seems within reach. Knows costs
and layers; no text.

    options = choices(stack, profile, shortlist=8192)
    chosen = choose(options)                    # exit_layer, kind, needed
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from selfspec.costs.draft_length import required_acceptance
from selfspec.costs.profile import CostProfile
from selfspec.decoding import AdapterDraft, Bridge, ShortlistDraft
from selfspec.decoding.bridge import BRIDGES
from selfspec.models.blocks import Stack
from selfspec.training.errors import TrainingError

GOAL = 1.2  # the speedup that a fitted exit should reach
REACHABLE = 0.6  # per-token acceptance that a small bridge may be taught
DEPTHS = (1 / 15, 1 / 10, 2 / 15, 1 / 5, 4 / 15, 1 / 3, 2 / 5, 1 / 2)


@dataclass(frozen=True)
class Option:
    """One choice and what it needs.

    Attributes:
        exit_layer, kind: the exit and the bridge.
        num_parameters: of the bridge.
        cost_ratio: c, one draft step in plain steps.
        break_even: per-token acceptance at which S = 1; infinite if none does.
        needed: the same for GOAL.
    """

    exit_layer: int
    kind: str
    num_parameters: int
    cost_ratio: float
    break_even: float
    needed: float


def choices(
    stack: Stack,
    profile: CostProfile,
    *,
    shortlist: int = 0,
    exits: Sequence[int] = (),
    kinds: Sequence[str] = BRIDGES,
) -> list[Option]:
    """What every exit and bridge needs on the machine of the profile.

    Args:
        shortlist: tokens that the draft's head scores; 0 for all.
        exits: which exits; default, some up to half the depth.

    Raises:
        TrainingError: a model too shallow to leave early.
    """
    num_layers = stack.num_layers
    exits = exits or sorted(
        {max(1, round(share * num_layers)) for share in DEPTHS}
        & {*range(1, num_layers)}
    )
    if not exits:
        raise TrainingError(
            "a model of one layer has no early layer to draft from. Way out: a model "
            "with more layers"
        )
    vocab_size = stack.model(mx.array([[0]])).shape[-1]  # never run
    tokens = range(min(shortlist, vocab_size))
    found = []
    for kind in kinds:
        bridge = Bridge.like(stack, kind)
        for exit_layer in exits:
            draft = AdapterDraft(exit_layer, bridge)
            costs = profile.costs_of(ShortlistDraft(draft, tokens) if tokens else draft)
            limit = max(2, max(profile.pass_seconds)) - 1
            found.append(
                Option(
                    exit_layer=exit_layer,
                    kind=kind,
                    num_parameters=bridge.num_parameters,
                    cost_ratio=costs["cost_ratio"],
                    break_even=required_acceptance(1.0, limit=limit, **costs),
                    needed=required_acceptance(GOAL, limit=limit, **costs),
                )
            )
    return found


def choose(options: Sequence[Option], reachable: float = REACHABLE) -> Option:
    """The latest exit that needs no more than that, of the larger bridge.

    Where every one needs more, the one that needs least.
    """
    within = [option for option in options if option.needed <= reachable]
    if within:
        return max(within, key=lambda o: (o.exit_layer, o.num_parameters))
    return min(options, key=lambda o: (o.needed, o.break_even, o.exit_layer))


def in_words(option: Option) -> str:
    """One line: what it costs and needs."""
    return (
        f"exit {option.exit_layer:2d}, {option.kind:5s}: c {option.cost_ratio:.2f}, "
        f"breaks even at {_rate(option.break_even)}, {GOAL:g}x needs "
        f"{_rate(option.needed)}"
    )


def _rate(acceptance: float) -> str:
    return f"{acceptance:.0%}" if math.isfinite(acceptance) else "more than all"
