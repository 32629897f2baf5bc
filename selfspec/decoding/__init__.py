"""Self-speculative decoding: drafts, caches, acceptance rules, the loop of rounds.

drafts.py says what a draft is, rounds.py is the loop, acceptance.py the rules, stream.py
the public face. Knows token ids and models; text only in stream.py; no costs, no files.
"""

from selfspec.decoding.batch import generate_batch
from selfspec.decoding.bridge import Bridge
from selfspec.decoding.drafts import (
    AdapterDraft,
    DynamicExitDraft,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
    frequent_tokens,
)
from selfspec.decoding.policy import Choice, DraftPolicy, FixedLength
from selfspec.decoding.shorter_list import check_shorter_list, shorter_list_model
from selfspec.decoding.stream import Response, generate_step, stream_generate
from selfspec.decoding.trace import Round, Trace

__all__ = [
    "AdapterDraft",
    "Bridge",
    "Choice",
    "DraftPolicy",
    "DynamicExitDraft",
    "ExitDraft",
    "FallbackDraft",
    "FixedLength",
    "LookupDraft",
    "ModelDraft",
    "Response",
    "Round",
    "ShortlistDraft",
    "SkipDraft",
    "Trace",
    "check_shorter_list",
    "frequent_tokens",
    "generate_batch",
    "generate_step",
    "shorter_list_model",
    "stream_generate",
]
