"""Whether a model, and what it says, can be swept at all: found early, told in a line.

Knows models and prompts, not where results go.

    require_numbers(loaded, ids)               # NaN weights are no draft's fault
    require_room(loaded, {"chat-1": ids}, 80)  # a sliding window cannot roll back
    require_engine(loaded, skip_draft)         # caches that the engine refuses
    require_timed(rows)                        # texts that ended at once
"""

from collections.abc import Mapping, Sequence

import mlx.core as mx
import pandas as pd
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from selfspec import decoding
from selfspec.study.errors import StudyError


def require_numbers(loaded, ids: Sequence[int]) -> None:
    """Broken weights are no fault of a draft, so they are found before any is made."""
    if not mx.isfinite(loaded.model(mx.array([ids]))).all().item():
        raise StudyError(
            f"{loaded.source.name} computes infinite or undefined numbers (NaN), so it "
            "says nothing. Way out: fetch the model again, or another conversion of it"
        )


def require_room(loaded, prompts: Mapping[str, Sequence[int]], num_tokens: int) -> None:
    """Past a full sliding window nothing can be taken back, so nothing is drafted.

    Args:
        prompts: id -> token ids.
        num_tokens: the most that comes after a prompt, drafts included.
    """
    rings = [
        entry
        for entry in make_prompt_cache(loaded.model)
        if isinstance(entry, RotatingKVCache)
    ]
    window = min((ring.max_size for ring in rings), default=None)
    longest = max(prompts, key=lambda name: len(prompts[name]))
    needed = len(prompts[longest]) + num_tokens
    if window is not None and needed >= window:
        raise StudyError(
            f"{loaded.source.name} has layers that see the last {window} tokens only, "
            f"and prompt {longest} with its text needs {needed}: past a full window "
            "there is no speculation to time. Way out: shorter prompts of your own "
            "(--prompts FILE), or a smaller size"
        )


def require_engine(loaded, draft) -> None:
    """The engine's own self-test, before anything is measured.

    Raises:
        UnsupportedModelError: caches or blocks that the engine cannot handle.
    """
    steps = decoding.generate_step(
        [1, 2, 3], loaded.model, draft=draft, num_draft_tokens=1, max_tokens=2
    )
    next(steps)
    steps.close()


def require_timed(rows: pd.DataFrame) -> None:
    """A model that ends every text at once leaves nothing between tokens to time."""
    if rows["speedup"].isna().all():
        raise StudyError(
            f"nothing to time: every text ended within its first round (the longest has "
            f"{int(rows['tokens'].max())} tokens). Way out: prompts that ask for longer "
            "texts (--prompts FILE), or another model"
        )
