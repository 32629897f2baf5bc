"""The tokens of the study's shortlists: those most frequent in the calibration prompts.

ShortlistDraft(SkipDraft(), shortlist_tokens(loaded))
"""

import mlx.core as mx

from selfspec import models
from selfspec.decoding import frequent_tokens
from selfspec.study.prompt_set import load_prompts

SHORTLIST = 16384  # tokens, at most half of the vocabulary


def shortlist_tokens(loaded) -> tuple[int, ...]:
    """The tokens most frequent in the calibration prompts, then the first ones."""
    vocab_size = loaded.model(mx.array([[0]])).shape[-1]  # never run
    text = [
        token
        for prompt in load_prompts("calibration")
        for token in models.encode_text(loaded.tokenizer, prompt.text)
    ]
    return frequent_tokens(text, max(1, min(SHORTLIST, vocab_size // 2)), vocab_size)
