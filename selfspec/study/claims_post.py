"""What this study measured for each claim of the naive post. Needs no MLX.

FINDERS["post-all-lose"](evidence).holds
"""

import math
from collections.abc import Callable, Mapping

import pandas as pd

from selfspec.study import knapsack_values, methods, sweep_summary
from selfspec.study.claims import Evidence, Finding, data, where
from selfspec.study.experiments import KNAPSACK, MACHINE, NAIVE_SWEEP
from selfspec.study.run_records import Record, count, headlines, of_experiment
from selfspec.study.statistics import median_difference
from selfspec.study.sweep_summary import MECHANISMS


def _sweep(evidence: Evidence) -> tuple[Record, pd.DataFrame] | None:
    """The sweep that speaks, and its configurations with the post's mechanism."""
    record = evidence.run(NAIVE_SWEEP)
    if record is None or MECHANISMS[0] not in record.tables:
        return None
    return record, record.tables[MECHANISMS[0]]


def _all_lose(evidence: Evidence) -> Finding | None:
    if (record := evidence.run(NAIVE_SWEEP)) is None:
        return None
    table = record.table
    return Finding(
        f"{count(table, 'slower')} of {len(table)} are slower, "
        f"{count(table, 'faster')} faster ({where(record)})",
        data(record),
        holds=count(table, "slower"),
        contradicted=count(table, "faster"),
        cases=len(table),
    )


def _speed(pick) -> Callable[[Evidence], Finding | None]:
    def find(evidence: Evidence) -> Finding | None:
        if (found := _sweep(evidence)) is None:
            return None
        record, table = found
        line = pick(table)
        return Finding(
            f"{line['speedup']:.2f}{spread(line)} with two caches, "
            f"{line['skip_fraction']:.0%} skipped and {int(line['num_draft_tokens'])} "
            f"draft tokens ({where(record)})",
            data(record),
            value=line["speedup"],
            low=line["low"],
            high=line["high"],
        )

    return find


def _typical(evidence: Evidence) -> Finding | None:
    if (found := _sweep(evidence)) is None:
        return None
    record, table = found
    middle = float(table["speedup"].median())
    return Finding(
        f"the median configuration runs at {middle:.2f} times the plain speed, "
        f"{1 / middle:.1f} times slower ({where(record)})",
        data(record),
        value=middle,
    )


def _lossless(evidence: Evidence) -> Finding | None:
    if (record := evidence.run(NAIVE_SWEEP)) is None:
        return None
    return Finding(
        f"{record.lossless} of {record.judged} pairs, {record.ties} ties among them "
        f"({where(record)})",
        data(record),
        holds=record.lossless,
        contradicted=record.judged - record.lossless,
        cases=record.judged,
    )


def _acceptance(least: bool) -> Callable[[Evidence], Finding | None]:
    """Of the draft that skips least with the shortest draft, or most with the longest."""

    def find(evidence: Evidence) -> Finding | None:
        if (found := _sweep(evidence)) is None:
            return None
        record, table = found
        ordered = table.sort_values(["skip_fraction", "num_draft_tokens"])
        line = ordered.iloc[0 if least else -1]
        return Finding(
            f"{line['acceptance_rate']:.1%} at {line['skip_fraction']:.0%} skipped and "
            f"{int(line['num_draft_tokens'])} draft tokens ({where(record)})",
            data(record),
            value=line["acceptance_rate"],
        )

    return find


def _acceptance_falls(evidence: Evidence) -> Finding | None:
    if (found := _sweep(evidence)) is None:
        return None
    record, table = found
    steps = []
    for _, part in table.sort_values("skip_fraction").groupby("num_draft_tokens"):
        steps += list(part["acceptance_rate"].diff().dropna())
    if not steps:
        return None
    falls = sum(step < 0 for step in steps)
    return Finding(
        f"it falls in {falls} of {len(steps)} steps to a larger share "
        f"({where(record)})",
        data(record),
        holds=falls,
        contradicted=len(steps) - falls,
        cases=len(steps),
    )


