"""From a draft, which is a choice, to a drafter, which runs on a target.

drafter = bind(SkipDraft(mlp={3}), target)
"""

from selfspec.decoding.drafting import Drafter, Target
from selfspec.decoding.drafts import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
)
from selfspec.decoding.fallback import FallbackDrafter
from selfspec.decoding.lookup import LookupDrafter
from selfspec.decoding.model_draft import ModelDrafter
from selfspec.decoding.shortlist import Shortlist
from selfspec.decoding.skip import ExitDrafter, SkipDrafter


def drafts_in(draft) -> list:
    """The draft and those that it is made of."""
    match draft:
        case FallbackDraft():
            return [draft, *drafts_in(draft.first), *drafts_in(draft.second)]
        case ShortlistDraft():
            return [draft, *drafts_in(draft.draft)]
    return [draft]


def leaves_blocks_out(draft) -> bool:
    """Whether the target's own blocks are driven apart, which the self-test gates."""
    return any(isinstance(d, SkipDraft | ExitDraft) for d in drafts_in(draft))


def bind(draft, target: Target, draft_cache: list | None = None) -> Drafter:
    """Make a draft run on `target`.

    Args:
        draft_cache: entries that a caller keeps for a ModelDraft's own cache.

    Raises:
        TypeError: `draft` is not a draft.
        ValueError: the draft does not fit the model.
    """
    match draft:
        case SkipDraft():
            return SkipDrafter(draft, target)
        case ExitDraft():
            return ExitDrafter(draft, target)
        case ModelDraft():
            return ModelDrafter(draft, target, draft_cache)
        case LookupDraft():
            return LookupDrafter(draft, target)
        case FallbackDraft():
            return FallbackDrafter(
                bind(draft.first, target, draft_cache),
                bind(draft.second, target, draft_cache),
                target,
            )
        case ShortlistDraft():
            drafter = bind(draft.draft, target, draft_cache)
            shortlist = Shortlist(draft.tokens, drafter.model, target.vocab_size())
            drafter.model = shortlist.applied_to(drafter.model)
            drafter.shortlist = shortlist
            return drafter
    raise TypeError(
        f"draft must be a SkipDraft, ExitDraft, ModelDraft, LookupDraft, ShortlistDraft "
        f"or FallbackDraft, got {type(draft).__name__}"
    )
