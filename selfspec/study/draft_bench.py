"""Run a set of drafts against plain decoding, pair by pair, each beside its prediction.

The experiments "machine" and "auto" differ only in their grids. Costs come from a
profile that was measured before; then every case decodes a few prompts that are never
evaluated, for the prediction from held-out prompts and for what a rule that chooses its
own length believes at first; then the pairs are timed as bench.py does it.

    loaded = models.load("smollm2-135m")
    profile = known_costs.machine_profile(loaded)
    run = measure(loaded, experiment="auto", size="smoke", grid=grid, profile=profile)
    draft_summary.summarise(run.rows)        # one line a case
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec import blas, costs, models
from selfspec.decoding import lossless
from selfspec.models import device
from selfspec.study import arms, bench, draft_rows, provenance, sweep_checks
from selfspec.study.bench import BASELINE, WARM_UP_TOKENS, Sweep
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.draft_rows import HeldOut
from selfspec.study.errors import StudyError
from selfspec.study.known_costs import DraftCosts, timed_costs
from selfspec.study.long_text import LongText
from selfspec.study.paired import Block, Decoded
from selfspec.study.prompt_set import Prompt, load_prompts
from selfspec.study.results import RESULTS, Run, read_provenance
from selfspec.study.row_table import SAMPLED, typed

# The length at which a draft is calibrated whose rule will choose its own.
CALIBRATION_LENGTH = 3
PLAIN_PROMPTS = 4  # on which the two plain loops are compared


@dataclass(frozen=True)
class Group:
    """What is timed together: the cases of a group on one prompt."""

    cases: tuple[Case, ...]
    prompt: Prompt
    repeat: int

    @property
    def key(self) -> tuple[str, ...]:
        """The first case's row says whether the group is done: rows come together."""
        first = self.cases[0]
        return _key(
            first.label,
            first.num_draft_tokens,
            first.temperature,
            self.prompt.id,
            self.repeat,
        )

    @property
    def configuration(self) -> tuple[str, ...]:
        return tuple(case.name for case in self.cases)

    @property
    def sampling(self) -> dict[str, Any]:
        """How every arm chooses its tokens; the same draws whoever resumes the run."""
        temperature = self.cases[0].temperature
        if not temperature:
            return {}
        rng = random.Random(f"{self.prompt.id}/{self.repeat}")
        return {"temperature": temperature, "seed": rng.randrange(2**31)}


