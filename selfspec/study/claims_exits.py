"""What this study measured for each claim of the LayerSkip paper. Needs no MLX.

FINDERS["ls-reuse"](evidence).holds

Exits are compared at the same share of the depth, with the draft length nearest to the
paper's.
"""

from collections.abc import Callable, Mapping

import pandas as pd

from selfspec.study import arms_table, draft_summary, layerskip_summary, methods
from selfspec.study.arms_table import BASELINE, TAUGHT, Arms
from selfspec.study.claims import Evidence, Finding, data, where
from selfspec.study.claims_post import interval, spread
from selfspec.study.experiments import LAYERSKIP, MACHINE
from selfspec.study.layerskip_words import DYNAMIC, SMALL_MODEL
from selfspec.study.statistics import median_difference

PAPERS_LENGTH = 8  # draft tokens of its table 6

Finder = Callable[[Evidence], Finding | None]


# Speed and acceptance of taught exits


def _best(evidence: Evidence) -> Finding | None:
    record = evidence.run(LAYERSKIP, taught=True)
    if record is None:
        return None
    line = layerskip_summary.best(record.table)
    return _line(record, line)


def _code(evidence: Evidence) -> Finding | None:
    """Of a published checkpoint on the study's prompts; this project's parses no code."""
    if (record := evidence.run(LAYERSKIP, taught=False)) is None:
        return None
    rows = record.rows[record.rows["domain"] == "code"]
    if rows.empty:
        return None
    return _line(record, layerskip_summary.best(draft_summary.summarise(rows)))


def _at_depth(share: float, *, rate: bool = False, device: str = "") -> Finder:
    def find(evidence: Evidence) -> Finding | None:
        record = evidence.run(LAYERSKIP, taught=True)
        if record is None or (device and record.device != device):
            return None
        table = layerskip_summary.exits(record.table)
        layer = round(share * record.facts["subject"]["layers"])
        table = table[table["exit_layer"] == layer]
        if table.empty:
            return None
        off = (table["num_draft_tokens"].astype(int) - PAPERS_LENGTH).abs()
        line = table.loc[off.idxmin()]
        return _line(record, line, rate=rate)

    return find


def _line(record, line: pd.Series, *, rate: bool = False) -> Finding:
    how = (
        f"with {line['draft']} of {record.facts['subject']['layers']} layers and "
        f"{int(line['num_draft_tokens'])} draft tokens ({where(record)})"
    )
    if rate:
        accepted = line["acceptance_rate"]
        return Finding(f"{accepted:.1%} {how}", data(record), value=accepted)
    return Finding(
        f"{line['speedup']:.2f}{spread(line)} {how}",
        data(record),
        value=line["speedup"],
        low=line["low"],
        high=line["high"],
    )


def _by_depth(column: str, *, rises: bool) -> Finder:
    """Steps from one exit to the next, at each draft length."""

    def find(evidence: Evidence) -> Finding | None:
        record = evidence.run(LAYERSKIP, taught=True)
        if record is None:
            return None
        table = layerskip_summary.exits(record.table).sort_values("exit_layer")
        holds = contradicted = cases = 0
        for _, part in table.groupby("num_draft_tokens"):
            lines = part.to_dict("records")
            for first, then in zip(lines, lines[1:], strict=False):
                up = then[column] > first[column]
                cases += 1
                holds += up == rises
                contradicted += up != rises and _apart(column, first, then)
        if not cases:
            return None
        return Finding(
            f"so in {holds} of {cases} steps to the next exit, and clearly not in "
            f"{contradicted} ({where(record)})",
            data(record),
            holds=holds,
            contradicted=contradicted,
            cases=cases,
        )

    return find


def _apart(column: str, first: dict, then: dict) -> bool:
    """Whether two lines differ beyond their intervals; a rate has none and just differs."""
    if column != "speedup":
        return first[column] != then[column]
    return first["low"] > then["high"] or then["low"] > first["high"]


# What holds for any exit


def _lossless(evidence: Evidence) -> Finding | None:
    record = evidence.run(LAYERSKIP, taught=True)
    if record is None:
        return None
    counted = layerskip_summary.counted(record.facts)
    texts = int(counted["texts"].sum()) + record.judged
    same = int(counted["lossless"].sum()) + record.lossless
    return Finding(
        f"{same} of {texts} texts, {record.ties + int(counted['ties'].sum())} ties "
        f"among them ({where(record)})",
        data(record),
        holds=same,
        contradicted=texts - same,
        cases=texts,
    )


