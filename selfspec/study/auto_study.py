"""The rule that declines, put to the test: `num_draft_tokens="auto"` with every draft.

Good drafts and bad ones run under the rule, each pair against plain decoding. What is
at stake is not a best case but the worst: whatever the draft is worth, the rule should
not cost more than it was given to lose. Texts go on past their end, so that each of
them has the length that the promise is made for.

    run = auto_study.measure("smollm2-135m", size="smoke")
    draft_summary.summarise(run.rows)        # one line a draft
"""

import inspect
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfspec import costs, models
from selfspec.costs.profiling import BUDGET
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.study import bench, draft_bench
from selfspec.study.bench import Sweep
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.errors import StudyError
from selfspec.study.experiments import AUTO
from selfspec.study.known_costs import machine_profile
from selfspec.study.results import RESULTS
from selfspec.study.row_table import AUTO as AUTO_LENGTH
from selfspec.study.shortlist_tokens import shortlist_tokens

GROUP = 2  # drafts that share a baseline: few, so that they lie close in time
SMOKE_BUDGET = 3.0  # seconds for the profile, where only the mechanics are tried


@dataclass(frozen=True)
class AutoSize:
    """How much is measured.

    Attributes:
        drafts: skip shares in percent, "exit" (at half depth), "shortlist", "lookup".
        num_prompts, num_tokens, repeats: of the timed pairs.
        calibration_prompts, calibration_tokens: of the untimed runs before them.
        budget: seconds in which the costs are measured.
    """

    drafts: tuple[int | str, ...]
    num_prompts: int
    num_tokens: int
    repeats: int = 1
    calibration_prompts: int = 4
    calibration_tokens: int = 64
    budget: float = BUDGET


SIZES = {
    "smoke": AutoSize(
        (50, "lookup"),
        num_prompts=2,
        num_tokens=24,
        calibration_prompts=1,
        calibration_tokens=8,
        budget=SMOKE_BUDGET,
    ),
    "default": AutoSize(
        (10, 50, "lookup"),
        num_prompts=6,
        num_tokens=48,
        calibration_prompts=2,
        calibration_tokens=32,
    ),
    "paper": AutoSize(
        (10, 30, 50, "exit", "shortlist", "lookup"), num_prompts=8, num_tokens=256
    ),
}


def measure(
    model: str = "smollm2-135m",
    *,
    size: str = "default",
    num_prompts: int | None = None,
    num_tokens: int | None = None,
    repeats: int | None = None,
    prompts_file: str = "",
    seed: int = 0,
    results: str | Path = RESULTS,
) -> Sweep:
    """Run every draft of the size under the rule, or go on with an interrupted run.

    Args:
        model: alias, hub name or folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next three arguments override parts of it.
        prompts_file: the reader's own prompts instead of the committed ones.
        seed: of the order of groups and of the arms within a pair.
        results: folder of results/<machine>/<model>/auto.csv.

    Raises:
        StudyError: a bad argument, or a text that is not the target's own.
        ModelError: the model cannot be loaded, or the engine refuses it.
        ResultsError: results cannot be read or written.
    """
    chosen = resolve_size(
        size, num_prompts=num_prompts, num_tokens=num_tokens, repeats=repeats
    )
    bench.choose_prompts(prompts_file, chosen.num_prompts)  # a bad file is told early
    loaded = models.load(model)
    grid = make_grid(loaded, chosen)
    profile = machine_profile(loaded, budget=chosen.budget)
    return draft_bench.measure(
        loaded,
        experiment=AUTO,
        size=size,
        grid=grid,
        profile=profile,
        seed=seed,
        results=results,
        prompts_file=prompts_file,
        extra_facts={"policy": policy_facts()},
    )


def resolve_size(size: str, **overrides: Any) -> AutoSize:
    """The size of that name, with every override that is not None.

    Raises:
        StudyError: unknown size.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    return AutoSize(**{**asdict(SIZES[size]), **given})


def make_grid(loaded, size: AutoSize) -> DraftGrid:
    """The drafts of a size as cases for this model, in groups.

    Raises:
        StudyError: values outside the grid's rules, or a model of one layer.
    """
    cases = [
        Case(*_draft(loaded, kind), num_draft_tokens=AUTO_LENGTH)
        for kind in size.drafts
    ]
    return DraftGrid(
        groups=tuple(tuple(cases[i : i + GROUP]) for i in range(0, len(cases), GROUP)),
        num_prompts=size.num_prompts,
        num_tokens=size.num_tokens,
        repeats=size.repeats,
        calibration_prompts=size.calibration_prompts,
        calibration_tokens=size.calibration_tokens,
        stop_at_eos=False,
    )


def policy_facts() -> dict[str, float]:
    """What the rule may lose, from its own defaults, for the run's provenance."""
    defaults = inspect.signature(costs.DeclinePolicy).parameters
    return {name: defaults[name].default for name in ("budget", "allowance")}


def _draft(loaded, kind: int | str) -> tuple[str, Any]:
    """A label and the draft."""
    num_layers = loaded.source.num_layers
    match kind:
        case "exit":
            half = max(1, num_layers // 2)
            return f"exit {half}", ExitDraft(half)
        case "shortlist":
            tokens = shortlist_tokens(loaded)
            return f"shortlist {len(tokens)}", ShortlistDraft(SkipDraft(), tokens)
        case "lookup":
            return "lookup", LookupDraft()
    try:
        return f"skip {kind} %", SkipDraft.middle(num_layers, kind / 100)
    except ValueError as error:
        raise StudyError(
            f"{loaded.source.name}: {error}. Way out: a model with more layers"
        ) from None
