"""The paired protocol on a made-up clock: drift cancels, order is drawn and recorded."""

import random

import pytest

from selfspec.study.paired import Decoded, run_block


def decoded(seconds, tokens=10):
    return Decoded(tuple(range(tokens)), 0.1, seconds, tokens, 1)


def test_a_true_ratio_comes_back_through_a_machine_that_slows_down():
    """A 20 % slow-down over 24 blocks: paired ratios stay within 2 % of 1.30."""
    clock = {"now": 1.0}

    def arm(seconds):
        def run():
            clock["now"] *= 1.2 ** (1 / 48)
            return decoded(seconds * clock["now"])

        return run

    rng = random.Random(3)
    blocks = [
        run_block({"baseline": arm(1.3), "draft": arm(1.0)}, rng) for _ in range(24)
    ]
    ratios = sorted(block.speedup("draft") for block in blocks)
    assert ratios[12] == pytest.approx(1.30, rel=0.02)
    slowest_last = blocks[-1].decoded["baseline"].decode_seconds
    fastest_first = blocks[0].decoded["draft"].decode_seconds
    assert slowest_last / fastest_first > 1.5  # unpaired, the drift would be in it


def test_both_orders_occur_and_the_same_seed_draws_the_same():
    arms = {"baseline": lambda: decoded(1), "draft": lambda: decoded(2)}
    orders = [run_block(arms, random.Random(seed)).order for seed in range(20)]
    assert {order[0] for order in orders} == {"baseline", "draft"}
    assert orders == [run_block(arms, random.Random(seed)).order for seed in range(20)]


def test_an_arm_that_emits_all_in_its_first_round_has_no_speed():
    nothing = Decoded((1, 2), 0.1, 0.0, 0, 1)
    assert nothing.seconds_per_token != nothing.seconds_per_token  # NaN
