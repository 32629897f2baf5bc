"""The numbers that prose may quote, by key: what {result}`key` looks up.

Keys are cpu.naive-sweep.two-caches.best_speedup (the largest run on such a device, one of
its mechanisms), cpu.naive-sweep.verify_ratio_3 (the run as a whole), cpu.auto.worst_low
(a run of drafts), the same with machine, model and size spelled out, or post.* for the
figures of the post. A device that nobody has measured has its keys too, with the value
None: "not yet measured".

    found = values(latest(collect(root)), reference.post(root))
    found["metal.naive-sweep.two-caches.best_speedup"]      # None so far
"""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from selfspec.study import (
    auto_summary,
    layerskip_summary,
    layerskip_values,
    machine_values,
    sweep_summary,
)
from selfspec.study.draft_summary import prediction_error
from selfspec.study.experiments import (
    AUTO,
    EXPERIMENTS,
    FITTED,
    KNAPSACK,
    LAYERSKIP,
    MACHINE,
    NAIVE_SWEEP,
)
from selfspec.study.fitted_values import FITTED_FIELDS, of_fitted
from selfspec.study.knapsack_values import KNAPSACK_FIELDS, of_knapsack
from selfspec.study.layerskip_values import LAYERSKIP_FIELDS
from selfspec.study.machine_values import MACHINE_FIELDS
from selfspec.study.results import slug
from selfspec.study.run_records import DEVICES, Record, count, headlines
from selfspec.study.sweep_summary import MECHANISMS

RUN_FIELDS = (
    "machine model size date configurations pairs lossless_pairs ties prompts"
    " drift_percent step_milliseconds blas_threads"
    " verify_ratio_2 verify_ratio_3 verify_ratio_4 verify_ratio_6"
).split()
MECHANISM_FIELDS = (
    "configurations faster slower no_difference best_speedup best_low best_high"
    " best_skip_percent best_num_draft_tokens best_acceptance_percent best_predicted"
    " worst_speedup worst_skip_percent worst_num_draft_tokens worst_acceptance_percent"
).split()
DRAFT_FIELDS = (
    "faster slower no_difference prediction_error_percent prediction_error_most_percent"
    " held_out_error_percent best_draft best_speedup best_low best_high"
    " best_num_draft_tokens best_predicted worst_draft worst_speedup worst_low worst_high"
    " worst_num_draft_tokens worst_predicted"
).split()
AUTO_FIELDS = (
    "above_bound covers_bound below_bound lowest_low tokens budget_percent allowance"
).split()


def _fields(experiment: str) -> list[str]:
    """Every key that a run of this experiment has."""
    if experiment == NAIVE_SWEEP:
        parts = [f"{slug(m)}.{f}" for m in MECHANISMS for f in MECHANISM_FIELDS]
        return [*RUN_FIELDS, *parts]
    return [
        *RUN_FIELDS,
        *DRAFT_FIELDS,
        *(AUTO_FIELDS if experiment == AUTO else ()),
        *(MACHINE_FIELDS if experiment == MACHINE else ()),
        *(KNAPSACK_FIELDS if experiment == KNAPSACK else ()),
        *(LAYERSKIP_FIELDS if experiment == LAYERSKIP else ()),
        *(FITTED_FIELDS if experiment == FITTED else ()),
    ]


def values(records: Sequence[Record], post: pd.DataFrame) -> dict[str, Any]:
    """Every key and its value, rounded to six digits; None where nothing is measured.

    Args:
        post: of reference.post().
    """
    found: dict[str, Any] = {"runs": len(records), "auto.bound": auto_summary.BOUND}
    for device in DEVICES:
        for experiment in EXPERIMENTS:
            fitting = [
                record
                for record in headlines(list(records))
                if (record.device, record.experiment) == (device, experiment)
            ]
            best = max(fitting, key=lambda record: record.rank, default=None)
            known = dict.fromkeys(_fields(experiment)) | (of_run(best) if best else {})
            found |= {f"{device}.{experiment}.{k}": v for k, v in known.items()}
            found[f"{device}.{experiment}.runs"] = len(fitting)
    for record in records:
        place = f"{record.machine}/{record.model}/{record.experiment}/{record.size}"
        found |= {f"{place}.{key}": value for key, value in of_run(record).items()}
    return found | of_post(post)


