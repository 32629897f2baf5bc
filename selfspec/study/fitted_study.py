"""A fitted exit put to the test: a bridge on a frozen model, beside what needs none.

The bridge is the committed one of the model, or one that is fitted first, for as many
minutes as the size gives it. Beside it stand the same exit without a bridge, the blocks
that a knapsack leaves out, the head cut down and nothing else, and prompt lookup; all
against plain decoding, pair by pair, on prompts that nothing was fitted to.

    run = fitted_study.measure("smollm2-135m", size="smoke")
    draft_summary.summarise(run.rows)        # one line a case
    run.provenance["bridge"]["curve"]        # what the training was worth, look by look
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfspec import blas, models
from selfspec.costs import CostProfile
from selfspec.costs.bandwidth import weight_shares
from selfspec.costs.profiling import BUDGET
from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ShortlistDraft,
    SkipDraft,
)
from selfspec.models.blocks import find_stack
from selfspec.study import (
    arms,
    bench,
    draft_bench,
    fit_run,
    layerskip_knapsack,
    reference,
)
from selfspec.study.bench import Sweep
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.errors import StudyError
from selfspec.study.experiments import FITTED
from selfspec.study.known_costs import machine_profile
from selfspec.study.prompt_set import load_prompts
from selfspec.study.results import RESULTS
from selfspec.study.row_table import AUTO
from selfspec.training import bridge_choice, load_bridge
from selfspec.training.bridge_file import card_of
from selfspec.training.errors import TrainingError

SAVED = 0.15  # of the layers: what the knapsack's set should save, where sets do best


@dataclass(frozen=True)
class FittedSize:
    """How much is measured.

    Attributes:
        minutes: of fitting, where the model has no bridge yet.
        lengths: draft tokens a round, of the fitted exit.
        beside: the same of what stands beside it.
        num_prompts, num_tokens, repeats: of the timed pairs.
        calibration_prompts, calibration_tokens: of the untimed runs before them, and
            of the windows that the knapsack looks at.
        budget: seconds in which the costs are measured.
    """

    minutes: float
    lengths: tuple[int, ...]
    beside: tuple[int, ...]
    num_prompts: int
    num_tokens: int
    repeats: int = 1
    calibration_prompts: int = 4
    calibration_tokens: int = 32
    budget: float = BUDGET


SIZES = {
    "smoke": FittedSize(
        minutes=0.05,
        lengths=(2,),
        beside=(2,),
        num_prompts=2,
        num_tokens=16,
        calibration_prompts=1,
        calibration_tokens=8,
        budget=3.0,  # only the mechanics are tried
    ),
    "default": FittedSize(
        minutes=4, lengths=(1, 2, 3), beside=(2,), num_prompts=6, num_tokens=32
    ),
    "paper": FittedSize(
        minutes=60, lengths=(1, 2, 3, 4), beside=(1, 2), num_prompts=16, num_tokens=64
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
    bridge: str = "",
    seed: int = 0,
    results: str | Path = RESULTS,
) -> Sweep:
    """Find or fit the bridge and time it, or go on with an interrupted run.

    Args:
        model: alias, hub name or folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next three arguments override parts of it.
        prompts_file: the reader's own prompts instead of the committed ones.
        bridge: a bridge file; default, weights/bridges/<model>.safetensors.
        seed: of the order of groups and of the arms within a pair.
        results: folder of results/<machine>/<model>/fitted-exit.csv.

    Raises:
        StudyError: a bad argument, a bridge of another model, or a text that is not the
            target's own.
        ModelError: the model cannot be loaded, or the engine refuses it.
        ResultsError: results cannot be read or written.
    """
    chosen = resolve_size(
        size, num_prompts=num_prompts, num_tokens=num_tokens, repeats=repeats
    )
    bench.choose_prompts(prompts_file, chosen.num_prompts)  # a bad file is told early
    loaded = models.load(model)
    path = Path(bridge) if bridge else _bridge_of(model, loaded, chosen)
    try:
        draft, card = load_bridge(path, loaded), card_of(path)
    except TrainingError as error:
        raise StudyError(str(error)) from None
    profile = machine_profile(loaded, budget=chosen.budget)
    blas.set_threads(max(1, profile.blas_threads))
    drafts = beside(loaded, draft, profile, chosen)
    grid = make_grid(draft, drafts, chosen)
    return draft_bench.measure(
        loaded,
        experiment=FITTED,
        size=size,
        grid=grid,
        profile=profile,
        seed=seed,
        results=results,
        prompts_file=prompts_file,
        extra_facts={
            "bridge": {**asdict(card), "bytes": path.stat().st_size},
            "needs": needs(loaded, draft, profile),
            "memory": memory(loaded, draft, chosen),
            "weight_shares": {
                case.label: asdict(share)
                for case in grid.cases
                if (share := _share(loaded.model, case.draft))
            },
        },
    )


def resolve_size(size: str, **overrides: Any) -> FittedSize:
    """The size of that name, with every override that is not None.

    Raises:
        StudyError: unknown size.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    return FittedSize(**{**asdict(SIZES[size]), **given})


