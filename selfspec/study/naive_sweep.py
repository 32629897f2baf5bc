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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
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
from selfspec.study import arms, provenance
from selfspec.study.errors import StudyError
from selfspec.study.paired import Block, Decoded, run_block
from selfspec.study.prompt_set import Prompt, load_prompts, read_prompts
from selfspec.study.results import RESULTS, Run, read_provenance
from selfspec.study.statistics import repeated_ngram_share
from selfspec.study.sweep_summary import typed

EXPERIMENT = "naive-sweep"
TWO_CACHES = "two caches"  # the post's mechanism
MECHANISMS = (TWO_CACHES,)
WARM_UP_TOKENS = 4
DRIFT_TOKENS = 24


@dataclass(frozen=True)
class Grid:
    """How much is measured: every skip fraction x draft length x prompt x repeat."""

    skip_fractions: tuple[float, ...]
    draft_lengths: tuple[int, ...]
    num_prompts: int
    num_tokens: int
    repeats: int = 1

    def __post_init__(self):
        checks = {
            "skip_fractions must lie between 0 and 1": self.skip_fractions
            and all(0 < f < 1 for f in self.skip_fractions),
            "draft_lengths must be at least 1": self.draft_lengths
            and all(isinstance(k, int) and k >= 1 for k in self.draft_lengths),
            "num_prompts must be at least 1": self.num_prompts >= 1,
            "repeats must be at least 1": self.repeats >= 1,
            # room for a first round and timed rounds after it
            "num_tokens must be at least twice the longest draft + 2": self.num_tokens
            >= 2 * (max(self.draft_lengths, default=0) + 1),
        }
        for rule, holds in checks.items():
            if not holds:
                raise StudyError(f"{rule}, got {self}")

    @property
    def configurations(self) -> list[tuple[float, int]]:
        """(skip fraction, draft length) pairs, in reading order."""
        return [(f, k) for f in self.skip_fractions for k in self.draft_lengths]


SIZES = {
    "smoke": Grid((0.1, 0.5), (2,), num_prompts=2, num_tokens=16),
    "default": Grid((0.1, 0.3, 0.5), (2, 5), num_prompts=6, num_tokens=24),
    "paper": Grid((0.1, 0.2, 0.3, 0.5), (2, 3, 5), num_prompts=8, num_tokens=64),
}

COLUMNS = (
    "size mechanism skip_fraction num_draft_tokens skipped_layers prompt_id domain repeat"
    " order baseline_tokens baseline_prefill_seconds baseline_decode_seconds"
    " baseline_decode_tokens baseline_peak_bytes tokens prefill_seconds decode_seconds"
    " decode_tokens peak_bytes speedup rounds drafted accepted first_drafted first_accepted"
    " drafted_accepted_per_round lossless ties repeated_ngram_share cost_ratio verify_ratio"
    " predicted_speedup blas_threads device"
).split()


@dataclass(frozen=True)
class Sweep:
    """A finished run: its rows (one per timed pair), what is known of it, its folder."""

    rows: pd.DataFrame
    provenance: dict[str, Any]
    folder: Path
    run_id: str


def resolve_grid(size: str, **overrides: Any) -> Grid:
    """The grid of `size`, with every override that is not None.

    Raises:
        StudyError: unknown size, or values outside the grid's rules.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    for name in ("skip_fractions", "draft_lengths"):
        if name in given:
            given[name] = tuple(given[name])
    return Grid(**{**asdict(SIZES[size]), **given})


def measure(
    model: str = "smollm2-135m",
    *,
    size: str = "default",
    skip_fractions: Sequence[float] | None = None,
    draft_lengths: Sequence[int] | None = None,
    num_prompts: int | None = None,
    num_tokens: int | None = None,
    repeats: int | None = None,
    prompts_file: str = "",
    seed: int = 0,
    results: str | Path = RESULTS,
) -> Sweep:
    """Run the sweep, or continue the one that was interrupted.

    Args:
        model: alias, hub name or folder, as `selfspec.load` takes it.
        size: smoke, default or paper; the next five arguments override parts of it.
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
    drafts = _drafts(loaded, grid.skip_fractions)
    facts = provenance.collect(loaded.source, _command(model, size))
    folder = (
        Path(results) / provenance.machine_slug(facts["machine"]) / loaded.source.slug
    )
    pairs = [
        (fraction, length, prompt, repeat)
        for fraction, length in _shuffled(grid.configurations, seed)
        for prompt in prompts
        for repeat in range(grid.repeats)
    ]
    parameters = {
        **asdict(grid),
        "seed": seed,
        "size": size,
        "prompts": [prompt.id for prompt in prompts],
    }
    with Run.open(
        folder,
        EXPERIMENT,
        COLUMNS,
        _fingerprint(facts, parameters, prompts),
        total=len(pairs) * len(MECHANISMS),
        provenance={**facts, "size": size, "parameters": parameters},
    ) as run:
        bench = _Bench(loaded, drafts, grid, size, seed, run)
        bench.prepare(prompts[0])
        bench.run(pairs)
        run.finish(bench.closing_facts())
        rows = pd.DataFrame(run.rows())
        known = read_provenance(folder)[run.id]
    return Sweep(typed(rows), known, folder, run.id)


