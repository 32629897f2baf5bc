"""The numbers that prose may quote, by key: what {result}`key` looks up.

Keys are cpu.naive-sweep.best_speedup (the largest run on such a device), or with
machine, model and size spelled out, or post.* for the figures of the post. A device
that nobody has measured has its keys too, with the value None: "not yet measured".

    found = values(latest(collect(root)), reference.post(root))
    found["metal.naive-sweep.best_speedup"]      # None so far
"""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from selfspec.study.run_records import DEVICES, Record, headlines

EXPERIMENTS = ("naive-sweep",)
FIELDS = (
    "machine model size date best_speedup best_low best_high best_skip_percent"
    " best_num_draft_tokens best_acceptance_percent best_predicted worst_speedup"
    " worst_skip_percent worst_num_draft_tokens worst_acceptance_percent configurations"
    " faster slower no_difference pairs lossless_pairs ties prompts drift_percent"
    " step_milliseconds blas_threads verify_ratio_2 verify_ratio_3 verify_ratio_4"
    " verify_ratio_6"
).split()


def values(records: Sequence[Record], post: pd.DataFrame) -> dict[str, Any]:
    """Every key and its value, rounded to six digits; None where nothing is measured.

    Args:
        post: of reference.post().
    """
    found: dict[str, Any] = {"runs": len(records)}
    for device in DEVICES:
        for experiment in EXPERIMENTS:
            fitting = [
                record
                for record in headlines(list(records))
                if (record.device, record.experiment) == (device, experiment)
            ]
            best = max(fitting, key=lambda record: record.rank, default=None)
            figures = of_run(best) if best else dict.fromkeys(FIELDS)
            found |= {f"{device}.{experiment}.{k}": v for k, v in figures.items()}
            found[f"{device}.{experiment}.runs"] = len(fitting)
    for record in records:
        place = f"{record.machine}/{record.model}/{record.experiment}/{record.size}"
        found |= {f"{place}.{key}": value for key, value in of_run(record).items()}
    return found | of_post(post)


def of_run(record: Record) -> dict[str, Any]:
    """FIELDS of one run."""
    best, worst, table = record.best, record.worst, record.table
    costs = record.facts.get("costs", {})
    verify = costs.get("verify_ratio", {})
    figures = {
        "machine": record.machine_name,
        "model": record.model_name,
        "size": record.size,
        "date": record.date,
        "best_speedup": best["speedup"],
        "best_low": best["low"],
        "best_high": best["high"],
        "best_skip_percent": 100 * best["skip_fraction"],
        "best_num_draft_tokens": int(best["num_draft_tokens"]),
        "best_acceptance_percent": 100 * best["acceptance_rate"],
        "best_predicted": best["predicted_speedup"],
        "worst_speedup": worst["speedup"],
        "worst_skip_percent": 100 * worst["skip_fraction"],
        "worst_num_draft_tokens": int(worst["num_draft_tokens"]),
        "worst_acceptance_percent": 100 * worst["acceptance_rate"],
        "configurations": len(table),
        "faster": record.count("faster"),
        "slower": record.count("slower"),
        "no_difference": record.count("no difference"),
        "pairs": int(table["pairs"].sum()),
        "lossless_pairs": int(table["lossless"].sum()),
        "ties": int(table["ties"].sum()),
        "prompts": int(table["prompts"].max()),
        "drift_percent": _times(record.facts.get("drift"), 100),
        "step_milliseconds": _times(costs.get("step_seconds"), 1000),
        "blas_threads": costs.get("blas_threads"),
        **{f"verify_ratio_{m}": verify.get(str(m)) for m in (2, 3, 4, 6)},
    }
    return {key: plain(figures[key]) for key in FIELDS}


def of_post(post: pd.DataFrame) -> dict[str, Any]:
    """The post's figures, and what the identity says must be true of them.

    `rest` is v + o in plain steps: what a round cost beyond its drafting.

    Args:
        post: of reference.post().
    """
    whole = post[post["round_remainder"].notna()]
    ends = {
        "best": whole.loc[whole["speedup"].idxmax()],
        "worst": whole.loc[whole["speedup"].idxmin()],
    }
    found: dict[str, Any] = {}
    for name, row in ends.items():
        found |= {
            f"post.{name}_speedup": plain(row["speedup"]),
            f"post.{name}_skip_percent": plain(100 * row["skip_fraction"]),
            f"post.{name}_num_draft_tokens": int(row["num_draft_tokens"]),
            f"post.{name}_acceptance_percent": plain(100 * row["acceptance_rate"]),
            f"post.{name}_cost_ratio": plain(row["cost_ratio"]),
            f"post.{name}_rest": plain(row["round_remainder"]),
        }
    others = post[post["model"] != ends["best"]["model"]]
    top = others.loc[others["speedup"].idxmax()]
    return found | {
        "post.other_model_best_speedup": plain(top["speedup"]),
        "post.other_model_best_skip_percent": plain(100 * top["skip_fraction"]),
    }


def plain(value: Any) -> Any:
    """A JSON value, the same on every machine: six digits, None for NaN."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
