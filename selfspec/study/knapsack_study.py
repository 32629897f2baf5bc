"""Choosing the blocks: every selector's sets, what they are worth, and the best timed.

First what needs no clock: windows of the target's own text, importance of each block,
frontiers, held-out agreement, the optimum of small models. Then the best sets, the
post's middle block, the head-only drafts and prompt lookup are timed against plain
decoding, pair by pair, each beside its prediction.

    run = knapsack_study.measure("smollm2-135m", size="smoke")
    run.provenance["frontiers"]
    draft_summary.summarise(run.rows)        # one line a configuration
"""

import math
import sys
from pathlib import Path

import mlx.core as mx

from selfspec import models
from selfspec.decoding import frequent_tokens
from selfspec.study import bench, draft_bench, knapsack_facts, knapsack_small
from selfspec.study.bench import Sweep
from selfspec.study.errors import StudyError
from selfspec.study.experiments import KNAPSACK
from selfspec.study.knapsack_grid import make_grid, resolve_size
from selfspec.study.knapsack_online import curve
from selfspec.study.known_costs import machine_profile
from selfspec.study.prompt_set import load_prompts
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
    """Choose blocks and time the best choices, or go on with an interrupted run.

    The choice is computed again when a run goes on; it is the same choice, because
    nothing random in it is unseeded.

    Args:
        model: alias, hub name or folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next three arguments override parts of it.
        prompts_file: the reader's own prompts for the timed pairs.
        seed: of the order of groups and of the arms within a pair.
        results: folder of results/<machine>/<model>/knapsack.csv.

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
    if loaded.source.num_layers < 2:
        raise StudyError(
            f"{loaded.source.name} has {loaded.source.num_layers} layer, so there is "
            "nothing to choose. Way out: a model with more layers"
        )
    profile = machine_profile(loaded, budget=chosen.budget)
    facts, drafts, pool = knapsack_facts.find_out(
        loaded, profile, chosen, shortlists(loaded, chosen.shortlists), told=_say
    )
    if chosen.contexts:
        _say("scoring the sets after longer texts")
        facts["contexts"] = knapsack_facts.at_contexts(loaded, profile, drafts, chosen)
    _say("small models, whose optimum is known")
    facts["small_models"] = knapsack_small.regrets(
        profile, chosen.small_models, num_layers=chosen.small_layers
    )
    _say("choosing again while decoding")
    facts["online"] = curve(
        loaded,
        profile,
        pool,
        intervals=chosen.online_intervals,
        prompts=chosen.online_prompts,
        num_tokens=chosen.online_tokens,
    )
    return draft_bench.measure(
        loaded,
        experiment=KNAPSACK,
        size=size,
        grid=make_grid(drafts, chosen),
        profile=profile,
        seed=seed,
        results=results,
        prompts_file=prompts_file,
        extra_facts=as_json(facts),
    )


def as_json(value):
    """The same with None for what is no number, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def shortlists(loaded, sizes) -> dict[int, tuple[int, ...]]:
    """size -> the tokens most frequent in the calibration prompts.

    Sizes beyond half of the vocabulary are left out, or half of it stands for them all.
    """
    vocab_size = loaded.model(mx.array([[0]])).shape[-1]  # never run
    text = [
        token
        for prompt in load_prompts("calibration")
        for token in models.encode_text(loaded.tokenizer, prompt.text)
    ]
    fitting = sorted({size for size in sizes if size <= vocab_size // 2})
    return {
        size: frequent_tokens(text, size, vocab_size)
        for size in fitting or [max(1, vocab_size // 2)]
    }


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