class _Bench:
    """The state of one sweep while it runs: model, drafts, costs, where rows go."""

    def __init__(self, loaded, drafts, grid: Grid, size: str, seed: int, run: Run):
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.drafts, self.grid, self.size, self.seed = drafts, grid, size, seed
        self.run_file = run
        self.eos = frozenset(self.tokenizer.eos_token_ids)
        self.costs: dict[str, Any] = {}

    def prepare(self, prompt: Prompt) -> None:
        """Threads, tie bound and costs, before anything is timed in pairs.

        A resumed run keeps the costs and the thread count that it began with.
        """
        ids = models.render_prompt(self.tokenizer, prompt.text)
        known = read_provenance(self.run_file.folder)[self.run_file.id]
        if self.run_file.resumed and "costs" in known:
            self.costs, self.tie_bound = known["costs"], known["tie_bound"]
            blas.set_threads(max(1, self.costs["blas_threads"]))
            self.baseline_start = known["baseline_seconds_at_start"]
            return
        costs.choose_threads(self.model, context=ids)
        self.tie_bound = lossless.tie_bound(self.model, ids)
        self.costs = costs.measure(
            self.model,
            context=ids,
            rows=range(1, max(self.grid.draft_lengths) + 2),
            drafts={_label(f): d for f, d in self.drafts.items()},
        ).to_json()
        self.drift_ids = ids
        self.baseline_start = self._baseline_seconds(ids)
        self.run_file.note(
            costs=self.costs,
            tie_bound=self.tie_bound,
            baseline_seconds_at_start=self.baseline_start,
        )

    def run(self, pairs: Sequence[tuple[float, int, Prompt, int]]) -> None:
        """Time what is not on disk yet, one pair at a time."""
        done = {_key(row) for row in self.run_file.rows()}
        left = [
            p
            for p in pairs
            if (_label(p[0]), str(p[1]), p[2].id, str(p[3])) not in done
        ]
        self.drift_ids = models.render_prompt(self.tokenizer, pairs[0][2].text)
        warm = None
        with tqdm(
            total=len(pairs),
            initial=len(pairs) - len(left),
            desc=EXPERIMENT,
            unit="pair",
        ) as bar:
            for fraction, length, prompt, repeat in left:
                ids = models.render_prompt(self.tokenizer, prompt.text)
                if warm != (fraction, length):
                    for arm in self._arms(
                        ids, fraction, length, WARM_UP_TOKENS
                    ).values():
                        arm()
                    warm = (fraction, length)
                rng = random.Random(
                    f"{self.seed}/{fraction}/{length}/{prompt.id}/{repeat}"
                )
                arms_ = self._arms(ids, fraction, length, self.grid.num_tokens)
                block = run_block(arms_, rng)
                self.run_file.append(
                    *(
                        self._row(
                            block, mechanism, fraction, length, prompt, repeat, ids
                        )
                        for mechanism in MECHANISMS
                    )
                )
                bar.update()

    def closing_facts(self) -> dict[str, Any]:
        """Drift of the baseline between start and end, as a ratio minus 1."""
        end = self._baseline_seconds(self.drift_ids)
        return {
            "baseline_seconds_at_end": end,
            "drift": end / self.baseline_start - 1,
        }

    def _arms(
        self, ids: list[int], fraction: float, length: int, num_tokens: int
    ) -> dict[str, Callable[[], Decoded]]:
        common = {"num_tokens": num_tokens, "eos": self.eos}
        return {
            "baseline": lambda: arms.plain(self.model, ids, **common),
            TWO_CACHES: lambda: arms.shorter_list(
                self.model,
                self.drafts[fraction],
                ids,
                num_draft_tokens=length,
                **common,
            ),
        }

    def _baseline_seconds(self, ids: list[int]) -> float:
        timed = [
            arms.plain(self.model, ids, num_tokens=DRIFT_TOKENS).seconds_per_token
            for _ in range(3)
        ]
        return sorted(timed)[1]

    def _row(
        self,
        block: Block,
        mechanism: str,
        fraction: float,
        length: int,
        prompt: Prompt,
        repeat: int,
        ids: list[int],
    ) -> dict[str, Any]:
        base, variant = block.decoded["baseline"], block.decoded[mechanism]
        verdict = lossless.check(
            self.model,
            ids,
            variant.tokens,
            baseline=base.tokens,
            tie_bound=self.tie_bound,
        )
        if not verdict.lossless:
            raise StudyError(
                f"{mechanism}, {fraction:.0%} skipped, {length} draft tokens, prompt "
                f"{prompt.id}: token {verdict.position} is not the target's own. "
                "Way out: report it with provenance.json; the rows so far are kept"
            )
        cost_ratio = self.costs["cost_ratio"][_label(fraction)]
        verify = {int(m): v for m, v in self.costs["verify_ratio"].items()}
        attempted = [r for r in variant.rounds if r[0] > 0]
        return {
            "size": self.size,
            "mechanism": mechanism,
            "skip_fraction": _label(fraction),
            "num_draft_tokens": length,
            "skipped_layers": len(self._skipped(fraction)),
            "prompt_id": prompt.id,
            "domain": prompt.domain,
            "repeat": repeat,
            "order": " > ".join(block.order),
            **{f"baseline_{name}": value for name, value in _figures(base).items()},
            **_figures(variant),
            "speedup": _number(block.speedup(mechanism)),
            "rounds": len(variant.rounds),
            "drafted": sum(drafted for drafted, _ in variant.rounds),
            "accepted": sum(accepted for _, accepted in variant.rounds),
            "first_drafted": len(attempted),
            "first_accepted": sum(accepted > 0 for _, accepted in attempted),
            "drafted_accepted_per_round": " ".join(
                f"{d}:{a}" for d, a in variant.rounds
            ),
            "lossless": verdict.word,
            "ties": verdict.ties,
            "repeated_ngram_share": _number(repeated_ngram_share(variant.tokens)),
            "cost_ratio": _number(cost_ratio),
            "verify_ratio": _number(verify[length + 1]),
            "predicted_speedup": _number(
                predicted(variant, cost_ratio=cost_ratio, verify_ratio=verify)
            ),
            "blas_threads": self.costs["blas_threads"],
            "device": device.kind(),
        }

    def _skipped(self, fraction: float) -> frozenset[int]:
        num_layers = len(self.model.layers)
        return SkipDraft.middle(num_layers, fraction).whole_layers


