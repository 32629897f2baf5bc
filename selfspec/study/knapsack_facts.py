"""Everything about the choice of blocks that needs no clock of pairs: scores and sets.

Windows of the target's own text, each block's importance, the frontier of every
selector, what its sets are worth on texts that it did not see, and which sets are then
timed. As dicts that JSON holds; the words for them are knapsack_page.py's.

    facts, chosen, pool = find_out(loaded, profile, size, shortlists)
    facts["frontiers"][0]["sets"][0]["held_out"]          # agreement by window
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from selfspec import models
from selfspec.costs import CostProfile
from selfspec.decoding import ShortlistDraft, SkipDraft
from selfspec.selection import (
    SELECTORS,
    Candidate,
    Frontier,
    Known,
    Problem,
    Scorer,
    choose,
    make_windows,
    overlap,
    plan,
)
from selfspec.selection.objective import Plan
from selfspec.study.knapsack_grid import KnapsackSize
from selfspec.study.prompt_set import load_prompts
from selfspec.study.set_statistics import holm, margin, rank_correlation, reliability
from selfspec.study.skip_set_words import in_words

DEPTH = 3  # draft positions at which chosen sets are scored
MIDDLE = "middle"
SKIP, SKIP_AND_HEAD = "skip {} ({})", "shortlist and skip {} ({})"
HEAD_ONLY = "shortlist {}"


def find_out(
    loaded,
    profile: CostProfile,
    size: KnapsackSize,
    shortlists: Mapping[int, tuple[int, ...]],
    *,
    told: Callable[[str], None] = lambda what: None,
) -> tuple[dict[str, Any], dict[str, Any], list[Known]]:
    """Facts, the drafts to time by label, most promising first, and what is known of each.

    Args:
        shortlists: size -> tokens that a head would still score.
        told: called with what comes next.

    Raises:
        UnsupportedModelError: the model cannot be drafted with.
    """
    told("reading windows of the target's own text")
    calibration = _scorer(loaded, "calibration", size, size.calibration_windows)
    # a set was made to look well where its selector looked, so others decide between sets
    choosing = calibration
    if size.choosing_windows:
        choosing = _scorer(
            loaded,
            "calibration",
            size,
            size.choosing_windows,
            after=size.calibration_windows,
        )
    evaluation = _scorer(loaded, "evaluation", size, size.evaluation_windows)
    if overlap([*calibration.windows, *choosing.windows], evaluation.windows):
        raise ValueError("a text is in both sets of windows, so none is held out")
    given = {"budgets": size.budgets, "shortlists": shortlists}
    problem = Problem(calibration, profile, **given)
    frontiers = []
    for name in size.selectors:
        told(f"selecting: {name}")
        # each its own, or the later ones would be told what the earlier ones paid for
        own = Problem(calibration, profile, **given)
        frontiers.append(SELECTORS[name](own, **_options(name, size)))
    told("scoring the sets on texts that no selector saw")
    offered = [
        candidate.draft
        for frontier in frontiers
        for candidate in _at_budgets(frontier, problem)
    ]
    middles = [_middle_at(budget, problem) for budget in size.budgets]
    for middle in filter(None, middles):
        dearest = problem.candidate(middle).cost_ratio
        offered += [f.best_under(dearest).draft for f in frontiers]
    scored = {
        draft: evaluation.score(draft)
        for draft in dict.fromkeys([*offered, *filter(None, middles)])
    }
    said = Problem(choosing, profile, **given).agreement
    budgets = [
        _budget(budget, frontiers, problem, scored, said) for budget in size.budgets
    ]
    for line, adjusted in zip(
        budgets, holm([line["p"] for line in budgets]), strict=True
    ):
        line["p_holm"] = adjusted
    plans = _plans(frontiers, problem, choosing, said, shortlists)
    chosen = {label: found.draft for label, found in plans.items()}
    facts = {
        "windows": {
            "calibration": {
                "texts": len(calibration.windows),
                "positions": calibration.num_positions,
            },
            "choosing": {
                "texts": len(choosing.windows),
                "positions": choosing.num_positions,
            },
            "evaluation": {
                "texts": len(evaluation.windows),
                "positions": evaluation.num_positions,
            },
            "tokens": size.window_tokens,
        },
        "importance": [
            {
                "kind": item.kind,
                "layer": item.index,
                "microseconds": item.microseconds,
                "loss": problem.loss([item]),
            }
            for item in problem.blocks
        ],
        "frontiers": [_frontier(frontier, problem, scored) for frontier in frontiers],
        "budgets": budgets,
        "proxy": proxy(evaluation, scored),
        "plans": [
            _plan(label, found, problem, choosing, evaluation)
            for label, found in plans.items()
        ],
        "declines": choose(plans.values()).draft is None,
    }
    pool = [_known(draft, choosing) for draft in chosen.values()]
    return facts, chosen, pool


def _known(draft, scorer: Scorer) -> Known:
    """What calibration says of a draft, for choosing again while decoding."""
    score = scorer.score(draft, depth=2)
    later = score.agreement_at[1]
    return Known(
        draft,
        score.agreement,
        score.agreement if math.isnan(later) else later,
        score.positions,
    )


def at_contexts(
    loaded, profile: CostProfile, drafts: Mapping[str, Any], size: KnapsackSize
) -> list[dict[str, Any]]:
    """Agreement and predicted S of the chosen drafts after longer texts.

    The texts are the committed prompts one after the other, with the target's own
    continuation at the end.
    """
    text = [
        token
        for prompt in load_prompts("evaluation")
        for token in models.encode_text(loaded.tokenizer, prompt.text)
    ]
    found = []
    for context in size.contexts:
        long = [(text * (1 + context // len(text)))[:context]]
        windows = make_windows(loaded.model, long, num_tokens=size.window_tokens)
        scorer = Scorer(loaded.model, windows)
        for label, draft in drafts.items():
            score = scorer.score(draft)
            planned = _worth(draft, score, profile, context)
            found.append(
                {
                    "draft": label,
                    "context": context,
                    "positions": score.positions,
                    "agreement": score.agreement,
                    "cost_ratio": profile.cost_ratio(draft, context),
                    "predicted": planned.speedup,
                    "num_draft_tokens": planned.num_draft_tokens,
                }
            )
    return found


def _scorer(
    loaded, which: str, size: KnapsackSize, count: int, after: int = 0
) -> Scorer:
    prompts = [
        models.render_prompt(loaded.tokenizer, prompt.text)
        for prompt in load_prompts(which, after + count)[after:]
    ]
    return Scorer(
        loaded.model,
        make_windows(loaded.model, prompts, num_tokens=size.window_tokens),
    )


def _options(name: str, size: KnapsackSize) -> dict[str, Any]:
    return {
        "search": {"trials": size.search_trials},
        "beam": {"width": size.beam_width},
    }.get(name, {})


def _at_budgets(frontier: Frontier, problem: Problem) -> list[Candidate]:
    """Of each budget the set that agrees most among those that save as much, with the
    whole head and with a part of it."""
    best = (
        _best_saving(frontier, budget, problem, head=head)
        for budget in problem.budgets
        for head in (False, True)
    )
    return [candidate for candidate in best if candidate is not None]


def _best_saving(
    frontier: Frontier, budget: float, problem: Problem, *, head: bool
) -> Candidate | None:
    """The set that agrees most of those that save a budget.

    Args:
        head: whether the head is cut down.
    """
    return max(
        (
            c
            for c in frontier.candidates
            if _saves(c, budget, problem)
            and isinstance(c.draft, ShortlistDraft) == head
        ),
        key=lambda c: (c.agreement, -c.cost_ratio),
        default=None,
    )


def _saves(candidate: Candidate, budget: float, problem: Problem) -> bool:
    return candidate.saved >= round(budget * problem.total)


def _middle_at(budget: float, problem: Problem) -> SkipDraft | None:
    """The post's set of the fewest layers that saves as much."""
    for draft in problem.middle_drafts():
        if _saves(problem.candidate(draft), budget, problem):
            return draft
    return None


