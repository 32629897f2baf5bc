"""Small grids and rows of made-up runs, for the tests of experiments with drafts."""

import pandas as pd

from selfspec.decoding import ExitDraft, LookupDraft, SkipDraft
from selfspec.study.draft_grid import Case, DraftGrid

SKIP = SkipDraft.middle(6, 0.5)


def one_case_grid(**changes) -> DraftGrid:
    """Skip half of six layers under the rule, on two prompts."""
    return grid(((Case("skip 50 %", SKIP, "auto"),),), **changes)


def mixed_grid(**changes) -> DraftGrid:
    """Two groups: a fixed length beside the rule, and a lookup beside an exit."""
    return grid(
        (
            (Case("skip 50 %", SKIP, 2), Case("skip 50 %", SKIP, "auto")),
            (Case("lookup", LookupDraft(), 4), Case("exit 3", ExitDraft(3), 2)),
        ),
        **changes,
    )


def grid(groups, **changes) -> DraftGrid:
    values = dict(
        groups=groups,
        num_prompts=2,
        num_tokens=20,
        calibration_prompts=1,
        calibration_tokens=12,
    )
    return DraftGrid(**{**values, **changes})


def rows(
    draft: str = "skip 10 %",
    length: int | str = "auto",
    speedups=(1.0, 1.01, 0.99, 1.02, 1.0, 1.01),
    **changes,
) -> pd.DataFrame:
    """Rows of one case, a prompt each, as they come back from disk."""
    return pd.DataFrame(
        [
            dict(
                run_id="r",
                size="default",
                draft=draft,
                num_draft_tokens=length,
                prompt_id=f"chat-{number}",
                domain=("chat", "code", "summary", "reasoning")[number % 4],
                repeat=0,
                order="baseline > draft",
                tokens=48,
                speedup=speedup,
                rounds=40,
                drafted=20,
                accepted=8,
                first_drafted=10,
                first_accepted=6,
                drafted_accepted_per_round="2:1",
                plain_tokens=30,
                lossless="equal",
                ties=0,
                repeated_ngram_share=0.1,
                cost_ratio=0.9,
                verify_ratio=float("nan") if length == "auto" else 1.2,
                overhead_ratio=0.01,
                predicted_speedup=speedup * 1.02,
                held_out_acceptance_rate=0.5,
                predicted_held_out=speedup * 0.95,
                peak_bytes=102,
                baseline_peak_bytes=100,
                device="cpu",
            )
            | changes
            for number, speedup in enumerate(speedups)
        ]
    )
