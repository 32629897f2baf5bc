"""The post's experiment: skip a contiguous middle block, draft 2 to 5 tokens, time it.

For every skip fraction, draft length and prompt, plain decoding and each mechanism run
back to back; every timed pair is one row on disk before the next begins. The costs c
and v are measured before the first pair, so the prediction never sees the timings that
it predicts.

    sweep = naive_sweep.measure("smollm2-135m", size="smoke")
    sweep_summary.summarise(sweep.rows)      # one line a configuration
"""

import hashlib
import json
import random
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from tqdm import tqdm

from selfspec import blas, costs, models
from selfspec.decoding import (
    SkipDraft,
    check_shorter_list,
    lossless,
    shorter_list_model,
)
from selfspec.models import device
from selfspec.study import arms, provenance, sweep_checks, sweep_rows
from selfspec.study.errors import StudyError
from selfspec.study.paired import Decoded, run_block
from selfspec.study.prompt_set import Prompt, load_prompts, read_prompts
from selfspec.study.results import RESULTS, Run, read_provenance
from selfspec.study.sweep_grid import Grid, resolve_grid
from selfspec.study.sweep_summary import typed

EXPERIMENT = "naive-sweep"
BASELINE = "baseline"
TWO_CACHES = "two caches"  # the post's mechanism: mlx-lm's two-model loop
ONE_CACHE = "one cache"  # this project's engine: the draft works on the target's cache
WARM_UP_TOKENS = 4
DRIFT_TOKENS = 16


@dataclass(frozen=True)
class Sweep:
    """A finished run: its rows (one per timed pair), what is known of it, its folder."""

    rows: pd.DataFrame
    provenance: dict[str, Any]
    folder: Path
    run_id: str


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
        return (
            _label(self.skip_fraction),
            str(self.num_draft_tokens),
            self.prompt.id,
            str(self.repeat),
        )


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
    prompts = _prompts(prompts_file, grid.num_prompts)
    loaded = models.load(model)
    ids = {p.id: models.render_prompt(loaded.tokenizer, p.text) for p in prompts}
    sweep_checks.require_numbers(loaded, ids[prompts[0].id])
    drafts, refused = _drafts(loaded, grid.skip_fractions)
    drafts = _chosen(drafts, mechanisms, refused)
    sweep_checks.require_room(loaded, ids, grid.num_tokens + max(grid.draft_lengths))
    facts = provenance.collect(loaded.source, _command(model, size, prompts_file))
    folder = (
        Path(results) / provenance.machine_slug(facts["machine"]) / loaded.source.slug
    )
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
        EXPERIMENT,
        sweep_rows.COLUMNS,
        _fingerprint(facts, parameters, prompts),
        total=len(pairs) * len(drafts),
        provenance={
            **facts,
            "size": size,
            "parameters": parameters,
            "refused": refused,
        },
    ) as run:
        bench = _Bench(loaded, drafts, size, seed, run)
        bench.prepare(prompts[0], grid)
        bench.run(pairs, grid.num_tokens)
        rows = typed(pd.DataFrame(run.rows()))
        sweep_checks.require_timed(rows)
        run.finish(bench.closing_facts())
        known = read_provenance(folder)[run.id]
    return Sweep(rows, known, folder, run.id)


class _Bench:
    """The state of one sweep while it runs: model, drafts, costs, where rows go.

    `drafts` maps mechanism -> skip fraction -> what drafts.
    """

    def __init__(self, loaded, drafts, size: str, seed: int, run: Run):
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.num_layers = loaded.source.num_layers
        self.drafts, self.size, self.seed, self.file = drafts, size, seed, run
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

    def run(self, pairs: Sequence[Pair], num_tokens: int) -> None:
        """Time what is not on disk yet, one pair at a time."""
        done = {_key(row) for row in self.file.rows()}
        left = [pair for pair in pairs if pair.key not in done]
        configuration = None
        with tqdm(
            total=len(pairs),
            initial=len(pairs) - len(left),
            desc=EXPERIMENT,
            unit="pair",
        ) as bar:
            for pair in left:
                if configuration != pair.key[:2]:
                    configuration = pair.key[:2]
                    for arm in self._arms(pair, WARM_UP_TOKENS).values():
                        arm()
                rng = random.Random("/".join([str(self.seed), *pair.key]))
                block = run_block(self._arms(pair, num_tokens), rng)
                self.file.append(*(self._row(block, m, pair) for m in self.drafts))
                bar.update()

    def closing_facts(self) -> dict[str, Any]:
        """Drift of the baseline between start and end, as a ratio minus 1."""
        end = self._baseline_seconds()
        return {
            "baseline_seconds_at_end": end,
            "drift": end / self.baseline_start - 1,
        }

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
            "baseline_seconds_at_start": self._baseline_seconds(),
        }

    def _arms(self, pair: Pair, num_tokens: int) -> dict[str, Callable[[], Decoded]]:
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

    def _row(self, block, mechanism: str, pair: Pair) -> dict[str, Any]:
        fraction = pair.skip_fraction
        verdict = lossless.check(
            self.model,
            self._ids(pair.prompt),
            block.decoded[mechanism].tokens,
            baseline=block.decoded[BASELINE].tokens,
            tie_bound=self.tie_bound,
        )
        if not verdict.lossless:
            raise StudyError(
                f"{mechanism}, {fraction:.0%} skipped, {pair.num_draft_tokens} draft "
                f"tokens, prompt {pair.prompt.id}: token {verdict.position} is not the "
                "target's own. Way out: report it with provenance.json; the rows so "
                "far are kept"
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

    def _baseline_seconds(self) -> float:
        ids = self.first_prompt
        return median(
            arms.plain(self.model, ids, num_tokens=DRIFT_TOKENS).seconds_per_token
            for _ in range(3)
        )

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


def _prompts(prompts_file: str, count: int) -> list[Prompt]:
    if not prompts_file:
        return load_prompts("evaluation", count)
    prompts = read_prompts(Path(prompts_file))
    if len(prompts) < count:
        raise StudyError(
            f"{prompts_file} has {len(prompts)} prompts, the size asks for {count}. "
            "Way out: add prompts, or take a smaller size (in the notebook: "
            f"num_prompts={len(prompts)})"
        )
    return prompts[:count]


def _fingerprint(facts: dict, parameters: dict, prompts: Sequence[Prompt]) -> str:
    """Hash of code, parameters, prompts, model and machine: the same run, or another."""
    same = [
        facts["code"],
        facts["machine"],
        facts["model"],
        facts["versions"],
        parameters,
    ]
    same.append([prompt.text for prompt in prompts])
    text = json.dumps(same, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _command(model: str, size: str, prompts_file: str) -> str:
    """The command that measures the same, with files and folders by their names only."""
    shown = Path(model).name if Path(model).exists() else model
    words = ["selfspec", "study", "--model", shown, "--size", size]
    words += ["--experiment", EXPERIMENT]
    words += ["--prompts", Path(prompts_file).name] if prompts_file else []
    return shlex.join(words)


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
