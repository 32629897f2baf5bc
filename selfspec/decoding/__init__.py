"""Self-speculative decoding: drafts, caches, acceptance rules, the loop of rounds.

Knows token ids and models, never text (except stream.py), costs or files.
"""

from selfspec.decoding.drafts import SkipDraft
from selfspec.decoding.shorter_list import check_shorter_list, shorter_list_model

__all__ = ["SkipDraft", "check_shorter_list", "shorter_list_model"]
