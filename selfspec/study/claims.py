"""What the two texts claim, and whether this study's results agree: by rule, not by hand.

The claims, with their figures, are rows of results/reference/claims.csv. What was
measured comes from claims_post.py and claims_exits.py, a function a claim, each given
the same `Evidence`. The verdict follows from the two by the rule that the row names:

    every       agrees if it holds each time, disagrees if an interval contradicts it
    direction   agrees if the whole interval lies on the claim's side of the line
    figure      agrees if the interval holds the figure, or ours is within a tenth of it
    share       the same for a share, which may lie five points off
    range       agrees if ours lies within the range

Where an interval is needed and covers the line, the answer is "undecided"; what nobody
has measured is "not yet measured". Needs no MLX.

    for judged in judge(root, latest(collect(root))):
        judged.claim.text, judged.verdict, judged.measured
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec.study import arms_table
from selfspec.study.arms_table import Arms
from selfspec.study.results import RESULTS
from selfspec.study.run_records import DEVICES, Record, headlines, of_experiment

FILE = Path(RESULTS) / "reference" / "claims.csv"
AGREES, DISAGREES, UNDECIDED = "agrees", "disagrees", "undecided"
NOT_MEASURED = "not yet measured"
A_TENTH, FIVE_POINTS = 0.1, 0.05
RULES = ("every", "direction", "figure", "share", "range")


@dataclass(frozen=True)
class Claim:
    """One row of the file; figure and figure_to are NaN where the rule needs none."""

    key: str
    source: str
    where: str
    text: str
    rule: str
    figure: float
    figure_to: float


@dataclass(frozen=True)
class Finding:
    """What was measured for a claim.

    Attributes:
        measured: in words, machine and all but the verdict.
        data: the file that it comes from, from the root.
        value, low, high: for the rules that compare with a figure or a line; NaN for an
            interval that there is not.
        holds, contradicted, cases: for "every": of so many cases it holds in these, and
            is contradicted beyond chance in those.
        below: the claim's side of the line is below it.
    """

    measured: str
    data: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    holds: int = 0
    contradicted: int = 0
    cases: int = 0
    below: bool = False


@dataclass(frozen=True)
class Judged:
    """A claim with what was found; `finding` is None where nothing was measured."""

    claim: Claim
    finding: Finding | None
    verdict: str


@dataclass(frozen=True)
class Evidence:
    """What the functions of the claims look at.

    A run on a Mac speaks before others, because that is what the claims are about; then
    the largest and latest.
    """

    records: Sequence[Record]
    arms: Arms | None

    def run(self, experiment: str, *, taught: bool | None = None) -> Record | None:
        """The run that speaks, or None.

        Args:
            taught: only runs of a model whose exits this project trained, or only others.
        """
        found = [
            record
            for record in headlines(of_experiment(self.records, experiment))
            if taught is None
            or bool(record.facts.get("subject", {}).get("trained")) == taught
        ]
        return max(found, key=lambda r: (r.device == "metal", r.rank), default=None)


def load(root: Path) -> list[Claim]:
    """The claims in the order of the file.

    Raises:
        ValueError: a rule that is not one of RULES.
    """
    table = pd.read_csv(root / FILE).rename(columns={"claim": "text"})
    claims = [Claim(**row) for row in table.to_dict("records")]
    for claim in claims:
        if claim.rule not in RULES:
            raise ValueError(f"{FILE}: {claim.key} has no rule of {', '.join(RULES)}")
    return claims


def judge(root: Path, records: Sequence[Record]) -> list[Judged]:
    """Every claim with its finding and its verdict."""
    from selfspec.study import claims_exits, claims_post

    known: Mapping[str, Any] = {**claims_post.FINDERS, **claims_exits.FINDERS}
    evidence = Evidence(records, arms_table.load(root))
    judged = []
    for claim in load(root):
        finding = known[claim.key](evidence)
        judged.append(Judged(claim, finding, verdict(claim, finding)))
    return judged


def verdict(claim: Claim, finding: Finding | None) -> str:
    """By the claim's rule, from the finding alone."""
    if finding is None:
        return NOT_MEASURED
    if claim.rule == "every":
        if finding.holds == finding.cases:
            return AGREES
        return DISAGREES if finding.contradicted else UNDECIDED
    if claim.rule == "direction":
        return _side(finding, claim.figure)
    if claim.rule == "range":
        inside = claim.figure <= finding.value <= claim.figure_to
        return AGREES if inside else DISAGREES
    if finding.low <= claim.figure <= finding.high:
        return AGREES
    slack = FIVE_POINTS if claim.rule == "share" else A_TENTH * abs(claim.figure)
    near = abs(finding.value - claim.figure) <= slack + 1e-12
    return AGREES if near else DISAGREES


def _side(finding: Finding, line: float) -> str:
    if not math.isfinite(finding.low):
        return UNDECIDED
    above, below = finding.low > line, finding.high < line
    if above or below:
        return AGREES if below == finding.below else DISAGREES
    return UNDECIDED


def where(record: Record) -> str:
    """'AMD EPYC (CPU), smollm2-135m': who measured, short enough for a cell."""
    device = DEVICES.get(record.device, record.device)
    return f"{record.facts['machine']['chip']} ({device}), {record.model_name}"


def data(record: Record) -> str:
    """The file that holds the run's rows."""
    return f"{RESULTS}/{record.machine}/{record.model}/{record.experiment}.csv"