def of_run(record: Record) -> dict[str, Any]:
    """Every field of one run, by key."""
    table = record.table
    costs = record.facts.get("costs", {})
    verify = costs.get("verify_ratio", {})
    figures = {
        "machine": record.machine_name,
        "model": record.model_name,
        "size": record.size,
        "date": record.date,
        "configurations": len(table),
        "pairs": len(record.rows),
        "lossless_pairs": record.lossless,
        "ties": record.ties,
        "prompts": int(table["prompts"].max()),
        "drift_percent": _times(record.facts.get("drift"), 100),
        "step_milliseconds": _times(costs.get("step_seconds"), 1000),
        "blas_threads": costs.get("blas_threads"),
        **{f"verify_ratio_{m}": verify.get(str(m)) for m in (2, 3, 4, 6)},
    }
    found = {key: plain(figures[key]) for key in RUN_FIELDS}
    if record.experiment != NAIVE_SWEEP:
        layerskip = record.experiment == LAYERSKIP
        ruled_too = record.experiment in (LAYERSKIP, FITTED)
        found |= of_drafts(layerskip_summary.fixed(table) if ruled_too else table)
        if layerskip:
            known = layerskip_values.of_layerskip(record.facts, record.rows, table)
            found |= {key: plain(value) for key, value in known.items()}
        if record.experiment == KNAPSACK:
            known = of_knapsack(record.facts, table)
            found |= {key: plain(value) for key, value in known.items()}
        if record.experiment == FITTED:
            known = of_fitted(record.facts, record.rows, table)
            found |= {key: plain(value) for key, value in known.items()}
        if record.experiment == MACHINE:
            known = machine_values.of_machine(record.facts)
            found |= {key: plain(value) for key, value in known.items()}
        return found | (of_auto(record) if record.experiment == AUTO else {})
    for mechanism, part in record.tables.items():
        figures = of_mechanism(part)
        found |= {f"{slug(mechanism)}.{k}": figures[k] for k in MECHANISM_FIELDS}
    return found


def of_drafts(table: pd.DataFrame) -> dict[str, Any]:
    """DRAFT_FIELDS of a run of drafts."""
    errors = prediction_error(table)
    found = {
        **_verdicts(table),
        "prediction_error_percent": 100 * errors.median(),
        "prediction_error_most_percent": 100 * errors.max(),
        "held_out_error_percent": 100
        * prediction_error(table, "predicted_held_out").median(),
    }
    for name, line in _ends(table):
        found |= {
            f"{name}_draft": line["draft"],
            f"{name}_speedup": line["speedup"],
            f"{name}_low": line["low"],
            f"{name}_high": line["high"],
            f"{name}_num_draft_tokens": _length(line),
            f"{name}_predicted": line["predicted_speedup"],
        }
    return {key: plain(found[key]) for key in DRAFT_FIELDS}


def of_auto(record: Record) -> dict[str, Any]:
    """AUTO_FIELDS: how the rule's promise fared, and what the rule was given."""
    table = record.table
    places = [
        auto_summary.promise(low, high)
        for low, high in zip(table["low"], table["high"], strict=True)
    ]
    policy = record.facts.get("policy", {})
    found = {
        "above_bound": places.count(auto_summary.KEPT),
        "covers_bound": places.count(auto_summary.OPEN),
        "below_bound": places.count(auto_summary.BROKEN),
        "lowest_low": table["low"].min(),
        "tokens": int(table["tokens"].min()),
        "budget_percent": _times(policy.get("budget"), 100),
        "allowance": policy.get("allowance"),
    }
    return {key: plain(found[key]) for key in AUTO_FIELDS}


def of_mechanism(table: pd.DataFrame) -> dict[str, Any]:
    """MECHANISM_FIELDS of one mechanism's table."""
    found = {"configurations": len(table), **_verdicts(table)}
    for name, line in _ends(table):
        found |= {
            f"{name}_speedup": line["speedup"],
            f"{name}_low": line["low"],
            f"{name}_high": line["high"],
            f"{name}_skip_percent": 100 * line["skip_fraction"],
            f"{name}_num_draft_tokens": int(line["num_draft_tokens"]),
            f"{name}_acceptance_percent": 100 * line["acceptance_rate"],
            f"{name}_predicted": line["predicted_speedup"],
        }
    return {key: plain(value) for key, value in found.items()}


def _verdicts(table: pd.DataFrame) -> dict[str, int]:
    return {
        "faster": count(table, "faster"),
        "slower": count(table, "slower"),
        "no_difference": count(table, "no difference"),
    }


def _ends(table: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    return [("best", sweep_summary.best(table)), ("worst", sweep_summary.worst(table))]


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


def _length(line: pd.Series) -> int | str:
    length = line["num_draft_tokens"]
    return length if isinstance(length, str) else int(length)