def predicted(
    decoded: Decoded, *, cost_ratio: float, verify_ratio: Mapping[int, float]
) -> float:
    """S that the identity gives for the timed rounds (all but the first), with o = 0.

    The sums of the identity: tokens emitted over the sum of c*D + v(D + 1), so that a
    last round cut short by the token limit counts what it drafted and emitted. NaN when
    no round was timed.
    """
    timed = decoded.rounds[1:]
    if not timed:
        return float("nan")
    cost = sum(cost_ratio * drafted + verify_ratio[drafted + 1] for drafted, _ in timed)
    return decoded.decode_tokens / cost


def _drafts(loaded, skip_fractions: Sequence[float]) -> dict[float, Any]:
    """skip fraction -> the post's draft model, once the self-test lets it through."""
    drafts = {}
    for fraction in skip_fractions:
        skip = SkipDraft.middle(loaded.source.num_layers, fraction)
        check_shorter_list(loaded.model, skip)
        drafts[fraction] = shorter_list_model(loaded.model, skip)
    return drafts


def _prompts(prompts_file: str, count: int) -> list[Prompt]:
    if not prompts_file:
        return load_prompts("evaluation", count)
    prompts = read_prompts(Path(prompts_file))
    if len(prompts) < count:
        raise StudyError(
            f"{prompts_file} has {len(prompts)} prompts, the size asks for {count}. "
            f"Way out: add prompts, or num_prompts={len(prompts)}"
        )
    return prompts[:count]


def _shuffled(configurations: list, seed: int) -> list:
    random.Random(f"{seed}/configurations").shuffle(configurations)
    return configurations


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


def _command(model: str, size: str) -> str:
    shown = Path(model).name if Path(model).exists() else model
    return f"selfspec study --model {shown} --size {size} --experiment {EXPERIMENT}"


def _figures(decoded: Decoded) -> dict[str, Any]:
    return {
        "tokens": len(decoded.tokens),
        "prefill_seconds": _number(decoded.prefill_seconds),
        "decode_seconds": _number(decoded.decode_seconds),
        "decode_tokens": decoded.decode_tokens,
        "peak_bytes": decoded.peak_bytes,
    }


def _label(fraction: float) -> str:
    return f"{fraction:g}"


def _key(row: Mapping[str, str]) -> tuple[str, str, str, str]:
    return (
        row["skip_fraction"],
        row["num_draft_tokens"],
        row["prompt_id"],
        row["repeat"],
    )


def _number(value: float) -> float:
    return float(f"{value:.6g}")
