"""Which blocks a knapsack keeps in a model with exits: is it still the first layers?

It has to save what the main exit saves, and is asked on prompts that are not evaluated.
Whole leading layers that it keeps are run once for draft and verification, as an exit's
are.

    label, draft, facts = choose(model, prompts, profile, exit_layer=3, num_tokens=32)
    facts["is_prefix"], facts["agreement"], facts["exit_agreement"]
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from selfspec.costs import CostProfile
from selfspec.decoding import SkipDraft
from selfspec.selection import SELECTORS, Problem, Scorer, items_of, make_windows
from selfspec.selection.items import saved_microseconds
from selfspec.study.layerskip_words import KNAPSACK


def choose(
    model,
    prompts: Sequence[Sequence[int]],
    profile: CostProfile,
    *,
    exit_layer: int,
    num_tokens: int,
    eos: Collection[int] = frozenset(),
) -> tuple[str, SkipDraft, dict[str, Any]]:
    """The knapsack's draft that saves at least what this exit saves.

    Args:
        prompts: token ids, of prompts that are not evaluated.
        num_tokens: of the target's own text after each of them.

    Returns:
        A label, the draft, and facts: those of `shape`, cost_ratio and agreement (of
        first tokens, on the windows), the same of the exit, windows and drafts scored.
    """
    windows = make_windows(model, prompts, num_tokens=num_tokens, eos=eos)
    context = round(mean(len(window.tokens) for window in windows))
    late = frozenset(range(exit_layer, profile.num_layers))
    exit_draft = SkipDraft(late, late)
    items = items_of(profile, context)
    wanted = saved_microseconds(items, exit_draft) / sum(i.microseconds for i in items)
    problem = Problem(
        Scorer(model, windows), profile, context=context, budgets=[min(1.0, wanted)]
    )
    frontier = SELECTORS["knapsack"](problem)
    limit = profile.cost_ratio(exit_draft, context)
    chosen = frontier.best_under(limit * (1 + 1e-3))  # whole microseconds round
    draft = keeping_rows(chosen.draft)
    facts = {
        **shape(draft, profile.num_layers),
        "cost_ratio": chosen.cost_ratio,
        "agreement": chosen.agreement,
        "exit_cost_ratio": limit,
        "exit_agreement": problem.agreement(exit_draft),
        "windows": len(windows),
        "evaluations": frontier.evaluations,
    }
    return f"{KNAPSACK}, {facts['left_out']} blocks left out", draft, facts


def shape(draft: SkipDraft, num_layers: int) -> dict[str, Any]:
    """What a skip set keeps, told against a plain exit.

    Returns:
        blocks (two a layer), left_out, kept_prefix (whole layers kept from the first
        one on), kept_after (blocks kept after those), is_prefix.
    """
    kept = 0
    while kept < num_layers and not {kept} & (draft.attention | draft.mlp):
        kept += 1
    left_out = len(draft.attention) + len(draft.mlp)
    after = 2 * num_layers - left_out - 2 * kept
    return {
        "blocks": 2 * num_layers,
        "left_out": left_out,
        "kept_prefix": kept,
        "kept_after": after,
        "is_prefix": after == 0 and left_out > 0,
    }


def keeping_rows(draft: SkipDraft) -> SkipDraft:
    """The same draft, which keeps the rows of its leading layers for verification."""
    return replace(draft, reuse_prefix=True)
