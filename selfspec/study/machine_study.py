"""What a step costs on this machine, and whether that predicts the speedup of a draft.

First the machine: a profile, v(m) at each thread count, the copy ceiling, and c of every
draft timed directly beside the profile's prediction. Then drafts of every kind are timed
against plain decoding, pair by pair, each beside the two predictions that the profile
makes: with the acceptance of the timed rounds, and with that of held-out prompts.

    run = machine_study.measure("smollm2-135m", size="smoke")
    draft_summary.summarise(run.rows)        # one line a configuration
    run.provenance["copy_bytes_per_second"]
"""

from pathlib import Path

from selfspec import models
from selfspec.study import bench, draft_bench, machine_facts
from selfspec.study.bench import Sweep
from selfspec.study.experiments import MACHINE
from selfspec.study.machine_grid import make_drafts, make_grid, resolve_size
from selfspec.study.results import RESULTS


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
    """Measure the machine and time the drafts, or go on with an interrupted run.

    Args:
        model: alias, hub name or folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next three arguments override parts of it.
        prompts_file: the reader's own prompts instead of the committed ones.
        seed: of the order of groups and of the arms within a pair.
        results: folder of results/<machine>/<model>/machine.csv.

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
    drafts = make_drafts(loaded)
    grid = make_grid(drafts, chosen)
    timed = {case.label: case.draft for case in grid.cases}
    profile, facts = machine_facts.find_out(loaded, timed, chosen, name=size)
    shares = machine_facts.weight_shares(loaded.model, dict(drafts.values()))
    return draft_bench.measure(
        loaded,
        experiment=MACHINE,
        size=size,
        grid=grid,
        profile=profile,
        seed=seed,
        results=results,
        prompts_file=prompts_file,
        extra_facts={**facts, "weight_shares": shares},
    )
