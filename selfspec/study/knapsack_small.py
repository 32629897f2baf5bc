"""Regret against the optimum, on models so small that every skip set can be tried.

Small llamas of mlx-lm's own class, some random and some taught for a moment on the
bytes of the committed prompts, with the block costs that the profile of the studied
model has. Every set is scored on calibration and on evaluation windows, every selector
chooses, and the regret of its best set is split into the steps that lost it.

    regrets(profile, count=2)[0]["selectors"]["greedy"]["regret"]
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx_lm.models import llama

from selfspec.costs import CostProfile, best_draft_length, expected_speedup
from selfspec.selection import SELECTORS, Problem, Scorer, make_windows, split
from selfspec.selection.frontier import Frontier
from selfspec.study.prompt_set import load_prompts

LAYERS = 4
BYTES = 256
WINDOWS, PROMPT_BYTES, WINDOW_TOKENS = 3, 24, 16
TAUGHT_STEPS, TAUGHT_ROWS, TAUGHT_BYTES = 150, 8, 48
LIMIT = 6  # longest draft considered
SELECTED = {
    "middle": {},
    "suffix": {},
    "random": {},
    "greedy": {},
    "knapsack": {},
    "beam": {"width": 8},
    "clasp": {},
    "search": {"trials": 40},
}


def regrets(
    profile: CostProfile, count: int, *, num_layers: int = LAYERS, seed: int = 0
) -> list[dict[str, Any]]:
    """One dict a model: what it is, the optimum's S, and of each selector the parts.

    Args:
        profile: gives the seconds of an attention, an MLP, the head and the rest.
        count: models; every second one was taught.
        num_layers: of each.
    """
    found = []
    for number in range(count):
        taught = number % 2 == 1
        model = small_model(seed + number, num_layers, taught=taught)
        found.append(
            {
                "model": f"{'taught' if taught else 'random'} {number}",
                **_regrets(model, _costs(profile, num_layers)),
            }
        )
    return found


def small_model(seed: int, num_layers: int = LAYERS, *, taught: bool) -> nn.Module:
    """A llama over bytes, of a few layers."""
    mx.random.seed(seed)
    arguments = {
        "model_type": "llama",
        "hidden_size": 48,
        "num_hidden_layers": num_layers,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": BYTES,
        "tie_word_embeddings": False,
    }
    model = llama.Model(llama.ModelArgs.from_dict(arguments))
    if taught:
        _teach(model, seed)
    else:  # blocks that matter, or every draft would agree
        for layer in model.layers:
            for block in (layer.self_attn.o_proj, layer.mlp.down_proj):
                block.weight = 4 * block.weight
        model.lm_head.weight = 6 * model.lm_head.weight
    mx.eval(model.parameters())
    return model


def _teach(model, seed: int) -> None:
    text = np.frombuffer(
        "\n".join(prompt.text for prompt in load_prompts("calibration")).encode(),
        np.uint8,
    )
    rng, adam = np.random.default_rng(seed), optim.Adam(learning_rate=3e-3)

    def loss(m, rows):
        return nn.losses.cross_entropy(m(rows[:, :-1]), rows[:, 1:], reduction="mean")

    step = nn.value_and_grad(model, loss)
    for _ in range(TAUGHT_STEPS):
        places = rng.integers(0, len(text) - TAUGHT_BYTES, TAUGHT_ROWS)
        rows = np.stack([text[i : i + TAUGHT_BYTES] for i in places]).astype(np.int32)
        _, gradients = step(model, mx.array(rows))
        adam.update(model, gradients)
        mx.eval(model.parameters(), adam.state)


def _costs(profile: CostProfile, num_layers: int) -> CostProfile:
    """The same blocks, as many as a small model has, in its own plain steps."""
    few = replace(
        profile,
        attention=profile.attention[:num_layers],
        mlp=profile.mlp[:num_layers],
    )
    # a head for 49,152 tokens would drown four layers: its share of a step is kept
    shrink = num_layers / profile.num_layers
    blocks = {
        kind: _scaled(block, shrink) if kind in ("head", "rest") else block
        for kind, block in profile.blocks.items()
    }
    few = replace(few, blocks=blocks, vocab_size=BYTES)
    step = sum(few.where_a_step_goes(few.context).values())
    ratio = step / profile.step_seconds
    return replace(
        few,
        step_seconds=step,
        pass_seconds={m: ratio * s for m, s in profile.pass_seconds.items()},
        round_seconds=ratio * profile.round_seconds,
    )


def _scaled(block, factor: float):
    return replace(block, **{name: factor * v for name, v in vars(block).items()})


def _regrets(model, profile: CostProfile) -> dict[str, Any]:
    calibration, evaluation = (
        Scorer(model, make_windows(model, _prompts(which), num_tokens=WINDOW_TOKENS))
        for which in ("calibration", "evaluation")
    )
    problem = Problem(calibration, profile)
    oracle = SELECTORS["oracle"](problem)
    every = {c.draft: c for c in oracle.candidates if c.saved}
    held_out = {
        draft: _speedup(evaluation.score(draft).agreement, draft, profile)
        for draft in every
    }
    seen = {d: _speedup(c.agreement, d, profile) for d, c in every.items()}
    cosines = {d: calibration.score(d).cosine_before_norm for d in every}
    out: dict[str, Any] = {"sets": len(every), "optimum": max(held_out.values())}
    selectors = {}
    for name, options in SELECTED.items():
        fresh = Problem(calibration, profile)
        frontier = SELECTORS[name](fresh, **options)
        selectors[name] = _parts(frontier, seen, held_out, cosines, profile)
    return {**out, "selectors": selectors}


def _parts(
    frontier: Frontier,
    seen: Mapping[Any, float],
    held_out: Mapping[Any, float],
    cosines: Mapping[Any, float],
    profile: CostProfile,
) -> dict[str, float]:
    """The regret of the set that looks best on calibration windows, part by part.

    The proxy of beam and clasp is the cosine; the others maximise agreement itself, so
    no proxy loses them anything. Nothing is timed: no overhead, no cost model.
    """
    offered = [c.draft for c in frontier.candidates if c.draft in seen]
    chosen = max(offered, key=seen.get)
    cosine = frontier.selector in ("beam", "clasp")
    gap = split(
        chosen,
        held_out=held_out,
        calibration=seen,
        proxy=cosines if cosine else seen,
        with_overhead=held_out[chosen],
        measured=held_out[chosen],
    )
    return {
        "regret": gap.total,
        "in_sample": gap.in_sample,
        "proxy": gap.proxy,
        "search": gap.search,
        "evaluations": frontier.evaluations,
    }


def _speedup(agreement: float, draft, profile: CostProfile) -> float:
    """S without overhead at the best length that drafts at all."""
    costs = {**profile.costs_of(draft), "overhead_ratio": 0.0}
    found = best_draft_length(agreement, limit=LIMIT, **costs)
    if found.num_draft_tokens:
        return found.speedup
    return max(expected_speedup(agreement, k, **costs) for k in range(1, LIMIT + 1))


def _prompts(which: str) -> Sequence[list[int]]:
    return [
        list(prompt.text.encode()[:PROMPT_BYTES])
        for prompt in load_prompts(which, WINDOWS)
    ]
