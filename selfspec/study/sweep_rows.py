"""One timed pair as a row of naive-sweep.csv, its prediction beside its measurement.

measured(block, "one cache", num_draft_tokens=2, cost_ratio=0.7, verify_ratio={3: 1.1})
"""

import math
from collections.abc import Mapping
from typing import Any

from selfspec.study.paired import Block, Decoded
from selfspec.study.row_table import write_rounds
from selfspec.study.statistics import repeated_ngram_share

COLUMNS = (
    "size mechanism skip_fraction num_draft_tokens skipped_layers prompt_id domain repeat"
    " order baseline_tokens baseline_prefill_seconds baseline_decode_seconds"
    " baseline_decode_tokens baseline_peak_bytes tokens prefill_seconds decode_seconds"
    " decode_tokens peak_bytes speedup rounds drafted accepted first_drafted first_accepted"
    " drafted_accepted_per_round lossless ties repeated_ngram_share cost_ratio verify_ratio"
    " predicted_speedup blas_threads device"
).split()


def measured(
    block: Block,
    mechanism: str,
    *,
    num_draft_tokens: int,
    cost_ratio: float,
    verify_ratio: Mapping[int, float],
) -> dict[str, Any]:
    """What one block says of one mechanism, beside what the costs predict.

    Args:
        cost_ratio: c of this mechanism's draft, measured beforehand.
        verify_ratio: v by rows, measured beforehand; v(1) among them.
    """
    variant = block.decoded[mechanism]
    return {
        "mechanism": mechanism,
        "num_draft_tokens": num_draft_tokens,
        **timed(block, mechanism),
        "cost_ratio": number(cost_ratio),
        "verify_ratio": number(verify_ratio[num_draft_tokens + 1]),
        "predicted_speedup": number(
            predicted(variant, cost_ratio=cost_ratio, verify_ratio=verify_ratio)
        ),
    }


def timed(block: Block, arm: str) -> dict[str, Any]:
    """What one block says of one arm beside the baseline; nothing is predicted here."""
    base, variant = block.decoded["baseline"], block.decoded[arm]
    drafted = [(d, a) for d, a in variant.rounds if d > 0]
    return {
        "order": " > ".join(block.order),
        **{f"baseline_{name}": value for name, value in _figures(base).items()},
        **_figures(variant),
        "speedup": number(block.speedup(arm)),
        "rounds": len(variant.rounds),
        "drafted": sum(d for d, _ in drafted),
        "accepted": sum(a for _, a in drafted),
        "first_drafted": len(drafted),
        "first_accepted": sum(a > 0 for _, a in drafted),
        "drafted_accepted_per_round": write_rounds(variant.rounds),
        "repeated_ngram_share": number(repeated_ngram_share(variant.tokens)),
    }


def predicted(
    decoded: Decoded, *, cost_ratio: float, verify_ratio: Mapping[int, float]
) -> float:
    """S that the identity gives for the timed rounds (all but the first), with o = 0.

    The sums of the identity: tokens emitted over the sum of c*D + v(D + 1), so that a
    last round cut short by the token limit counts what it drafted and emitted. NaN when
    no round was timed.
    """
    timed = decoded.rounds[1:]
    if not timed:
        return float("nan")
    cost = sum(cost_ratio * drafted + verify_ratio[drafted + 1] for drafted, _ in timed)
    return decoded.decode_tokens / cost


def _figures(decoded: Decoded) -> dict[str, Any]:
    return {
        "tokens": len(decoded.tokens),
        "prefill_seconds": number(decoded.prefill_seconds),
        "decode_seconds": number(decoded.decode_seconds),
        "decode_tokens": decoded.decode_tokens,
        "peak_bytes": decoded.peak_bytes,
    }


def number(value: float) -> float | str:
    """Six digits; an empty cell where nothing could be timed."""
    return "" if math.isnan(value) else float(f"{value:.6g}")