def _reuse(evidence: Evidence) -> Finding | None:
    record = evidence.run(LAYERSKIP, taught=True)
    found = None if record is None else layerskip_summary.reuse(record.rows)
    if record is None or found is None or found.empty:
        return None
    least, most = found["ratio"].min(), found["ratio"].max()
    return Finding(
        f"{least:.2f} to {most:.2f} times the speed of running them again, in "
        f"{len(found)} cases ({where(record)})",
        data(record),
        holds=int((found["verdict"] == "faster").sum()),
        contradicted=int((found["verdict"] == "slower").sum()),
        cases=len(found),
    )


def _untrained(evidence: Evidence) -> Finding | None:
    record = evidence.run(MACHINE)
    if record is None:
        return None
    table = methods.labelled(record)
    table = table[table["method"] == "exit"]
    if table.empty:
        return None
    line = table.loc[table["speedup"].idxmax()]
    return Finding(
        f"the best exit of a stock model, {line['draft']}, runs at "
        f"{line['speedup']:.2f}{spread(line)} ({where(record)})",
        data(record),
        value=line["speedup"],
        low=line["low"],
        high=line["high"],
        below=True,
    )


def _layers_needed(evidence: Evidence) -> Finding | None:
    record = evidence.run(LAYERSKIP)
    if record is None:
        return None
    layers, mean = record.facts["subject"]["layers"], record.facts["depths"]["mean"]
    return Finding(
        f"{mean:.1f} of {layers} layers, {mean / layers:.0%} ({where(record)})",
        data(record),
        value=mean / layers,
    )


# What stands beside the exits


def _two_models(evidence: Evidence) -> Finding | None:
    return _beside(evidence, lambda t: t["draft"] == SMALL_MODEL, "a small model")


def _beside(evidence: Evidence, which, words: str) -> Finding | None:
    """The best exit's S over another draft's, prompt by prompt."""
    record = evidence.run(LAYERSKIP, taught=True)
    if record is None:
        return None
    fixed = layerskip_summary.fixed(record.table)
    others = fixed[which(fixed)]
    if others.empty:
        return None
    own, other = (
        layerskip_summary.best(record.table),
        others.loc[others["speedup"].idxmax()],
    )
    ratio = _by_prompt(record, own, "speedup") / _by_prompt(record, other, "speedup")
    found = median_difference(ratio.dropna())
    return Finding(
        f"{own['speedup']:.2f} against {other['speedup']:.2f} with {words}, a ratio of "
        f"{found.value:.2f}{interval(found.low, found.high, 2)} ({where(record)})",
        data(record),
        value=found.value,
        low=found.low,
        high=found.high,
    )


def _by_prompt(record, line, column: str) -> pd.Series:
    rows = record.rows
    own = rows[
        (rows["draft"] == line["draft"])
        & (rows["num_draft_tokens"] == line["num_draft_tokens"])
        & (rows["temperature"].fillna(0) == line["temperature"])
    ]
    return own.groupby("prompt_id")[column].mean()


def _memory(evidence: Evidence) -> Finding | None:
    record = evidence.run(LAYERSKIP, taught=True)
    memory = {} if record is None else record.facts["memory"]
    if record is None or "two models" not in memory:
        return None
    ratio = memory["exit"] / memory["two models"]
    return Finding(
        f"{ratio:.2f} times the peak of the two models ({where(record)})",
        data(record),
        value=ratio,
        low=ratio,  # one peak, no spread: it decides
        high=ratio,
        below=True,
    )


def _dynamic(evidence: Evidence) -> Finding | None:
    """Acceptance of the best such draft less the best fixed exit's of that length."""
    record = evidence.run(LAYERSKIP, taught=True)
    if record is None:
        return None
    table = layerskip_summary.fixed(record.table)
    moving = table[table["draft"].str.startswith(DYNAMIC)]
    if moving.empty:
        return None
    own = moving.loc[moving["acceptance_rate"].idxmax()]
    plain = layerskip_summary.exits(record.table)
    plain = plain[plain["num_draft_tokens"] == own["num_draft_tokens"]]
    if plain.empty:
        return None
    other = plain.loc[plain["speedup"].idxmax()]
    rates = [
        _by_prompt(record, line, "accepted") / _by_prompt(record, line, "drafted")
        for line in (own, other)
    ]
    found = median_difference((rates[0] - rates[1]).dropna())
    return Finding(
        f"{own['acceptance_rate']:.1%} against {other['acceptance_rate']:.1%} of the "
        f"fastest fixed exit, {100 * found.value:.1f} points"
        f"{interval(100 * found.low, 100 * found.high, 1)} ({where(record)})",
        data(record),
        value=found.value,
        low=found.low,
        high=found.high,
    )


# What the training did