def _budget(
    budget: float,
    frontiers: Sequence[Frontier],
    problem: Problem,
    scored: dict[Any, Any],
    said: Callable[[Any], float],
) -> dict[str, Any]:
    """The best set that costs no more than the middle at a budget, against the middle.

    Args:
        scored: on windows that nobody chose by.
        said: agreement on the windows that decide between the selectors' sets.
    """
    middle = _middle_at(budget, problem)
    nothing = {"budget": budget, "selector": "", "p": float("nan")}
    if middle is None:
        return nothing
    dearest = problem.candidate(middle).cost_ratio
    offers = {
        frontier.selector: max(
            (c for c in frontier.candidates if c.cost_ratio <= dearest),
            key=lambda c: (c.agreement, -c.cost_ratio),
            default=None,
        )
        for frontier in frontiers
        if frontier.selector != MIDDLE
    }
    known = {name: found for name, found in offers.items() if found is not None}
    if not known:
        return nothing
    name = max(known, key=lambda n: (said(known[n].draft), -known[n].cost_ratio))
    best = known[name]
    difference = margin(scored[best.draft].by_window(), scored[middle].by_window())
    return {
        "budget": budget,
        "selector": name,
        "draft": in_words(best.draft),
        "cost_ratio": best.cost_ratio,
        "calibration": said(best.draft),
        "held_out": scored[best.draft].agreement,
        "middle": in_words(middle),
        "middle_cost_ratio": problem.profile.cost_ratio(middle, problem.context),
        "middle_held_out": scored[middle].agreement,
        "margin": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
    }


