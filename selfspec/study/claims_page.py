"""The table of claims, as Markdown. Judged claims in, text out. Needs no MLX.

table(judge(root, latest(collect(root))))
"""

from collections import Counter
from collections.abc import Sequence

from selfspec.study import fragments
from selfspec.study.claims import (
    AGREES,
    DISAGREES,
    NOT_MEASURED,
    UNDECIDED,
    Judged,
)
from selfspec.study.markdown import literal

VERDICTS = (AGREES, DISAGREES, UNDECIDED, NOT_MEASURED)


def table(judged: Sequence[Judged]) -> str:
    """One row a claim, with its source, what was measured, the verdict and the data."""
    rows = []
    for one in judged:
        claim, finding = one.claim, one.finding
        rows.append(
            (
                literal(claim.text),
                f"{{cite:t}}`{claim.source}`, {claim.where}",
                literal(finding.measured) if finding else "-",
                claim.rule,
                f"**{one.verdict}**" if finding else one.verdict,
                f"{{download}}`CSV <../{finding.data}>`" if finding else "-",
            )
        )
    head = ("claim", "source", "what this study measured", "rule", "verdict", "data")
    return fragments.table(head, rows)


def summary(judged: Sequence[Judged]) -> str:
    """'Of 45 claims 11 agree with what was measured, ...'."""
    counts = Counter(one.verdict for one in judged)
    words = {
        AGREES: "agree with what was measured",
        DISAGREES: "disagree",
        UNDECIDED: "stay undecided, because an interval covers the line",
        NOT_MEASURED: "are not yet measured",
    }
    parts = [f"{counts[verdict]} {words[verdict]}" for verdict in VERDICTS]
    return f"Of {len(judged)} claims {', '.join(parts[:-1])}, and {parts[-1]}."
