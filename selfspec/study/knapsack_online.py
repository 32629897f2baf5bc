"""What choosing again while decoding costs and brings, by how often it is done.

The same prompts are decoded plainly and under `OnlinePolicy` at each interval, back to
back, in an order drawn anew for each prompt; prefill is left out. Beside the intervals
stands the default: its rules together, within its budget. No policy may decline here,
because what it costs to choose is the question.

    curve(loaded, profile, pool, intervals=(0, 64), prompts=2, num_tokens=256)
"""

import math
import random
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from selfspec import models
from selfspec.costs import CostProfile
from selfspec.decoding import Trace, generate_step
from selfspec.models import device
from selfspec.selection import Known, OnlinePolicy
from selfspec.selection.online import BUDGET, DEFAULT, EveryTokens
from selfspec.study.prompt_set import load_prompts

POOL = 4
WARM_UP_TOKENS = 16
PLAIN, DEFAULT_POLICY = "plain", "default"  # in the place of an interval


def curve(
    loaded,
    profile: CostProfile,
    pool: Sequence[Known],
    *,
    intervals: Sequence[int],
    prompts: int,
    num_tokens: int,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """One dict an interval, and one of the default policy: S, the selector's share of
    the time, how often it chose.

    Args:
        pool: drafts with what calibration windows said; the first few are used.
        intervals: tokens between two choices; 0 never.
        prompts: evaluation prompts.
        num_tokens: decoded of each, whatever they are.
    """
    pool = list(pool)[:POOL]
    if not pool:
        return []
    policies = [*intervals, DEFAULT_POLICY]
    found: dict[Any, list[dict[str, float]]] = {policy: [] for policy in policies}
    rng = random.Random(f"{seed}/online")
    ids = [
        models.render_prompt(loaded.tokenizer, prompt.text)
        for prompt in load_prompts("evaluation", prompts)
    ]
    arms = [PLAIN, *policies]
    for arm in arms:
        _run(loaded.model, profile, pool, ids[0], arm, WARM_UP_TOKENS)
    for prompt in ids:
        runs = {
            arm: _run(loaded.model, profile, pool, prompt, arm, num_tokens)
            for arm in rng.sample(arms, len(arms))
        }
        for policy in policies:
            run = runs[policy]
            found[policy].append(
                {
                    "speedup": runs[PLAIN]["seconds"] / run["seconds"],
                    "share": run["selecting"] / run["seconds"],
                    "choices": run["choices"],
                    "acceptance_rate": run["acceptance_rate"],
                    "same_text": float(run["text"] == runs[PLAIN]["text"]),
                }
            )
    return [
        {
            "interval": policy,
            "texts": len(values),
            "tokens": num_tokens,
            **{name: median(v[name] for v in values) for name in values[0]},
        }
        for policy, values in found.items()
    ]


def _run(model, profile, pool, prompt, interval: int | str, num_tokens: int) -> dict:
    trace, policy = Trace(), None
    if interval != PLAIN:
        when, budget = DEFAULT, BUDGET
        if interval != DEFAULT_POLICY:
            when, budget = (EveryTokens(interval),) if interval else (), math.inf
        policy = OnlinePolicy(
            pool, profile, when=when, budget=budget, may_decline=False
        )
    device.synchronize()
    started = time.perf_counter()
    text = [
        token
        for token, *_ in generate_step(
            prompt,
            model,
            policy=policy,
            max_tokens=num_tokens,
            trace=trace,
        )
    ]
    device.synchronize()
    return {
        "seconds": time.perf_counter() - started - trace.seconds_prefill,
        "selecting": policy.seconds if policy else 0.0,
        "choices": policy.selections if policy else 0,
        "acceptance_rate": trace.acceptance_rate if policy else 1.0,
        "text": text,
    }
