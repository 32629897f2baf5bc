"""From a draft, which is a choice, to a drafter, which runs on a target.

drafter = bind(SkipDraft(mlp={3}), target)
"""

from selfspec.decoding import self_test
from selfspec.decoding.adapter import AdapterDrafter
from selfspec.decoding.drafting import Drafter, Target
from selfspec.decoding.drafts import (
    AdapterDraft,
    DynamicExitDraft,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
)
from selfspec.decoding.dynamic_exit import DynamicExitDrafter
from selfspec.decoding.fallback import FallbackDrafter
from selfspec.decoding.lookup import LookupDrafter
from selfspec.decoding.model_draft import ModelDrafter
from selfspec.decoding.shortlist import Shortlist
from selfspec.decoding.skip import ExitDrafter, SkipDrafter
from selfspec.models.blocks import find_stack


def bind(draft, target: Target, draft_cache: list | None = None) -> Drafter:
    """Make a draft run on `target`.

    Args:
        draft_cache: entries that a caller keeps for a ModelDraft's own cache.

    Raises:
        TypeError: `draft` is not a draft.
        ValueError: the draft does not fit the model.
        UnsupportedModelError: the model cannot be driven block by block.
    """
    of_the_target = isinstance(
        draft, SkipDraft | ExitDraft | AdapterDraft | DynamicExitDraft
    )
    if of_the_target and target.stack is None:
        self_test.check(target.model)
        target.stack = find_stack(target.model)
    match draft:
        case SkipDraft():
            return SkipDrafter(draft, target)
        case ExitDraft():
            return ExitDrafter(draft, target)
        case AdapterDraft():
            return AdapterDrafter(draft, target)
        case DynamicExitDraft():
            return DynamicExitDrafter(draft, target)
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
        "draft must be a SkipDraft, ExitDraft, AdapterDraft, DynamicExitDraft, "
        "ModelDraft, LookupDraft, ShortlistDraft or FallbackDraft, got "
        f"{type(draft).__name__}"
    )
