"""The drafts that a verdict tries: one list, a maker for every kind of draft.

A maker looks at a model and its costs and gives the best of its kind, or nothing where
the kind does not fit. A new kind of draft is one more maker in MAKERS.

    setting = Setting(loaded, profile, scorer)
    tried = promising(offers(setting))
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from selfspec.costs import CostProfile
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.selection import Plan, Problem, Scorer, draft_of, plan
from selfspec.selection.knapsack import solve
from selfspec.study.shortlist_tokens import shortlist_tokens
from selfspec.study.skip_set_words import in_words

LONGEST = 4  # tokens a round; verdicts are reached on short texts
LOOKUP_LENGTH = 3
BUDGETS = (0.05, 0.1, 0.2)  # shares of what can be skipped; more was never kept
EXITS = 6  # depths at which a model is left early, evenly apart
WORST = 0.9  # a draft that is predicted below this is not timed
MOST = 2  # drafts that are timed because of their prediction
DEPTH = 2  # draft positions that are scored


@dataclass(frozen=True)
class Setting:
    """What a maker may look at.

    Attributes:
        loaded: of `models.load`.
        profile: measured costs.
        scorer: windows of the model's own text, on calibration prompts.
    """

    loaded: Any
    profile: CostProfile
    scorer: Scorer


@dataclass(frozen=True)
class Offer:
    """One draft that may be timed.

    Attributes:
        label: in words: "lookup", "exit 4".
        draft: what drafts.
        num_draft_tokens: the length that is expected to be best.
        predicted: S expected; NaN where it can only be found out.
        code: how a program says it.
    """

    label: str
    draft: Any
    num_draft_tokens: int
    predicted: float
    code: str


def offers(setting: Setting) -> list[Offer]:
    """The best of every kind that fits the model."""
    return [offer for make in MAKERS if (offer := make(setting)) is not None]


def promising(offered: Sequence[Offer], most: int = MOST) -> list[Offer]:
    """Those that are worth timing: without a prediction, and the best predicted."""
    unknown = [offer for offer in offered if math.isnan(offer.predicted)]
    known = [offer for offer in offered if offer.predicted >= WORST]
    return [*unknown, *sorted(known, key=lambda o: -o.predicted)[:most]]


def lookup(setting: Setting) -> Offer:
    """Prompt lookup: free, so it is always tried."""
    return Offer(
        "lookup",
        LookupDraft(),
        LOOKUP_LENGTH,
        float("nan"),
        "selfspec.LookupDraft()",
    )


def shortlist(setting: Setting) -> Offer | None:
    """The whole model with a head for the tokens that are frequent."""
    tokens = shortlist_tokens(setting.loaded)
    best = _best([ShortlistDraft(SkipDraft(), tokens)], setting)
    code = "selfspec.ShortlistDraft(selfspec.SkipDraft(), tokens)"
    return best and _offer(f"shortlist {len(tokens)}", best, code)


def skip_set(setting: Setting) -> Offer | None:
    """The blocks that the knapsack leaves out."""
    problem = Problem(setting.scorer, setting.profile)
    blocks = problem.blocks
    sets = solve(
        [problem.loss([block]) for block in blocks],
        [block.microseconds for block in blocks],
        [round(budget * problem.total) for budget in BUDGETS],
    )
    found = [draft_of(blocks[i] for i in taken) for taken in sets if taken]
    best = _best(dict.fromkeys(found), setting)
    if best is None:
        return None
    chosen = best.draft
    parts = [
        f"{name}={{{', '.join(map(str, sorted(blocks)))}}}"
        for name, blocks in (("attention", chosen.attention), ("mlp", chosen.mlp))
        if blocks
    ]
    code = f"selfspec.SkipDraft({', '.join(parts)})"
    return _offer(f"skip {in_words(chosen)}", best, code)


def early_exit(setting: Setting) -> Offer | None:
    """The depth at which leaving early is worth most."""
    layers = setting.profile.num_layers
    depths = sorted({max(1, layers * i // (EXITS + 1)) for i in range(1, EXITS + 1)})
    best = _best([ExitDraft(depth) for depth in depths if depth < layers], setting)
    if best is None:
        return None
    depth = best.draft.exit_layer
    return _offer(f"exit {depth}", best, f"selfspec.ExitDraft({depth})")


MAKERS: tuple[Callable[[Setting], Offer | None], ...] = (
    lookup,
    shortlist,
    skip_set,
    early_exit,
)


def _offer(label: str, found: Plan, code: str) -> Offer:
    return Offer(label, found.draft, found.num_draft_tokens, found.speedup, code)


def _best(drafts: Iterable[Any], setting: Setting) -> Plan | None:
    """The draft that is expected to be worth most, at its best length."""
    plans = [_worth(draft, setting) for draft in drafts]
    return max(plans, key=lambda found: found.speedup, default=None)


def _worth(draft, setting: Setting) -> Plan:
    score = setting.scorer.score(draft, depth=DEPTH)
    told = [
        (share, count)
        for share, count in zip(score.agreement_at, score.counts_at, strict=True)
        if not math.isnan(share)  # a position that no round reached says nothing
    ]
    shares, counts = zip(*told, strict=True)
    return plan(draft, shares, counts, setting.profile, limit=LONGEST)
