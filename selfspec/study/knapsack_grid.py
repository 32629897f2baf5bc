"""How much the experiment "knapsack" measures, and what it times once sets are chosen.

size = resolve_size("paper")
grid = make_grid(chosen, size)        # chosen: label -> draft, of knapsack_facts
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from selfspec.costs.profiling import BUDGET
from selfspec.decoding import LookupDraft
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.errors import StudyError

BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5)  # shares of what can be skipped
SHORTLISTS = (4096, 8192, 16384)
TEMPERATURE = 0.7
MATCH, AFTER = ", match rule", ", after {} tokens"  # of a case's label
# "oracle" only where all sets can be tried; "middle" is in every frontier besides.
SELECTORS = (
    "middle",
    "suffix",
    "random",
    "greedy",
    "knapsack",
    "beam",
    "clasp",
    "search",
)


@dataclass(frozen=True)
class KnapsackSize:
    """How much is measured.

    Attributes:
        selectors: names of `selfspec.selection.SELECTORS`.
        calibration_windows: prompts continued by the target, that selectors see.
        choosing_windows: more of them, that decide between the selectors' sets; with 0
            the same do both.
        evaluation_windows: others, that nobody chooses by.
        window_tokens: generated for each.
        budgets: shares of what can be skipped, at which sets are compared.
        search_trials: sets that the search tries.
        beam_width: survivors a cell.
        timed: how many of the planned drafts are timed, the most promising.
        lengths: draft lengths that are timed for each.
        shortlists: sizes of the head-only drafts.
        contexts: longer contexts at which the chosen sets are scored, and the most
            promising of them timed.
        context_cases: how many of them.
        temperature_cases: how many of the cases run at temperature 0.7 as well, by
            rejection sampling and by the match rule.
        small_models, small_layers: models on which regret is told from the optimum.
        online_intervals: tokens between two choices while decoding; 0 never.
        online_prompts, online_tokens: of that curve.
        num_prompts, num_tokens, repeats: of the timed pairs.
        calibration_prompts, calibration_tokens: of the untimed runs before them.
        budget: seconds in which the costs are measured.
    """

    selectors: tuple[str, ...]
    calibration_windows: int
    evaluation_windows: int
    window_tokens: int
    num_prompts: int
    num_tokens: int
    budgets: tuple[float, ...] = BUDGETS
    choosing_windows: int = 0
    search_trials: int = 60
    beam_width: int = 4
    timed: int = 7
    lengths: tuple[int, ...] = (1, 2)
    shortlists: tuple[int, ...] = SHORTLISTS
    contexts: tuple[int, ...] = ()
    context_cases: int = 2
    temperature_cases: int = 2
    small_models: int = 2
    small_layers: int = 4
    online_intervals: tuple[int, ...] = (0, 32, 128)
    online_prompts: int = 2
    online_tokens: int = 64
    repeats: int = 1
    calibration_prompts: int = 4
    calibration_tokens: int = 48
    budget: float = BUDGET


SIZES = {
    "smoke": KnapsackSize(
        ("middle", "suffix", "random"),
        calibration_windows=1,
        evaluation_windows=1,
        window_tokens=8,
        num_prompts=1,
        num_tokens=8,
        budgets=(0.3,),
        lengths=(1,),
        shortlists=(16384,),
        temperature_cases=0,
        small_models=1,
        small_layers=2,
        online_intervals=(0, 16),
        online_prompts=1,
        online_tokens=24,
        calibration_prompts=1,
        calibration_tokens=8,
        budget=3.0,  # only the mechanics are tried
    ),
    "default": KnapsackSize(
        ("middle", "suffix", "random", "knapsack"),
        calibration_windows=2,
        choosing_windows=2,
        evaluation_windows=6,
        window_tokens=16,
        num_prompts=6,
        num_tokens=24,
        budgets=(0.1, 0.3),
        lengths=(1,),
        shortlists=(16384,),
        temperature_cases=0,
        small_models=1,
        online_intervals=(0, 64),
        online_prompts=1,
        calibration_prompts=2,
        calibration_tokens=16,
    ),
    "paper": KnapsackSize(
        SELECTORS,
        calibration_windows=8,
        choosing_windows=10,
        evaluation_windows=24,
        window_tokens=28,
        num_prompts=8,
        num_tokens=32,
        search_trials=60,
        timed=5,
        contexts=(1024, 4096),
        temperature_cases=1,
        calibration_tokens=32,
        small_models=4,
        online_intervals=(0, 32, 128, 256),
        online_prompts=1,
        online_tokens=512,
    ),
}


def resolve_size(size: str, **overrides: Any) -> KnapsackSize:
    """The size of that name, with every override that is not None.

    Raises:
        StudyError: unknown size.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    return KnapsackSize(**{**asdict(SIZES[size]), **given})


def make_grid(chosen: Mapping[str, Any], size: KnapsackSize) -> DraftGrid:
    """Each draft a group whose lengths share a baseline; lookup beside them.

    Args:
        chosen: label -> draft, the most promising first; a middle set is timed too.

    Raises:
        StudyError: values outside the grid's rules.
    """
    timed = [
        label
        for place, label in enumerate(chosen)
        if place < size.timed or label.endswith("(middle)")
    ]
    groups = [
        tuple(Case(label, chosen[label], length) for length in size.lengths)
        for label in timed
    ]
    groups.append((Case("lookup", LookupDraft(), max(2, *size.lengths, 2)),))
    first = size.lengths[0]
    for label, draft in list(chosen.items())[: size.temperature_cases]:
        sampled = Case(label, draft, first, TEMPERATURE)
        by_match = replace(sampled, label=f"{label}{MATCH}", match=True)
        groups.append((sampled, by_match))
    for context in size.contexts:
        groups.append(
            tuple(
                Case(f"{label}{AFTER.format(context)}", draft, first, context=context)
                for label, draft in list(chosen.items())[: size.context_cases]
            )
        )
    return DraftGrid(
        groups=tuple(groups),
        num_prompts=size.num_prompts,
        num_tokens=size.num_tokens,
        repeats=size.repeats,
        calibration_prompts=size.calibration_prompts,
        calibration_tokens=size.calibration_tokens,
    )
