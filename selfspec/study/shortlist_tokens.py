"""The tokens of the study's shortlists: those most frequent in the calibration prompts.

ShortlistDraft(SkipDraft(), shortlist_tokens(loaded))
ShortlistDraft(SkipDraft(), most_frequent(loaded, 4096))
"""

import mlx.core as mx

from selfspec import models
from selfspec.decoding import frequent_tokens
from selfspec.study.prompt_set import load_prompts

SHORTLIST = 16384  # tokens, at most half of the vocabulary


def shortlist_tokens(loaded) -> tuple[int, ...]:
    """The tokens of the usual shortlist."""
    vocab_size = loaded.model(mx.array([[0]])).shape[-1]  # never run
    return most_frequent(loaded, max(1, min(SHORTLIST, vocab_size // 2)))


def most_frequent(loaded, size: int) -> tuple[int, ...]:
    """The tokens most frequent in the calibration prompts, then the first ones.

    Raises:
        ValueError: more of them than there are, or none.
    """
    vocab_size = loaded.model(mx.array([[0]])).shape[-1]  # never run
    text = [
        token
        for prompt in load_prompts("calibration")
        for token in models.encode_text(loaded.tokenizer, prompt.text)
    ]
    return frequent_tokens(text, size, vocab_size)