def label(draft) -> str:
    """How the fitted exit is called: "fitted exit 8"."""
    return f"fitted exit {_inner(draft).exit_layer}"


def beside(
    loaded, draft, profile: CostProfile, size: FittedSize
) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """What stands beside it: label -> (draft, lengths).

    The exit without a bridge has the same shortlist, so that the bridge is all that
    differs. All but the last need no bridge: there a lookup drafts where it finds
    something, and the fitted exit elsewhere.
    """
    layer = _inner(draft).exit_layer
    tokens = draft.tokens if isinstance(draft, ShortlistDraft) else ()
    plain_exit = ExitDraft(layer)
    found: dict[str, Any] = {
        f"exit {layer}": ShortlistDraft(plain_exit, tokens) if tokens else plain_exit
    }
    if tokens:
        found[f"shortlist {len(tokens)}"] = ShortlistDraft(SkipDraft(), tokens)
    num_layers = loaded.source.num_layers
    held_out = load_prompts("calibration", size.calibration_prompts)
    name, skipping, _ = layerskip_knapsack.choose(
        loaded.model,
        [models.render_prompt(loaded.tokenizer, p.text) for p in held_out],
        profile,
        exit_layer=num_layers - max(1, round(SAVED * num_layers)),
        num_tokens=size.calibration_tokens,
        eos=frozenset(loaded.tokenizer.eos_token_ids),
    )
    found[name] = skipping
    found["lookup"] = LookupDraft()
    found[f"{label(draft)} after lookup"] = FallbackDraft(LookupDraft(), draft)
    return {name: (draft, size.beside) for name, draft in found.items()}


def make_grid(draft, drafts, size: FittedSize) -> DraftGrid:
    """The cases of a size, in groups that share a baseline.

    Args:
        drafts: of `beside`.
    """
    name = label(draft)
    groups = [
        tuple(Case(name, draft, k) for k in size.lengths),
        (Case(name, draft, AUTO),),
    ]
    groups += [
        tuple(Case(other, one, k) for k in lengths)
        for other, (one, lengths) in drafts.items()
    ]
    return DraftGrid(
        groups=tuple(groups),
        num_prompts=size.num_prompts,
        num_tokens=size.num_tokens,
        repeats=size.repeats,
        calibration_prompts=size.calibration_prompts,
        calibration_tokens=size.calibration_tokens,
        faster_baseline=True,
    )


def needs(loaded, draft, profile: CostProfile) -> dict[str, float | None]:
    """What the fitted exit must be accepted on this machine, from costs alone."""
    inner = _inner(draft)
    tokens = draft.tokens if isinstance(draft, ShortlistDraft) else ()
    [option] = bridge_choice.choices(
        find_stack(loaded.model),
        profile,
        shortlist=len(tokens),
        exits=[inner.exit_layer],
        kinds=[inner.bridge.kind],
    )
    reached = {"break_even": option.break_even, "needed": option.needed}
    return {
        "cost_ratio": option.cost_ratio,
        "goal": bridge_choice.GOAL,
        # JSON holds no infinity: None where no acceptance is enough
        **{k: (v if v <= 1 else None) for k, v in reached.items()},
    }


def memory(loaded, draft, size: FittedSize) -> dict[str, int]:
    """Peak bytes of one text, weights included, plainly and with the fitted exit."""
    [prompt] = load_prompts("calibration", 1)
    ids = models.render_prompt(loaded.tokenizer, prompt.text)
    common = {"num_tokens": size.num_tokens}
    plain = arms.plain(loaded.model, ids, **common).peak_bytes
    drafting = arms.one_cache(
        loaded.model, draft, ids, num_draft_tokens=size.lengths[-1], **common
    ).peak_bytes
    return {
        "plain": plain,
        "fitted": drafting,
        "bridge": _inner(draft).bridge.nbytes,
    }


def _bridge_of(model: str, loaded, size: FittedSize) -> Path:
    """The model's bridge below the study's folder; fitted now if there is none."""
    root = reference.find_root()
    path = root / fit_run.BRIDGES / f"{loaded.source.slug}.safetensors"
    if not path.exists():
        try:
            fit_run.fit_model(
                model,
                minutes=size.minutes,
                root=root,
                out=path,
                budget=size.budget,
                say=lambda line: None,
            )
        except TrainingError as error:
            raise StudyError(str(error)) from None
    return path


def _share(model, draft):
    """What a draft reads, as a share of a step; None where nobody can say."""
    try:
        return weight_shares(model, draft)
    except TypeError:
        return None


def _inner(draft):
    return draft.draft if isinstance(draft, ShortlistDraft) else draft