def _frontier(frontier: Frontier, problem: Problem, scored) -> dict[str, Any]:
    """A selector's sets at the budgets, with both agreements."""
    sets = []
    for candidate in dict.fromkeys(_at_budgets(frontier, problem)):
        score = scored[candidate.draft]
        sets.append(
            {
                "draft": in_words(candidate.draft),
                "shortlist": len(getattr(candidate.draft, "tokens", ())),
                "cost_ratio": candidate.cost_ratio,
                "saved_share": candidate.saved / max(1, problem.total),
                "calibration": candidate.agreement,
                "held_out_agreement": score.agreement,
                "held_out": [float(share) for share in score.by_window()],
                "cosine": score.cosine_before_norm,
                "kl": score.kl,
            }
        )
    return {
        "selector": frontier.selector,
        "seconds": frontier.seconds,
        "evaluations": frontier.evaluations,
        "sets": sets,
    }


def proxy(scorer: Scorer, scored: Mapping[Any, Any]) -> dict[str, Any]:
    """What cosine similarity says about agreement: ranks, reliability, the lemma."""
    sets = list(scored.values())
    cosines = [c for score in sets for c in score.cosines]
    agreed = [a for score in sets for a in score.agreed]
    rho, low, high = rank_correlation(
        [score.cosine_before_norm for score in sets],
        [score.agreement for score in sets],
    )
    return {
        "sets": [
            {
                "draft": in_words(draft),
                "cosine": score.cosine_before_norm,
                "cosine_after_norm": score.cosine_after_norm,
                "agreement": score.agreement,
            }
            for draft, score in scored.items()
        ],
        "rank_correlation": rho,
        "rank_correlation_low": low,
        "rank_correlation_high": high,
        "reliability": reliability(cosines, agreed),
        "tokens": len(agreed),
        "lemma": lemma(scorer, [score.cosines_after_norm for score in sets]),
    }


