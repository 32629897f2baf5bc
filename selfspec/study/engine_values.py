"""What the engine's benchmark says, by key, for the book's page on the engine.

benchmarks/decoding.py keeps its figures as results/<machine>/<model>/decoding.json; the
latest of each kind of device is quoted. Keys are cpu.engine.skip.speedup and the like;
a device without a benchmark has them too, as None: "not yet measured". Needs no MLX.

    values(root)["cpu.engine.plain_speed"]       # 1.003
"""

import json
from pathlib import Path
from typing import Any

from selfspec.study.results import RESULTS, slug, unreadable
from selfspec.study.run_records import DEVICES

FILE = "decoding.json"
DRAFTS = ("skip", "exit", "exit, nothing reused", "shortlist")
FIGURES = (
    "prefix_reuse_speed plain_speed decode_speed"
    " first_token_seconds_skip_10 first_token_seconds_skip_20"
    " first_token_seconds_skip_30"
).split()  # each with _low and _high
FACTS = (
    "date chip model commit blas_threads prompts tokens num_draft_tokens skip_percent"
    " prompt_tokens graph_percent_of_step"
).split()
OF_A_DRAFT = (
    "cost_ratio verify_ratio acceptance_percent speedup speedup_low speedup_high"
    " predicted measured_over_predicted measured_over_predicted_low"
    " measured_over_predicted_high extra_memory_percent shortlist_megabytes"
    " texts_that_differ"
).split()


def values(root: Path) -> dict[str, Any]:
    """Every key of every kind of device, rounded to six digits.

    Raises:
        ResultsError: a benchmark's file that cannot be read.
    """
    latest: dict[str, dict] = {}
    for path in sorted((root / RESULTS).glob(f"*/*/{FILE}")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            found, device = of_benchmark(result), result["machine"]["device"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise unreadable(path, repr(error)) from None
        if found["date"] > latest.get(device, {"date": ""})["date"]:
            latest[device] = found
    return {
        f"{device}.engine.{key}": latest.get(device, {}).get(key)
        for device in DEVICES
        for key in keys()
    }


def keys() -> list[str]:
    """Every key of one device, without its beginning."""
    ends = ("", "_low", "_high")
    drafts = [f"{slug(name)}.{key}" for name in DRAFTS for key in OF_A_DRAFT]
    return [*FACTS, *(f"{name}{end}" for name in FIGURES for end in ends), *drafts]


def of_benchmark(result: dict[str, Any]) -> dict[str, Any]:
    """The keys of one benchmark.

    Raises:
        KeyError, TypeError: it is not what benchmarks/decoding.py writes.
    """
    found: dict[str, Any] = {
        "date": result["date"][:10],
        "chip": result["machine"]["chip"],
        "model": result["model"]["name"],
        "commit": result["commit"],
        "blas_threads": result["blas"]["threads"],
        "prompts": result["prompts"],
        "tokens": result["tokens"],
        "num_draft_tokens": result["num_draft_tokens"],
        "skip_percent": 100 * result["skip_fraction"],
        "prompt_tokens": result["prompt_tokens"],
        "graph_percent_of_step": 100 * result["graph_seconds"] / result["step_seconds"],
    }
    measured = {**result["against_mlx_lm"]}
    measured["prefix_reuse_speed"] = result["prefix_reuse_speed"]
    for name in FIGURES:
        found |= _interval(name, measured[name])
    for name in DRAFTS:
        row = result["drafts"][name]
        one = {
            "cost_ratio": row["cost_ratio"],
            "verify_ratio": row["verify_ratio"],
            "acceptance_percent": 100 * row["acceptance_rate"],
            **_interval("speedup", row["speedup"]),
            "predicted": row["predicted"],
            **_interval("measured_over_predicted", row["measured_over_predicted"]),
            "extra_memory_percent": 100 * row["extra_memory"],
            "shortlist_megabytes": row["shortlist_bytes"] / 1e6,
            "texts_that_differ": row["texts_that_differ"],
        }
        found |= {f"{slug(name)}.{key}": value for key, value in one.items()}
    return {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in found.items()
    }


def _interval(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: found["value"],
        f"{name}_low": found["low"],
        f"{name}_high": found["high"],
    }