def _best_skips_least(evidence: Evidence) -> Finding | None:
    if (record := evidence.run(NAIVE_SWEEP)) is None:
        return None
    tables = record.tables
    bests = {name: sweep_summary.best(table) for name, table in tables.items()}
    holds = [
        line["skip_fraction"] == tables[name]["skip_fraction"].min()
        for name, line in bests.items()
    ]
    words = ", ".join(f"{n} {b['skip_fraction']:.0%}" for n, b in bests.items())
    return Finding(
        f"the best skips: {words} ({where(record)})",
        data(record),
        holds=sum(holds),
        contradicted=len(holds) - sum(holds),
        cases=len(holds),
    )


def _second_model(evidence: Evidence) -> Finding | None:
    """Whether every model of the sweep loses; None below two of them on one machine."""
    first = evidence.run(NAIVE_SWEEP)
    sweeps = headlines(of_experiment(evidence.records, NAIVE_SWEEP))
    same = [r for r in sweeps if first and r.machine == first.machine]
    if len(same) < 2 or first is None:
        return None
    tables = [record.table for record in same]
    lose = [count(table, "slower") == len(table) for table in tables]
    win = [count(table, "faster") > 0 for table in tables]
    return Finding(
        f"{sum(lose)} of {len(same)} models lose in every configuration "
        f"({first.machine_name})",
        data(next(record for record in same if record is not first)),
        holds=sum(lose),
        contradicted=sum(win),
        cases=len(same),
    )


def _never_clears(evidence: Evidence) -> Finding | None:
    if (record := evidence.run(NAIVE_SWEEP)) is None:
        return None
    table = record.table
    above = int((table["acceptance_rate"] > table["cost_ratio"]).sum())
    return Finding(
        f"{above} of {len(table)} configurations have an acceptance rate above their "
        f"cost ratio ({where(record)})",
        data(record),
        holds=len(table) - above,
        contradicted=above,
        cases=len(table),
    )


def _truncation(evidence: Evidence) -> Finding | None:
    """Acceptance of the middle less that of the exit, both half the depth, by prompt."""
    record = evidence.run(MACHINE)
    if record is None:
        return None
    layers = int(record.facts["model"]["num_layers"])
    middle, tail = "skip 50 %", f"exit {layers // 2}"
    rows = record.rows[record.rows["draft"].isin([middle, tail])]
    lengths = rows.groupby("draft")["num_draft_tokens"].unique()
    if len(lengths) < 2:
        return None
    shared = sorted(set(lengths[middle]) & set(lengths[tail]), key=str)
    if not shared:
        return None
    rows = rows[rows["num_draft_tokens"] == shared[0]]
    sums = rows.groupby(["prompt_id", "draft"])[["accepted", "drafted"]].sum()
    rates = (sums["accepted"] / sums["drafted"]).unstack().dropna()
    found = median_difference(rates[middle] - rates[tail])
    both = rows.groupby("draft")[["accepted", "drafted"]].sum()
    rate = both["accepted"] / both["drafted"]
    return Finding(
        f"{rate[middle]:.1%} against {rate[tail]:.1%} accepted with {shared[0]} draft "
        f"tokens, a difference of {100 * found.value:.1f} points"
        f"{interval(100 * found.low, 100 * found.high, 1)} ({where(record)})",
        data(record),
        value=found.value,
        low=found.low,
        high=found.high,
    )


def _memory(evidence: Evidence) -> Finding | None:
    if (found := _sweep(evidence)) is None:
        return None
    record, table = found
    most = float(table["peak_memory_ratio"].max())
    return Finding(
        f"at most {most:.3f} times the peak of plain decoding ({where(record)})",
        data(record),
        value=most,
    )


def _bandwidth(evidence: Evidence) -> Finding | None:
    from selfspec.study.machine_values import of_machine

    if (record := evidence.run(MACHINE)) is None:
        return None
    percent = of_machine(record.facts)["bandwidth_percent"]
    if percent is None:
        return None
    reached = percent / 100
    return Finding(
        f"a step reads weights at {reached:.2f} times the speed at which a copy moves "
        f"memory ({where(record)})",
        data(record),
        value=min(reached, 1.0),
    )


def _one_pass(evidence: Evidence) -> Finding | None:
    if (record := evidence.run(NAIVE_SWEEP)) is None:
        return None
    known = {int(m): v for m, v in record.facts["costs"]["verify_ratio"].items()}
    rows = max(known, default=1)
    if rows < 2:
        return None
    return Finding(
        f"a pass over {rows} rows costs {known[rows]:.2f} plain steps ({where(record)})",
        data(record),
        value=known[rows],
    )