def _half(arms: Arms, table: pd.DataFrame) -> pd.Series:
    return table[table["exit_layer"] == arms.num_layers // 2].iloc[0]


def _lead(arm: str, over: str, *, last: bool = False) -> Finder:
    """Exact match of one arm less another's, at half the depth or at the last layer."""

    def find(evidence: Evidence) -> Finding | None:
        arms = evidence.arms
        table = pd.DataFrame() if arms is None else arms_table.lead(arms, arm, over)
        if arms is None or table.empty:
            return None
        line = table.iloc[-1] if last else _half(arms, table)
        points = f"{100 * line['lead']:+.1f} points"
        return Finding(
            f"{points}{interval(100 * line['low'], 100 * line['high'], 1)} after layer "
            f"{int(line['exit_layer'])}, {int(line['seeds'])} seeds, {arm} less {over}",
            _exits_file(arms),
            value=line["lead"],
            low=line["low"],
            high=line["high"],
        )

    return find


def _untaught_half(evidence: Evidence) -> Finding | None:
    arms = evidence.arms
    if arms is None:
        return None
    table = arms_table.by_exit(arms)
    line = _half(arms, table[table["arm"] == BASELINE])
    return Finding(
        f"{line['exact_match']:.1%} exact match after layer {int(line['exit_layer'])} "
        f"({line['exact_match_low']:.1%} to {line['exact_match_high']:.1%} over "
        f"{int(line['seeds'])} seeds)",
        _exits_file(arms),
        value=line["exact_match"],
    )


def _middle_worsens(evidence: Evidence) -> Finding | None:
    """Perplexity at half the depth, last step over first; the range over seeds judges."""
    arms = evidence.arms
    if arms is None:
        return None
    own = arms.exits
    own = own[(own["arm"] == BASELINE) & (own["exit_layer"] == arms.num_layers // 2)]
    if own["step"].nunique() < 2:
        return None
    by_step = own.pivot_table(index="seed", columns="step", values="perplexity")
    ratio = by_step[by_step.columns[-1]] / by_step[by_step.columns[0]]
    return Finding(
        f"times {ratio.median():.2f} from step {by_step.columns[0]} to "
        f"{by_step.columns[-1]} ({ratio.min():.2f} to {ratio.max():.2f} over "
        f"{len(ratio)} seeds)",
        _exits_file(arms),
        value=ratio.median(),
        low=ratio.min(),
        high=ratio.max(),
    )


def _overhead(evidence: Evidence) -> Finding | None:
    arms = evidence.arms
    table = pd.DataFrame() if arms is None else arms_table.overhead(arms)
    if arms is None or table.empty or TAUGHT not in set(table["arm"]):
        return None
    line = table[table["arm"] == TAUGHT].iloc[0]
    return Finding(
        f"{line['seconds']:.2f} times the seconds ({line['seconds_low']:.2f} to "
        f"{line['seconds_high']:.2f} over {int(line['seeds'])} seeds)",
        (arms.folder / arms_table.TRAINING).as_posix(),
        value=line["seconds"],
        low=line["seconds_low"],
        high=line["seconds_high"],
    )


def _exits_file(arms: Arms) -> str:
    return (arms.folder / arms_table.EXITS).as_posix()


FINDERS: Mapping[str, Finder] = {
    "ls-best-speedup": _best,
    "ls-code-speedup": _code,
    "ls-quarter-speedup": _at_depth(0.25),
    "ls-half-speedup": _at_depth(0.5),
    "ls-late-speedup": _at_depth(0.75),
    "ls-cpu-speedup": _at_depth(0.25, device="cpu"),
    "ls-quarter-acceptance": _at_depth(0.25, rate=True),
    "ls-half-acceptance": _at_depth(0.5, rate=True),
    "ls-late-acceptance": _at_depth(0.75, rate=True),
    "ls-later-exits-accept": _by_depth("acceptance_rate", rises=True),
    "ls-earlier-exits-faster": _by_depth("speedup", rises=False),
    "ls-lossless": _lossless,
    "ls-reuse": _reuse,
    "ls-untrained": _untrained,
    "ls-layers-needed": _layers_needed,
    "ls-untrained-exit": _untaught_half,
    "ls-training-helps": _lead(TAUGHT, BASELINE),
    "ls-last-layer": _lead(TAUGHT, BASELINE, last=True),
    "ls-both-parts": _lead(TAUGHT, "ee"),
    "ls-dropout-alone": _lead("ee", "ld"),
    "ls-middle-worsens": _middle_worsens,
    "ls-exponential": _lead("ld", "constant-ld", last=True),
    "ls-overhead": _overhead,
    "ls-two-models": _two_models,
    "ls-memory": _memory,
    "ls-dynamic": _dynamic,
}
