"""Rows, facts and arms of made-up runs of exits, for the tests of summaries and pages."""

import math
from pathlib import Path

import pandas as pd

from selfspec.study import arms_table
from selfspec.study.arms_table import Arms
from tests.costs import synthetic
from tests.study import drafts

LAYERS = 8
SPEEDS = (1.9, 2.0, 2.1, 2.2, 2.05, 2.15)


def rows() -> pd.DataFrame:
    """Two exits by two lengths, and everything that stands beside them."""
    return pd.concat(
        [
            case("exit 2", 2, 1.5),
            case("exit 2", 4, 2.0),
            case("exit 4", 2, 1.2),
            case("exit 4", 4, 1.1),
            case("exit 2, nothing kept", 2, 1.4),
            case("exit 2, nothing kept", 4, 2.1),
            case("exit 2", "auto", 1.6),
            case("exit 2", 4, 1.7, temperature=0.6, lossless="sampled"),
            case("dynamic, exits 1 to 4, confidence 0.8", 4, 1.8),
            case("small model", 4, 1.3, cost_ratio=0.3),
            case("knapsack, 12 blocks left out", 4, 1.9),
        ],
        ignore_index=True,
    )


def case(label, length, factor, **changes) -> pd.DataFrame:
    speedups = [factor * speed / 2.05 for speed in SPEEDS]
    given = {"temperature": 0.0, "cost_ratio": 0.35, **changes}
    return drafts.rows(label, length, speedups=speedups, **given)


def facts(*, trained: bool = True, **changes) -> dict:
    """Provenance of the same run."""
    return {
        "model": {"name": "layerskip-small", "num_parameters": 2_300_000},
        "size": "default",
        "subject": {
            "task": "held-out parses",
            "layers": LAYERS,
            "trained": {"arm": "ld-ee", "seed": 0, "steps": 500} if trained else {},
        },
        "profile": synthetic.profile().to_json(),
        "plain": {"chosen": "mlx-lm", "mlx-lm": 0.0011, "this engine": 0.0012},
        "dispatch": {"seconds": 0.0008, "step_seconds": 0.001, "share": 0.8},
        "memory": {"plain": 100, "exit": 101, "two models": 125},
        "small_model": {"name": "small", "layers": 2, "parameters": 500_000},
        "knapsack": {
            "left_out": 12,
            "blocks": 16,
            "is_prefix": True,
            "kept_prefix": 2,
            "kept_after": 0,
            "agreement": 0.8,
            "exit_agreement": 0.75,
        },
        "main_exit": 2,
        "counts": [
            count("plain", 0, 400, 400, 0, 0, 400.0 * LAYERS),
            count("exit 2", 2, 400, 150, 300, 250, 300 * 2 + 150.0 * LAYERS),
            count("exit 2", 4, 400, 100, 400, 300, 400 * 2 + 100.0 * LAYERS),
            count("exit 4", 2, 400, 140, 280, 260, 280 * 4 + 140.0 * LAYERS),
            count("exit 4", 4, 400, 90, 360, 310, 360 * 4 + 90.0 * LAYERS),
            count("small model", 4, 400, 100, 400, 300, 100.0 * LAYERS),
        ],
        "exits": [
            score(layer, exact=10 * layer, agreed=500 + 62 * layer)
            for layer in range(1, LAYERS + 1)
        ],
        "depths": {
            "mean": 2.5,
            "counts": [10, 20, 5, 0, 0, 0, 0, 5],
            "layers": LAYERS,
            "examples": [
                {"tokens": ["[", "IN:X", "$5", "]"], "depths": [1, 8, 2, 1]},
                {"tokens": ["[", " "], "depths": [1, 3]},
            ],
        },
        "alone": [
            {
                "exit_layer": 2,
                "speedup": 3.5,
                "low": 3.4,
                "high": 3.6,
                "prompts": 6,
            },
            {
                "exit_layer": 4,
                "speedup": 1.8,
                "low": None,
                "high": None,
                "prompts": 2,
            },
            {"exit_layer": 6, "refused": "its first layers do not run alone"},
        ],
        **changes,
    }


def count(draft, length, tokens, rounds, drafted, accepted, evaluations) -> dict:
    return {
        "draft": draft,
        "num_draft_tokens": length,
        "texts": 20,
        "tokens": tokens,
        "rounds": rounds,
        "drafted": drafted,
        "accepted": accepted,
        "equal": 20,
        "ties": 0,
        "exact": 16,
        "evaluations": evaluations,
        "rows": (drafted + rounds) * float(LAYERS),
        "layers": LAYERS,
    }


def score(layer: int, *, exact: int, agreed: int) -> dict:
    return {
        "exit_layer": layer,
        "texts": 100,
        "exact": exact,
        "positions": 1000,
        "surprise": 1000 * math.log(20 / layer),
        "agreed": min(agreed, 1000),
        "right": 900,
    }


def arms(*, seeds: int = 6, steps=(100, 500), taught: float = 0.3) -> Arms:
    """A baseline whose early exits say nothing, and a taught model whose exits do.

    `taught`: what the taught exits lead by, give or take a hundredth by seed.
    """
    sums, training = [], []
    for place, arm in enumerate(("baseline", "ld-ee")):
        for seed in range(seeds):
            for step in steps:
                for layer in range(1, LAYERS + 1):
                    last = layer == LAYERS
                    exact = 0.8 if last else 0.05 + place * taught
                    exact += 0.01 * seed * (1 if place else 0)
                    middle = 200 if step == steps[-1] and not place else 20
                    sums.append(
                        {
                            "arm": arm,
                            "seed": seed,
                            "step": step,
                            "exit_layer": layer,
                            "texts": 1000,
                            "exact": round(1000 * exact),
                            "positions": 5000,
                            "surprise": 5000 * math.log(2 if last else middle),
                            "agreed": 5000 if last else 2000,
                            "right": 4000,
                        }
                    )
            training.append(
                {
                    "arm": arm,
                    "seed": seed,
                    "steps": steps[-1],
                    "seconds": 9000 if seed else 100,  # one of them was stopped
                    "step_seconds": (100 * (1 + 0.5 * place) + seed) / steps[-1],
                    "peak_bytes": 1000 * (1 + place),
                    "layers_run": 1.0 - 0.1 * place,
                }
            )
    about = {
        "date": "2026-12-01T00:00:00+00:00",
        "machine": "Testron 9000 (2 cores, CPU)",
        "steps": steps[-1],
        "batch": 32,
    }
    folder = Path("results") / "testron-cpu" / arms_table.FOLDER
    return Arms(
        arms_table.scored(pd.DataFrame(sums)), pd.DataFrame(training), about, folder
    )
