"""What a draft of any kind costs with one model: the arguments of DeclinePolicy.

Drafts that are parts of the target are predicted by the target's profile. A lookup runs
no pass of any model, so c is 0. Another model is timed, once in a process. Two drafts
in one count as the dearer of them, whichever proposes. Knows seconds and drafts, no
policy and no file.

    costs = costs_of_draft(draft, model, profile, context=512)
    policy = DeclinePolicy(draft, **costs)
"""

from collections.abc import Callable, Mapping
from typing import Any

from selfspec import blas
from selfspec.costs import timing
from selfspec.costs.profile import CostProfile
from selfspec.costs.profiling import longest_context
from selfspec.decoding.drafts import (
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
)
from selfspec.models import device
from selfspec.models.blocks import name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.remembered import Remembered

CONTEXT = 64  # tokens in the cache while a draft model is timed
CATCH_UP = 16  # rows of a pass in which a draft model reads what it missed

# draft model -> target -> what it cost, by what else that depends on
_timed = Remembered()


def costs_of_draft(
    draft,
    model,
    profile: CostProfile,
    context: int | None = None,
    *,
    told: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """c, v, o and what a draft of its own pays for text it missed, by name.

    Args:
        draft: any draft of `selfspec.decoding`.
        model: the target.
        profile: of the target on this machine.
        context: tokens in the cache; default, the profile's reference.
        told: called before anything is timed.

    Raises:
        ValueError: the draft does not fit the model.
        UnsupportedModelError: a draft model with too short a window to be timed.
    """
    match draft:
        case FallbackDraft():
            first, second = (
                costs_of_draft(part, model, profile, context, told=told)
                for part in (draft.first, draft.second)
            )
            return {name: _dearer(first[name], second[name]) for name in first}
        case LookupDraft():
            own = {"cost_ratio": 0.0, "catch_up_ratio": 0.0}
        case ModelDraft() | ShortlistDraft(draft=ModelDraft()):
            own = _model_costs(draft, model, told)
        case _:
            return {**profile.costs_of(draft, context), "catch_up_ratio": 0.0}
    return {
        **own,
        "verify_ratio": {
            rows: profile.verify_ratio(rows, context) for rows in profile.pass_seconds
        },
        "overhead_ratio": profile.overhead_ratio(context),
    }


def _model_costs(draft, model, told) -> dict[str, float]:
    """c of a draft with a model of its own, and of a token that it has missed."""
    whole = isinstance(draft, ModelDraft)
    other = draft.model if whole else draft.draft.model
    kept = _timed.setdefault(other, Remembered).setdefault(model, dict)
    depends = device.kind(), blas.threads(), None if whole else len(draft.tokens)
    if depends not in kept:
        told("measuring what a step of the draft model costs, a few seconds, once")
        length = min(CONTEXT, longest_context(model), longest_context(other))
        if length < 2:
            raise UnsupportedModelError(
                f"draft model {name_of(other)}: its window is too short to time a step. "
                "Way out: a fixed num_draft_tokens"
            )
        context = [1 + i % 2 for i in range(length)]
        # a model of its own is timed with a cache of its own
        timed = timing.measure(
            model, context=context, drafts={"draft": other if whole else draft}
        )
        reading = timing.measure(other, context=context, rows=(CATCH_UP,))
        cost_ratio = timed.cost_ratio["draft"]
        kept[depends] = {
            "cost_ratio": cost_ratio,
            "catch_up_ratio": cost_ratio * reading.verify_ratio[CATCH_UP] / CATCH_UP,
        }
    return kept[depends]


def _dearer(first, second):
    """The larger number, of every width if there is one for each."""
    if isinstance(first, Mapping):
        return {rows: max(first[rows], second[rows]) for rows in first}
    return max(first, second)