def measure(
    loaded,
    *,
    experiment: str,
    size: str,
    grid: DraftGrid,
    profile: costs.CostProfile,
    seed: int = 0,
    results: str | Path = RESULTS,
    prompts_file: str = "",
    extra_facts: Mapping[str, Any] | None = None,
    prompts: Sequence[Prompt] | None = None,
    held_out: Sequence[Prompt] | None = None,
    cost_ratios: Mapping[str, float] | None = None,
) -> Sweep:
    """Run the grid, or continue the run that was interrupted.

    Args:
        loaded: of `models.load`.
        experiment: names the results file.
        size: smoke, default or paper; kept with every row.
        profile: costs measured beforehand (`known_costs.machine_profile`).
        seed: of the order of groups and of the arms within a pair.
        results: folder of results/<machine>/<model>/<experiment>.csv.
        prompts_file: the reader's own prompts instead of the committed ones.
        extra_facts: kept in the run's provenance.
        prompts, held_out: what is evaluated, and what is not, in the place of the
            committed ones; at least as many as the grid asks for.
        cost_ratios: c of drafts whose labels they name, known beforehand in another way
            than from the profile.

    Raises:
        StudyError: a bad argument, or a text that is not the target's own.
        ModelError: a draft that the engine refuses on this model.
        ResultsError: results cannot be read or written.
    """
    if prompts is None:
        prompts = bench.choose_prompts(prompts_file, grid.num_prompts)
    if held_out is None:
        held_out = load_prompts("calibration", grid.calibration_prompts)
    prompts = list(prompts)[: grid.num_prompts]
    held_out = list(held_out)[: grid.calibration_prompts]
    _check(loaded, grid, profile, prompts, held_out)
    command = bench.command(loaded.source.name, experiment, size, prompts_file)
    facts = provenance.collect(loaded.source, command)
    folder = bench.results_folder(results, facts, loaded.source)
    groups = list(grid.groups)
    random.Random(f"{seed}/configurations").shuffle(groups)
    pairs = [
        Group(tuple(group), prompt, repeat)
        for group in groups
        for prompt in prompts
        for repeat in range(grid.repeats)
    ]
    parameters = {
        **grid.to_json(),
        "seed": seed,
        "size": size,
        "prompts": [prompt.id for prompt in prompts],
        "held_out": [prompt.id for prompt in held_out],
    }
    with Run.open(
        folder,
        experiment,
        draft_rows.COLUMNS,
        bench.fingerprint(facts, parameters, [*prompts, *held_out]),
        total=len(grid.cases) * len(prompts) * grid.repeats,
        provenance={
            **facts,
            "size": size,
            "parameters": parameters,
            **(extra_facts or {}),
        },
    ) as run:
        ours = _Bench(loaded, grid, size, run)
        ours.prepare(prompts, held_out, profile, cost_ratios or {})
        bench.time_pairs(
            run,
            pairs,
            seed=seed,
            key_of_row=lambda row: _key(*(row[name] for name in _KEY)),
            warm_up=ours.warm_up,
            arms=ours.arms,
            rows=ours.rows,
        )
        rows = typed(pd.DataFrame(run.rows()))
        sweep_checks.require_timed(rows)
        run.finish(ours.closing_facts())
        known = read_provenance(folder)[run.id]
    return Sweep(rows, known, folder, run.id)


