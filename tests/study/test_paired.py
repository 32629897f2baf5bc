"""The paired protocol on a made-up clock: drift cancels, order is drawn and recorded."""

import random

import numpy as np
import pytest
from scipy import stats

from selfspec.study.paired import Decoded, run_block
from selfspec.study.statistics import median_ratio

TRUE_RATIO = 1.30
PROMPTS = 12


class Machine:
    """A clock that runs slower and slower: by `slow_down` over the whole run."""

    def __init__(self, slow_down: float, arms: int, noise: float = 0.002):
        self.slow_down, self.arms, self.noise = slow_down, arms, noise
        self.ran, self.rng = 0, random.Random(5)

    def arm(self, seconds: float):
        def run():
            share = self.ran / (self.arms - 1)
            self.ran += 1
            factor = (1 + self.slow_down * share) * self.rng.gauss(1, self.noise)
            return decoded(seconds * factor)

        return run


def decoded(seconds, tokens=10):
    return Decoded(tuple(range(tokens)), 0.1, seconds, tokens, 1)


def blocks_on(machine, seed=3, prompts=PROMPTS):
    """What an experiment does: for every prompt one block, its order drawn anew."""
    return [
        run_block(
            {"baseline": machine.arm(TRUE_RATIO), "draft": machine.arm(1.0)},
            random.Random(f"{seed}/{prompt}"),
        )
        for prompt in range(prompts)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_true_ratio_comes_back_through_a_machine_that_slows_down(seed):
    """1.30 under a 20 % slow-down: an interval of at most 4 % around it. In a block the
    drift is 0.2 / 23, below 1 %, with either sign as the order is drawn."""
    found = median_ratio(
        [b.speedup("draft") for b in blocks_on(Machine(0.2, 2 * PROMPTS), seed)]
    )
    assert found.low <= TRUE_RATIO <= found.high
    assert found.high - found.low < 0.04
    assert found.verdict == "faster"


def test_one_arm_after_the_other_would_take_the_drift_for_a_ratio():
    """The same machine, all baselines first: 1.30 is nowhere near the interval."""
    machine = Machine(0.2, 2 * PROMPTS)
    baselines = [machine.arm(TRUE_RATIO)().decode_seconds for _ in range(PROMPTS)]
    drafts = [machine.arm(1.0)().decode_seconds for _ in range(PROMPTS)]
    ratios = [b / d for b, d in zip(baselines, drafts, strict=True)]
    found = median_ratio(ratios)
    assert found.high < 1.22 < TRUE_RATIO


def test_unpaired_the_interval_is_wide_though_the_runs_were_interleaved():
    """The blocks of the paired test, judged without their pairing."""
    blocks = blocks_on(Machine(0.2, 2 * PROMPTS))
    paired = median_ratio([b.speedup("draft") for b in blocks])
    interval = stats.bootstrap(
        tuple(
            np.array([b.decoded[name].seconds_per_token for b in blocks])
            for name in ("baseline", "draft")
        ),
        lambda base, draft: np.median(base) / np.median(draft),
        paired=False,
        vectorized=False,
        n_resamples=999,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert interval.high - interval.low > 3 * (paired.high - paired.low)


def test_a_clock_without_noise_gives_the_ratio_itself():
    found = median_ratio(
        [b.speedup("draft") for b in blocks_on(Machine(0.0, 24, noise=0.0))]
    )
    assert (found.value, found.low, found.high) == pytest.approx((TRUE_RATIO,) * 3)
    same = median_ratio([1.0] * PROMPTS)
    assert same.verdict == "no difference"


@pytest.mark.parametrize("prompts", [1, 2, 3, 4])
def test_fewer_than_five_pairs_give_a_figure_and_no_interval(prompts):
    machine = Machine(0.2, 2 * PROMPTS)
    found = median_ratio(
        [b.speedup("draft") for b in blocks_on(machine, prompts=prompts)]
    )
    assert found.value == pytest.approx(TRUE_RATIO, rel=0.03)
    assert np.isnan([found.low, found.high]).all()
    assert found.verdict == "too few prompts"


def test_both_orders_occur_and_the_same_seed_draws_the_same():
    arms = {"baseline": lambda: decoded(1), "draft": lambda: decoded(2)}
    orders = [run_block(arms, random.Random(seed)).order for seed in range(20)]
    assert {order[0] for order in orders} == {"baseline", "draft"}
    assert orders == [run_block(arms, random.Random(seed)).order for seed in range(20)]


def test_an_arm_that_emits_all_in_its_first_round_has_no_speed():
    nothing = Decoded((1, 2), 0.1, 0.0, 0, 1)
    assert nothing.seconds_per_token != nothing.seconds_per_token  # NaN