def lemma(scorer: Scorer, cosines: Sequence[Sequence[float]]) -> dict[str, Any]:
    """For how many draft tokens the published lemma says anything.

    A draft's state keeps the token if its cosine to the target's is at least
    1 - margin^2 / (2 |x|^2 max |w_top - w_other|^2), for states x after the final norm
    and rows w of the head (KnapSpec, arXiv 2602.20217). Where a draft's cosine stays
    below that, the lemma is silent.

    Args:
        scorer: of the windows on which the drafts were scored.
        cosines: of each draft at every row, after the final norm.
    """
    asked = np.array(scorer.lemma_cosines())
    if not asked.size or not len(cosines):
        nothing = float("nan")
        return {"tokens": 0, "share": nothing, "median": nothing, "typical": nothing}
    found = np.array(cosines)  # (drafts, rows)
    return {
        "tokens": int(found.size),
        "share": float((found >= asked).mean()),
        "median": float(np.median(asked)),
        "typical": float(np.median(found)),
    }


def _plans(
    frontiers: Sequence[Frontier],
    problem: Problem,
    scorer: Scorer,
    said: Callable[[Any], float],
    shortlists: Mapping[int, tuple[int, ...]],
) -> dict[str, Plan]:
    """What is worth timing: sets at each budget, the middle, the head alone, and both.

    Args:
        scorer: of the windows that decide between sets.
        said: agreement on them.
    """
    drafts: dict[str, Any] = {}
    for budget in problem.budgets:
        for head, form in ((False, SKIP), (True, SKIP_AND_HEAD)):
            best_of = [
                (f.selector, _best_saving(f, budget, problem, head=head))
                for f in frontiers
                if f.selector != MIDDLE
            ]
            found = [(name, c) for name, c in best_of if c is not None]
            if not found:
                continue
            name, best = max(found, key=lambda f: (said(f[1].draft), -f[1].cost_ratio))
            if best.draft not in drafts.values():
                drafts[form.format(_percent(budget), name)] = best.draft
    middle = _middle_at(min(problem.budgets), problem)
    if middle is not None and middle not in drafts.values():
        drafts[SKIP.format(_percent(min(problem.budgets)), MIDDLE)] = middle
    for size, tokens in shortlists.items():
        alone = ShortlistDraft(SkipDraft(), tokens)
        drafts = {label: d for label, d in drafts.items() if d != alone}
        drafts[HEAD_ONLY.format(size)] = alone
    plans = {
        label: _worth(
            draft, scorer.score(draft, depth=DEPTH), problem.profile, problem.context
        )
        for label, draft in drafts.items()
    }
    order = sorted(plans, key=lambda label: -plans[label].speedup)
    return {label: plans[label] for label in order}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _worth(draft, score, profile: CostProfile, context: int) -> Plan:
    """The plan of a scored draft; positions that no round reached are not told."""
    known = [
        (share, count)
        for share, count in zip(score.agreement_at, score.counts_at, strict=True)
        if not math.isnan(share)
    ]
    shares, counts = zip(*known, strict=True)
    return plan(draft, shares, counts, profile, context=context)


def _plan(
    label: str, found: Plan, problem: Problem, calibration: Scorer, evaluation: Scorer
) -> dict[str, Any]:
    """One planned draft: both agreements, what is expected, both acceptance rules."""
    seen = calibration.score(found.draft)
    held_out = evaluation.score(found.draft)
    unseen = _worth(found.draft, held_out, problem.profile, problem.context)
    return {
        "draft": label,
        "leaves_out": in_words(found.draft),
        "cost_ratio": problem.profile.cost_ratio(found.draft, problem.context),
        "calibration": seen.agreement,
        "held_out": held_out.agreement,
        "num_draft_tokens": found.num_draft_tokens,
        "predicted": found.speedup,
        "low": found.low,
        "predicted_held_out": unseen.speedup,
        **evaluation.sampled_acceptance(found.draft),
    }
