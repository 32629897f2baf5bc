"""The post's experiment: skip a contiguous middle block, draft 2 to 5 tokens, time it.

For every skip fraction, draft length and prompt, plain decoding and each mechanism run
back to back; every timed pair is one row on disk before the next begins. The costs c
and v are measured before the first pair, so the prediction never sees the timings that
it predicts.

    sweep = naive_sweep.measure("smollm2-135m", size="smoke")
    sweep_summary.summarise(sweep.rows)      # one line a configuration
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec import blas, costs, models
from selfspec.decoding import (
    SkipDraft,
    check_shorter_list,
    lossless,
    shorter_list_model,
)
from selfspec.models import device
from selfspec.study import arms, bench, provenance, sweep_checks, sweep_rows
from selfspec.study.bench import BASELINE, WARM_UP_TOKENS, Sweep
from selfspec.study.errors import StudyError
from selfspec.study.experiments import NAIVE_SWEEP
from selfspec.study.paired import Block, Decoded
from selfspec.study.prompt_set import Prompt
from selfspec.study.results import RESULTS, Run, read_provenance
from selfspec.study.row_table import typed
from selfspec.study.sweep_grid import Grid, resolve_grid

TWO_CACHES = "two caches"  # the post's mechanism: mlx-lm's two-model loop
ONE_CACHE = "one cache"  # this project's engine: the draft works on the target's cache


@dataclass(frozen=True)
class Pair:
    """What is timed together: one configuration on one prompt."""

    skip_fraction: float
    num_draft_tokens: int
    prompt: Prompt
    repeat: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """As the pair stands in a row, so that a resumed run knows what it has."""
        return (*self.configuration, self.prompt.id, str(self.repeat))

    @property
    def configuration(self) -> tuple[str, str]:
        return (_label(self.skip_fraction), str(self.num_draft_tokens))


def measure(
    model: str = "smollm2-135m",
    *,
    size: str = "default",
    skip_fractions: Sequence[float] | None = None,
    draft_lengths: Sequence[int] | None = None,
    num_prompts: int | None = None,
    num_tokens: int | None = None,
    repeats: int | None = None,
    mechanisms: Sequence[str] | None = None,
    prompts_file: str = "",
    seed: int = 0,
    results: str | Path = RESULTS,
) -> Sweep:
    """Run the sweep, or continue the one that was interrupted.

    Args:
        model: alias, hub name or folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next five arguments override parts of it.
        mechanisms: "two caches" (the post's), "one cache" (this project's engine), or
            None for both.
        prompts_file: the reader's own prompts instead of the committed ones.
        seed: of the order of configurations and of the arms within a pair.
        results: folder of results/<machine>/<model>/naive-sweep.csv.

    Raises:
        StudyError: a bad argument, or a text that is not the target's own.
        ModelError: the model cannot be loaded, or a shorter layer list drafts wrong.
        ResultsError: results cannot be read or written.
    """
    grid = resolve_grid(
        size,
        skip_fractions=skip_fractions,
        draft_lengths=draft_lengths,
        num_prompts=num_prompts,
        num_tokens=num_tokens,
        repeats=repeats,
    )
    prompts = bench.choose_prompts(prompts_file, grid.num_prompts)
    loaded = models.load(model)
    ids = {p.id: models.render_prompt(loaded.tokenizer, p.text) for p in prompts}
    sweep_checks.require_numbers(loaded, ids[prompts[0].id])
    drafts, refused = _drafts(loaded, grid.skip_fractions)
    drafts = _chosen(drafts, mechanisms, refused)
    sweep_checks.require_room(loaded, ids, grid.num_tokens + max(grid.draft_lengths))
    command = bench.command(model, NAIVE_SWEEP, size, prompts_file)
    facts = provenance.collect(loaded.source, command)
    folder = bench.results_folder(results, facts, loaded.source)
    configurations = grid.configurations
    random.Random(f"{seed}/configurations").shuffle(configurations)
    pairs = [
        Pair(fraction, length, prompt, repeat)
        for fraction, length in configurations
        for prompt in prompts
        for repeat in range(grid.repeats)
    ]
    parameters = {
        **asdict(grid),
        "seed": seed,
        "size": size,
        "mechanisms": list(drafts),
        "prompts": [prompt.id for prompt in prompts],
    }
    with Run.open(
        folder,
        NAIVE_SWEEP,
        sweep_rows.COLUMNS,
        bench.fingerprint(facts, parameters, prompts),
        total=len(pairs) * len(drafts),
        provenance={
            **facts,
            "size": size,
            "parameters": parameters,
            "refused": refused,
        },
    ) as run:
        ours = _Bench(loaded, drafts, size, run)
        ours.prepare(prompts[0], grid)
        bench.time_pairs(
            run,
            pairs,
            seed=seed,
            key_of_row=_key,
            warm_up=lambda pair: ours.arms(pair, WARM_UP_TOKENS),
            arms=lambda pair: ours.arms(pair, grid.num_tokens),
            rows=ours.rows,
        )
        rows = typed(pd.DataFrame(run.rows()))
        sweep_checks.require_timed(rows)
        run.finish(ours.closing_facts())
        known = read_provenance(folder)[run.id]
    return Sweep(rows, known, folder, run.id)


class _Bench:
    """The state of one sweep while it runs: model, drafts, costs.

    `drafts` maps mechanism -> skip fraction -> what drafts.
    """

    def __init__(self, loaded, drafts, size: str, run: Run):
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.num_layers = loaded.source.num_layers
        self.drafts, self.size, self.file = drafts, size, run
        self.eos = frozenset(self.tokenizer.eos_token_ids)

    def prepare(self, prompt: Prompt, grid: Grid) -> None:
        """Threads, tie bound and costs, before anything is timed in pairs.

        A resumed run keeps the costs and the thread count that it began with.
        """
        self.first_prompt = self._ids(prompt)
        known = read_provenance(self.file.folder)[self.file.id]
        if not (self.file.resumed and "costs" in known):
            known = self._measure_costs(grid)
            self.file.note(**known)
        self.costs, self.tie_bound = known["costs"], known["tie_bound"]
        self.baseline_start = known["baseline_seconds_at_start"]
        self.verify = {int(m): v for m, v in self.costs["verify_ratio"].items()}
        blas.set_threads(max(1, self.costs["blas_threads"]))

    def closing_facts(self) -> dict[str, float]:
        """Drift of the baseline between start and end."""
        end = bench.baseline_seconds(self.model, self.first_prompt)
        return bench.drift(self.baseline_start, end)

    def _measure_costs(self, grid: Grid) -> dict[str, Any]:
        costs.choose_threads(self.model, context=self.first_prompt)
        found = costs.measure(
            self.model,
            context=self.first_prompt,
            rows=range(1, max(grid.draft_lengths) + 2),
            repeats=grid.cost_repeats,
            drafts={
                _cost_key(mechanism, fraction): draft
                for mechanism, by_fraction in self.drafts.items()
                for fraction, draft in by_fraction.items()
            },
        )
        return {
            "costs": found.to_json(),
            "tie_bound": lossless.tie_bound(self.model, self.first_prompt),
            "baseline_seconds_at_start": bench.baseline_seconds(
                self.model, self.first_prompt
            ),
        }

    def arms(self, pair: Pair, num_tokens: int) -> dict[str, Callable[[], Decoded]]:
        ids = self._ids(pair.prompt)
        common = {"num_tokens": num_tokens, "eos": self.eos}
        speculate = {TWO_CACHES: arms.shorter_list, ONE_CACHE: arms.one_cache}

        def arm(mechanism):
            return lambda: speculate[mechanism](
                self.model,
                self.drafts[mechanism][pair.skip_fraction],
                ids,
                num_draft_tokens=pair.num_draft_tokens,
                **common,
            )

        return {
            BASELINE: lambda: arms.plain(self.model, ids, **common),
            **{mechanism: arm(mechanism) for mechanism in self.drafts},
        }

    def rows(self, pair: Pair, block: Block) -> list[dict[str, Any]]:
        """One row a mechanism."""
        return [self._row(block, mechanism, pair) for mechanism in self.drafts]

    def _row(self, block: Block, mechanism: str, pair: Pair) -> dict[str, Any]:
        fraction = pair.skip_fraction
        verdict = bench.check_text(
            self.model,
            self._ids(pair.prompt),
            block,
            mechanism,
            self.tie_bound,
            f"{mechanism}, {fraction:.0%} skipped, {pair.num_draft_tokens} draft "
            f"tokens, prompt {pair.prompt.id}",
        )
        skipped = SkipDraft.middle(self.num_layers, fraction).whole_layers
        return {
            "size": self.size,
            "skip_fraction": _label(fraction),
            "skipped_layers": len(skipped),
            "prompt_id": pair.prompt.id,
            "domain": pair.prompt.domain,
            "repeat": pair.repeat,
            **sweep_rows.measured(
                block,
                mechanism,
                num_draft_tokens=pair.num_draft_tokens,
                cost_ratio=self.costs["cost_ratio"][_cost_key(mechanism, fraction)],
                verify_ratio=self.verify,
            ),
            "lossless": verdict.word,
            "ties": verdict.ties,
            "blas_threads": self.costs["blas_threads"],
            "device": device.kind(),
        }

    def _ids(self, prompt: Prompt) -> list[int]:
        return models.render_prompt(self.tokenizer, prompt.text)


def _drafts(loaded, skip_fractions: Sequence[float]) -> tuple[dict, dict[str, str]]:
    """mechanism -> skip fraction -> what drafts; and why a mechanism is left out.

    The post's shorter list is left out for architectures in which it drafts wrong.

    Raises:
        UnsupportedModelError: the engine refuses the model.
    """
    try:
        skips = {
            fraction: SkipDraft.middle(loaded.source.num_layers, fraction)
            for fraction in skip_fractions
        }
    except ValueError as error:
        raise StudyError(
            f"{loaded.source.name}: {error}. Way out: a model with more layers, or "
            "smaller skip_fractions"
        ) from None
    for skip in skips.values():
        sweep_checks.require_engine(loaded, skip)
    drafts: dict[str, dict] = {ONE_CACHE: skips}
    try:
        for skip in skips.values():
            check_shorter_list(loaded.model, skip)
    except models.UnsupportedModelError as error:
        return drafts, {TWO_CACHES: str(error)}
    shorter = {f: shorter_list_model(loaded.model, s) for f, s in skips.items()}
    return {TWO_CACHES: shorter, **drafts}, {}


def _chosen(drafts: dict, mechanisms: Sequence[str] | None, refused: dict) -> dict:
    """The drafts of the mechanisms that were asked for."""
    if mechanisms is None:
        return drafts
    for name in mechanisms:
        if name not in (TWO_CACHES, ONE_CACHE):
            raise StudyError(
                f"no mechanism {name!r}. Way out: {TWO_CACHES!r}, {ONE_CACHE!r} or both"
            )
        if name in refused:
            raise StudyError(refused[name])
    if not mechanisms:
        raise StudyError("mechanisms is empty. Way out: None for both")
    return {name: drafts[name] for name in drafts if name in mechanisms}


def _label(fraction: float) -> str:
    return f"{fraction:g}"


def _cost_key(mechanism: str, fraction: float) -> str:
    return f"{mechanism}, {_label(fraction)}"


def _key(row: Mapping[str, str]) -> tuple[str, str, str, str]:
    return (
        row["skip_fraction"],
        row["num_draft_tokens"],
        row["prompt_id"],
        row["repeat"],
    )