class _Bench:
    """The state of one run: model, costs, what held-out prompts said."""

    def __init__(self, loaded, grid: DraftGrid, size: str, run: Run):
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.grid, self.size, self.file = grid, size, run
        self.eos = frozenset(self.tokenizer.eos_token_ids if grid.stop_at_eos else ())

    # Before the first pair

    def prepare(
        self,
        prompts: Sequence[Prompt],
        held_out: Sequence[Prompt],
        profile: costs.CostProfile,
        cost_ratios: Mapping[str, float],
    ) -> None:
        """Threads, costs, who decodes plainly, tie bound and calibration.

        A resumed run keeps what it began with.
        """
        self.first_prompt = self._ids(prompts[0])
        self.before = {
            context: LongText(self.model, self._other_text(context))
            for context in sorted({case.context for case in self.grid.cases} - {0})
        }
        known = read_provenance(self.file.folder)[self.file.id]
        if not (self.file.resumed and "calibration" in known):
            known = self._find_out(prompts, held_out, profile, cost_ratios)
            self.file.note(**known)
        self.plain = known["plain"]["chosen"]
        self._use(costs.CostProfile.from_json(known["profile"]), known["timed_costs"])
        self.tie_bound = known["tie_bound"]
        self.baseline_start = known["baseline_seconds_at_start"]
        self.held_out = {
            name: HeldOut.from_json(found)
            for name, found in known["calibration"].items()
        }

    def _use(self, profile: costs.CostProfile, timed: Mapping[str, float]) -> None:
        self.profile = profile
        blas.set_threads(max(1, profile.blas_threads))
        self.known = {
            case.label: DraftCosts(profile, case.draft, timed.get(case.label))
            for case in self.grid.cases
        }

    def _find_out(
        self,
        prompts: Sequence[Prompt],
        held_out: Sequence[Prompt],
        profile: costs.CostProfile,
        cost_ratios: Mapping[str, float],
    ) -> dict[str, Any]:
        blas.set_threads(max(1, profile.blas_threads))
        drafts = {case.label: case.draft for case in self.grid.cases}
        unknown = {k: draft for k, draft in drafts.items() if k not in cost_ratios}
        timed = {**cost_ratios, **timed_costs(self.model, profile, unknown)}
        self._use(profile, timed)
        self._calibrate(held_out)
        model, prompt = self.model, self.first_prompt
        plain = {"chosen": bench.MLX_LM}
        if self.grid.faster_baseline:
            few = [self._ids(prompt) for prompt in prompts[:PLAIN_PROMPTS]]
            plain = bench.faster_plain(model, few)
        return {
            "plain": plain,
            "profile": profile.to_json(),
            "timed_costs": timed,
            "costs": {  # in the words of a sweep's provenance, for tables of runs
                "step_seconds": profile.step_seconds,
                "verify_ratio": {
                    str(rows): profile.verify_ratio(rows)
                    for rows in profile.pass_seconds
                },
                "context_length": profile.context,
                "blas_threads": profile.blas_threads,
            },
            "calibration": {
                name: found.to_json() for name, found in self.held_out.items()
            },
            "tie_bound": lossless.tie_bound(model, prompt),
            "baseline_seconds_at_start": bench.baseline_seconds(
                model, prompt, plain["chosen"]
            ),
        }

    def _calibrate(self, held_out: Sequence[Prompt]) -> None:
        """Every case on prompts that are not evaluated; nothing is timed.

        A case whose rule chooses its own length needs an acceptance to begin with, so
        its draft is run at a fixed length first.
        """
        found = self.held_out = {}  # what a rule that comes later believes
        for case in self.grid.cases:
            if case.is_auto:
                fixed = _fixed(case)
                if fixed.name not in found:
                    found[fixed.name] = self._held_out(fixed, held_out)
            if case.name not in found:
                found[case.name] = self._held_out(case, held_out)

    def _held_out(self, case: Case, prompts: Sequence[Prompt]) -> HeldOut:
        decoded = [
            self._arm(case, Group((case,), prompt, 0), self.grid.calibration_tokens)()
            for prompt in prompts
        ]
        return HeldOut(
            rounds=tuple(d.rounds for d in decoded),
            tokens=sum(len(d.tokens) for d in decoded),
            plain=sum(sum(d.plain) for d in decoded),
        )

    # Pairs

    def arms(self, pair: Group) -> dict[str, Callable[[], Decoded]]:
        count = self.grid.num_tokens
        return {
            BASELINE: self._plain_arm(pair, count, eos=self.eos),
            **{case.name: self._arm(case, pair, count) for case in pair.cases},
        }

    def warm_up(self, pair: Group) -> dict[str, Callable[[], Decoded]]:
        """A rule might decline at once, so its draft is warmed up at a fixed length."""
        fixed = [_fixed(case) if case.is_auto else case for case in pair.cases]
        return {
            BASELINE: self._plain_arm(pair, WARM_UP_TOKENS),
            **{case.name: self._arm(case, pair, WARM_UP_TOKENS) for case in fixed},
        }

    def _plain_arm(self, pair: Group, count: int, **options: Any) -> Callable:
        plain, ids = bench.plain_arm(self.plain), self._ids(pair.prompt)
        return lambda: plain(
            self.model,
            ids,
            num_tokens=count,
            **self._cache(pair),
            **pair.sampling,
            **options,
        )

    def _arm(self, case: Case, pair: Group, count: int) -> Callable:
        ids = self._ids(pair.prompt)
        common = {"num_tokens": count, "eos": self.eos, **pair.sampling}
        if case.match:
            common["match"] = True
        if not case.is_auto:
            return lambda: arms.one_cache(
                self.model,
                case.draft,
                ids,
                num_draft_tokens=case.num_draft_tokens,
                **self._cache(pair),
                **common,
            )
        return lambda: arms.one_cache(
            self.model,
            case.draft,
            ids,
            policy=self._policy(case, pair, count),
            **self._cache(pair),
            **common,
        )

    def _cache(self, pair: Group) -> dict[str, Any]:
        """A fresh cache of what is read before the prompt, for one arm."""
        context = pair.cases[0].context
        return {"prompt_cache": self.before[context].cache()} if context else {}

    def _policy(self, case: Case, pair: Group, count: int):
        """The rule that declines, fresh: it learns from one text and forgets it."""
        acceptance = self.held_out[_fixed(case).name].per_token_acceptance
        believed = {"acceptance": acceptance} if acceptance == acceptance else {}
        return costs.DeclinePolicy(
            case.draft,
            **costs.costs_of_draft(
                case.draft, self.model, self.profile, self._context(pair, count)
            ),
            **believed,
        )

    def rows(self, pair: Group, block: Block) -> list[dict[str, Any]]:
        """One row a case."""
        return [self._row(pair, case, block) for case in pair.cases]

    def _row(self, pair: Group, case: Case, block: Block) -> dict[str, Any]:
        verdict = lossless.Verdict(SAMPLED)  # its promise is a distribution
        if not case.temperature:
            before = self.before[case.context].ids if case.context else []
            verdict = bench.check_text(
                self.model,
                [*before, *self._ids(pair.prompt)],
                block,
                case.name,
                self.tie_bound,
                f"{case.name} draft tokens, prompt {pair.prompt.id}",
            )
        return {
            "size": self.size,
            "prompt_id": pair.prompt.id,
            "domain": pair.prompt.domain,
            "repeat": pair.repeat,
            **draft_rows.measured(
                block,
                case,
                known=self.known[case.label],
                context=self._context(pair, self.grid.num_tokens),
                held_out=self.held_out[case.name],
            ),
            "lossless": verdict.word,
            "ties": verdict.ties,
            "blas_threads": self.profile.blas_threads,
            "device": device.kind(),
        }

    def closing_facts(self) -> dict[str, float]:
        """Drift of the baseline between start and end."""
        end = bench.baseline_seconds(self.model, self.first_prompt, self.plain)
        return bench.drift(self.baseline_start, end)

    def _ids(self, prompt: Prompt) -> list[int]:
        return models.render_prompt(self.tokenizer, prompt.text)

    def _context(self, pair: Group, count: int) -> int:
        """Tokens in the cache on average: all before the text, and half of it."""
        return pair.cases[0].context + len(self._ids(pair.prompt)) + count // 2

    def _other_text(self, length: int) -> list[int]:
        """That many tokens of the calibration prompts, over and over."""
        text = [
            token
            for prompt in load_prompts("calibration")
            for token in models.encode_text(self.tokenizer, prompt.text)
        ]
        return (text * (1 + length // len(text)))[:length]


_KEY = ("draft", "num_draft_tokens", "temperature", "prompt_id", "repeat")


def _fixed(case: Case) -> Case:
    """The case at the length at which a rule's draft is calibrated."""
    return replace(case, num_draft_tokens=CALIBRATION_LENGTH)


def _key(*values) -> tuple[str, ...]:
    return tuple(map(str, values))


def _check(
    loaded,
    grid: DraftGrid,
    profile: costs.CostProfile,
    prompts: Sequence[Prompt],
    held_out: Sequence[Prompt],
) -> None:
    """What cannot be measured is told in one line, before anything is."""
    ids = {
        p.id: models.render_prompt(loaded.tokenizer, p.text)
        for p in (*prompts, *held_out)
    }
    sweep_checks.require_numbers(loaded, ids[prompts[0].id])
    longest_rule = max(profile.pass_seconds) - 1
    lengths = [longest_rule if c.is_auto else c.num_draft_tokens for c in grid.cases]
    most = max(grid.num_tokens, grid.calibration_tokens) + max(lengths)
    most += max(case.context for case in grid.cases)
    sweep_checks.require_room(loaded, ids, most)
    for case in grid.cases:
        try:
            DraftCosts(profile, case.draft).predictable()  # refuses what does not fit
            sweep_checks.require_engine(loaded, case.draft)
        except ValueError as error:
            raise StudyError(
                f"{loaded.source.name}, {case.label}: {error}. "
                "Way out: drafts that fit this model"
            ) from None
