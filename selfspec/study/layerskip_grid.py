"""What the experiment "layerskip" times: exits by draft lengths, and what stands beside.

Exits are shares of the depth, so that any model has its own. Beside the grid stand the
same exits with nothing kept, at a temperature, under the rule that declines, an exit
chosen for each token, another small model, and the skip set that a knapsack chooses.

    size = resolve_size("default")
    grid = make_grid(num_layers=24, size=size, others={"small model": ModelDraft(small)})
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from selfspec.costs.profiling import BUDGET
from selfspec.decoding import DynamicExitDraft, ExitDraft
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.errors import StudyError
from selfspec.study.layerskip_words import DYNAMIC, NOTHING_KEPT
from selfspec.study.row_table import AUTO

TEMPERATURE = 0.6
CONFIDENCE, AGREEING = 0.8, 2


@dataclass(frozen=True)
class LayerSkipSize:
    """How much is measured.

    Attributes:
        exits: shares of the depth after which a draft leaves.
        main: the one of them that all that stands beside the grid is built on.
        lengths: draft tokens a round, of every exit.
        beside: the same of what stands beside the grid.
        sampled: the same at a temperature, of every exit; () for none.
        num_prompts, num_tokens, repeats: of the timed pairs.
        counted: texts that every greedy case writes untimed, judged and counted.
        scored: texts on which every exit is scored.
        calibration_prompts, calibration_tokens: of the untimed runs before the pairs.
        budget: seconds in which the costs are measured.
    """

    exits: tuple[float, ...]
    main: float
    lengths: tuple[int, ...]
    beside: tuple[int, ...]
    sampled: tuple[int, ...]
    num_prompts: int
    num_tokens: int
    repeats: int = 1
    counted: int = 24
    scored: int = 100
    calibration_prompts: int = 4
    calibration_tokens: int = 32
    budget: float = BUDGET


SIZES = {
    "smoke": LayerSkipSize(
        exits=(1 / 4,),
        main=1 / 4,
        lengths=(2,),
        beside=(2,),
        sampled=(2,),
        num_prompts=2,
        num_tokens=16,
        counted=2,
        scored=4,
        calibration_prompts=1,
        calibration_tokens=8,
        budget=3.0,  # only the mechanics are tried
    ),
    "default": LayerSkipSize(
        exits=(1 / 6, 1 / 4, 1 / 3),
        main=1 / 4,
        lengths=(2, 4, 6),
        beside=(4,),
        sampled=(4,),
        num_prompts=12,
        num_tokens=64,
    ),
    "paper": LayerSkipSize(
        exits=(1 / 12, 1 / 8, 1 / 6, 5 / 24, 1 / 4, 1 / 3, 1 / 2),
        main=1 / 4,
        lengths=(2, 4, 6, 8),
        beside=(4, 8),
        sampled=(4, 8),
        num_prompts=32,
        num_tokens=96,
        counted=200,
        scored=200,
        calibration_prompts=12,
        calibration_tokens=64,
    ),
}


def resolve_size(size: str, **overrides: Any) -> LayerSkipSize:
    """The size of that name, with every override that is not None.

    Raises:
        StudyError: unknown size.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    return LayerSkipSize(**{**asdict(SIZES[size]), **given})


def exit_layers(num_layers: int, size: LayerSkipSize) -> tuple[int, ...]:
    """The exits of a size in a model of that depth, ascending, each once.

    Raises:
        StudyError: a model of one layer.
    """
    if num_layers < 2:
        raise StudyError(
            "a model of one layer has no exit before its last. Way out: a model with "
            "more layers"
        )
    return tuple(sorted({_layer(num_layers, share) for share in size.exits}))


def main_exit(num_layers: int, size: LayerSkipSize) -> int:
    """The exit that is drafted with under the rule, at a temperature, with nothing kept."""
    return _layer(num_layers, size.main)


def dynamic_exits(num_layers: int, size: LayerSkipSize) -> tuple[int, ...]:
    """Where a token may leave: from half the main exit to twice, in equal steps."""
    main = main_exit(num_layers, size)
    step = max(1, main // 2)
    chosen = range(step, min(num_layers - 1, 2 * main) + 1, step)
    return tuple(chosen)


def dynamic_drafts(num_layers: int, size: LayerSkipSize) -> dict[str, DynamicExitDraft]:
    """Label -> draft whose exit is chosen for each token, by either rule."""
    exits = dynamic_exits(num_layers, size)
    where = f"exits {exits[0]} to {exits[-1]}"
    found = {
        f"{DYNAMIC}, {where}, confidence {CONFIDENCE:g}": DynamicExitDraft(
            exits, confidence=CONFIDENCE
        )
    }
    if len(exits) >= AGREEING:
        found[f"{DYNAMIC}, {where}, {AGREEING} agreeing"] = DynamicExitDraft(
            exits, agreeing=AGREEING
        )
    return found


def label(exit_layer: int, *, reuse: bool = True) -> str:
    """How a case of that exit is called."""
    return f"exit {exit_layer}" + ("" if reuse else f", {NOTHING_KEPT}")


def make_grid(
    num_layers: int,
    size: LayerSkipSize,
    others: Mapping[str, Any] | None = None,
    *,
    stop_at_eos: bool = True,
) -> DraftGrid:
    """The cases of a size for a model of that depth, in groups that share a baseline.

    Args:
        others: label -> further drafts, timed at the lengths beside the grid.
        stop_at_eos: as in DraftGrid.

    Raises:
        StudyError: values outside the grid's rules, or a model of one layer.
    """
    main = main_exit(num_layers, size)
    groups = []
    for layer in exit_layers(num_layers, size):
        group = [Case(label(layer), ExitDraft(layer), k) for k in size.lengths]
        if layer == main:  # both halves of the comparison share their baseline
            again = ExitDraft(layer, reuse=False)
            kept = [Case(label(layer), ExitDraft(layer), k) for k in size.beside]
            group += [case for case in kept if case not in group]
            group += [Case(label(layer, reuse=False), again, k) for k in size.beside]
        groups.append(tuple(group))
    beside = {**dynamic_drafts(num_layers, size), **(others or {})}
    for name, draft in beside.items():
        groups.append(tuple(Case(name, draft, k) for k in size.beside))
    groups.append((Case(label(main), ExitDraft(main), AUTO),))
    for layer in exit_layers(num_layers, size) if size.sampled else ():
        draft = ExitDraft(layer)
        groups.append(
            tuple(Case(label(layer), draft, k, TEMPERATURE) for k in size.sampled)
        )
    return DraftGrid(
        groups=tuple(groups),
        num_prompts=size.num_prompts,
        num_tokens=size.num_tokens,
        repeats=size.repeats,
        calibration_prompts=size.calibration_prompts,
        calibration_tokens=size.calibration_tokens,
        stop_at_eos=stop_at_eos,
        faster_baseline=True,
    )


def _layer(num_layers: int, share: float) -> int:
    return min(num_layers - 1, max(1, round(num_layers * share)))