def _reproduces(evidence: Evidence) -> Finding | None:
    """Over every run of the sweep that judges its configurations; None below two."""
    judged = [
        record
        for record in of_experiment(evidence.records, NAIVE_SWEEP)
        if count(record.table, "too few prompts") < len(record.table)
    ]
    if len(judged) < 2:
        return None
    none = [count(record.table, "faster") == 0 for record in judged]
    return Finding(
        f"none is faster in {sum(none)} of {len(judged)} runs",
        data(judged[-1]),
        holds=sum(none),
        contradicted=len(none) - sum(none),
        cases=len(none),
    )


def _selection_helps(evidence: Evidence) -> Finding | None:
    """The margin over the middle where it is largest beyond chance, else the largest."""
    record = evidence.run(KNAPSACK)
    if record is None:
        return None
    known = [b for b in record.facts["budgets"] if b.get("low") is not None]
    if not known:
        return None
    line = max(known, key=lambda budget: budget["low"])
    sure = knapsack_values.of_knapsack(record.facts, record.table)["sure_budgets"]
    return Finding(
        f"{100 * line['margin']:.0f} points more tokens agree"
        f"{interval(100 * line['low'], 100 * line['high'], 0)} at "
        f"{line['budget']:.0%} left out ({line['selector']}); beyond chance at {sure} "
        f"of {len(record.facts['budgets'])} budgets ({where(record)})",
        data(record),
        value=line["margin"],
        low=line["low"],
        high=line["high"],
    )


def _selection_wins(evidence: Evidence) -> Finding | None:
    record = evidence.run(KNAPSACK)
    if record is None:
        return None
    table = methods.labelled(record)
    table = table[(table["method"] == "skip, chosen") & (table["temperature"] == 0)]
    if table.empty:
        return None
    line = sweep_summary.best(table)
    return Finding(
        f"the best chosen set, {line['draft']}, runs at {line['speedup']:.2f}"
        f"{spread(line)} ({where(record)})",
        data(record),
        value=line["speedup"],
        low=line["low"],
        high=line["high"],
    )


def _cosine(evidence: Evidence) -> Finding | None:
    if (record := evidence.run(KNAPSACK)) is None:
        return None
    proxy = record.facts["proxy"]
    if proxy.get("rank_correlation") is None:
        return None
    low, high = (
        math.nan if proxy[name] is None else proxy[name]
        for name in ("rank_correlation_low", "rank_correlation_high")
    )
    return Finding(
        f"rank correlation with agreement over {len(proxy['sets'])} sets: "
        f"{proxy['rank_correlation']:.2f}{interval(low, high, 2)} ({where(record)})",
        data(record),
        value=proxy["rank_correlation"],
        low=low,
        high=high,
    )


def spread(line) -> str:
    """' [0.71, 0.75]' of a line of a summary, or nothing."""
    return interval(line["low"], line["high"], 2)


def interval(low: float, high: float, digits: int) -> str:
    """' [0.71, 0.75]', or nothing where there is none."""
    if not math.isfinite(low):
        return ""
    return f" [{low:.{digits}f}, {high:.{digits}f}]"


FINDERS: Mapping[str, Callable[[Evidence], Finding | None]] = {
    "post-all-lose": _all_lose,
    "post-best-speedup": _speed(sweep_summary.best),
    "post-worst-speedup": _speed(sweep_summary.worst),
    "post-typical": _typical,
    "post-lossless": _lossless,
    "post-best-acceptance": _acceptance(least=True),
    "post-worst-acceptance": _acceptance(least=False),
    "post-acceptance-falls": _acceptance_falls,
    "post-best-skips-least": _best_skips_least,
    "post-second-model": _second_model,
    "post-never-clears": _never_clears,
    "post-truncation": _truncation,
    "post-no-memory": _memory,
    "post-bandwidth": _bandwidth,
    "post-one-pass": _one_pass,
    "post-reproduces": _reproduces,
    "post-selection-helps": _selection_helps,
    "post-selection-wins": _selection_wins,
    "post-cosine": _cosine,
}
