"""LayerSkip put to the test: exits that were taught, or not, as drafts of their model.

The model may be the small one that this project trained on its own task, a checkpoint
that somebody else taught (facebook/layerskip-llama3.2-1B), or any other model, whose
early layers nobody taught anything. First what needs no clock: how every exit scores,
from which layer each token stays, what every case writes and how many layers that takes.
Then exits by draft lengths are timed against plain decoding, pair by pair.

    run = layerskip_study.measure("layerskip-small", size="smoke")
    draft_summary.summarise(run.rows)        # one line a case
    run.provenance["counts"]                 # layer evaluations, hardware-free
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from selfspec import blas
from selfspec.decoding import ExitDraft, ModelDraft
from selfspec.study import (
    draft_bench,
    layerskip_counts,
    layerskip_facts,
    layerskip_grid,
    layerskip_knapsack,
    layerskip_subject,
    trained,
)
from selfspec.study.bench import Sweep
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.experiments import LAYERSKIP
from selfspec.study.known_costs import machine_profile
from selfspec.study.layerskip_grid import LayerSkipSize
from selfspec.study.layerskip_subject import Subject
from selfspec.study.layerskip_words import DYNAMIC, SMALL_MODEL
from selfspec.study.results import RESULTS

SHOWN = 3  # texts of which every token's depth is kept


def measure(
    model: str = trained.TAUGHT,
    *,
    size: str = "default",
    num_prompts: int | None = None,
    num_tokens: int | None = None,
    repeats: int | None = None,
    prompts_file: str = "",
    seed: int = 0,
    results: str | Path = RESULTS,
) -> Sweep:
    """Find out about the exits and time them, or go on with an interrupted run.

    Args:
        model: one of this project's trained models by name, or an alias, hub name or
            folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next three arguments override parts of it.
        prompts_file: the reader's own prompts instead of the committed ones.
        seed: of the order of groups and of the arms within a pair.
        results: folder of results/<machine>/<model>/layerskip.csv.

    Raises:
        StudyError: a bad argument, or a text that is not the target's own.
        ModelError: the model cannot be loaded, or the engine refuses it.
        ResultsError: results cannot be read or written.
    """
    chosen = layerskip_grid.resolve_size(
        size, num_prompts=num_prompts, num_tokens=num_tokens, repeats=repeats
    )
    subject = layerskip_subject.find(model, chosen, prompts_file=prompts_file)
    chosen = replace(
        chosen,
        num_prompts=min(chosen.num_prompts, len(subject.prompts)),
        calibration_prompts=min(chosen.calibration_prompts, len(subject.held_out)),
    )
    profile = machine_profile(subject.loaded, budget=chosen.budget)
    blas.set_threads(max(1, profile.blas_threads))
    num_layers = subject.loaded.source.num_layers
    main = layerskip_grid.main_exit(num_layers, chosen)
    small: list[Any] = []  # loaded once, and not before memory without it is known

    def small_model():
        small.append(subject.small())
        return small[0].model

    memory = layerskip_facts.memory(
        subject.loaded.model,
        subject.ids(subject.prompts[0]),
        exit_layer=main,
        num_tokens=chosen.num_tokens,
        other=small_model if subject.small else None,
    )
    others: dict[str, Any] = {}
    if small:
        others[SMALL_MODEL] = ModelDraft(small[0].model)
    label, draft, knapsack = layerskip_knapsack.choose(
        subject.loaded.model,
        [subject.ids(p) for p in subject.held_out[: chosen.calibration_prompts]],
        profile,
        exit_layer=main,
        num_tokens=chosen.calibration_tokens,
        eos=subject.eos,
    )
    others[label] = draft
    grid = layerskip_grid.make_grid(num_layers, chosen, others)
    facts = find_out(subject, grid, chosen)
    return draft_bench.measure(
        subject.loaded,
        experiment=LAYERSKIP,
        size=size,
        grid=grid,
        profile=profile,
        seed=seed,
        results=results,
        prompts_file=prompts_file,
        prompts=subject.prompts,
        held_out=subject.held_out,
        cost_ratios=_cost_ratios(subject, grid, chosen, profile.step_seconds),
        extra_facts={
            **facts,
            "memory": memory,
            "main_exit": main,
            "knapsack": knapsack,
            "small_model": small_facts(small[0]) if small else None,
            "subject": subject.facts(),
        },
    )


def find_out(subject: Subject, grid: DraftGrid, size: LayerSkipSize) -> dict[str, Any]:
    """Everything about the exits that is no pair: exits, depths, counts, alone, dispatch."""
    model = subject.loaded.model
    ids = [subject.ids(prompt) for prompt in subject.prompts]
    counted = ids[: size.counted]
    layers = sorted({_exit(c) for c in grid.cases if type(c.draft) is ExitDraft})
    return {
        "exits": layerskip_facts.exits(model, subject.texts[: size.scored]),
        "depths": layerskip_facts.depths(
            model, subject.texts[: size.scored], subject.words, SHOWN
        ),
        "counts": layerskip_counts.count_cases(
            model,
            grid.cases,
            counted,
            num_tokens=size.num_tokens,
            eos=subject.eos,
            answers=subject.answers[: size.counted],
        ),
        "alone": layerskip_facts.alone(
            model,
            layers,
            ids[: size.num_prompts],
            num_tokens=size.num_tokens,
            eos=subject.eos,
        ),
        "dispatch": layerskip_facts.dispatch(model),
    }


def small_facts(small) -> dict[str, Any]:
    """What the other draft model is."""
    return {
        "name": small.source.name,
        "layers": small.source.num_layers,
        "parameters": small.source.num_parameters,
        "bytes": small.source.num_bytes,
    }


def _cost_ratios(
    subject: Subject, grid: DraftGrid, size: LayerSkipSize, step_seconds: float
) -> dict[str, float]:
    """c of the drafts whose steps the text makes longer or shorter, on held-out text."""
    ids = [subject.ids(prompt) for prompt in subject.held_out]
    ids = ids[: size.calibration_prompts]
    found = {}
    for case in grid.cases:
        if case.label.startswith(DYNAMIC) and case.label not in found:
            seconds = layerskip_counts.draft_seconds(
                subject.loaded.model, case, ids, size.calibration_tokens
            )
            found[case.label] = seconds / step_seconds
    return {name: ratio for name, ratio in found.items() if ratio == ratio}


def _exit(case: Case) -> int:
    return case.draft.exit_layer
