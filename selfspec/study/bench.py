"""The bench: what every experiment does around its pairs, written once.

Pairs run back to back in a seeded order (paired.py), a pair is on disk before the next
one begins, every text is checked, and the baseline is timed at the start and at the end
so that a machine that throttles is found out. Which arms there are, and what a row
says, is the experiment's own business.

    time_pairs(run, pairs, seed=0, key_of_row=..., warm_up=..., arms=..., rows=...)
"""

import hashlib
import json
import random
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import pandas as pd
from tqdm import tqdm

from selfspec.decoding import lossless
from selfspec.study import arms as ways
from selfspec.study import provenance
from selfspec.study.errors import StudyError
from selfspec.study.paired import Block, Decoded, run_block
from selfspec.study.prompt_set import Prompt, load_prompts, read_prompts
from selfspec.study.results import Run

BASELINE = "baseline"
MLX_LM, ENGINE = "mlx-lm", "this engine"  # who decodes plainly
WARM_UP_TOKENS = 4
DRIFT_TOKENS = 16
DRIFT_REPEATS = 3

Arms = Mapping[str, Callable[[], Decoded]]


@dataclass(frozen=True)
class Sweep:
    """A finished run: its rows (one per timed pair), what is known of it, its folder."""

    rows: pd.DataFrame
    provenance: dict[str, Any]
    folder: Path
    run_id: str


class Pair(Protocol):
    """What is timed together: some arms on one prompt."""

    @property
    def key(self) -> tuple[str, ...]:
        """As the pair stands in a row, so that a resumed run knows what it has."""

    @property
    def configuration(self) -> Any:
        """Pairs of one configuration run one after the other and are warmed up once."""


def time_pairs(
    run: Run,
    pairs: Sequence[Pair],
    *,
    seed: int,
    key_of_row: Callable[[Mapping[str, str]], tuple[str, ...]],
    warm_up: Callable[[Pair], Arms],
    arms: Callable[[Pair], Arms],
    rows: Callable[[Pair, Block], Sequence[Mapping[str, Any]]],
) -> None:
    """Time what is not on disk yet, one pair at a time.

    Args:
        run: where rows go.
        pairs: all of them, those of a configuration together.
        seed: of the order of the arms within a pair.
        key_of_row: the key of the pair that a row on disk is of.
        warm_up: arms to run, untimed, before the first pair of a configuration.
        arms: the arms of a pair, the baseline among them.
        rows: what a timed pair gives; they are kept all together or not at all.
    """
    done = {key_of_row(row) for row in run.rows()}
    left = [pair for pair in pairs if pair.key not in done]
    warm = None
    with tqdm(
        total=len(pairs),
        initial=len(pairs) - len(left),
        desc=run.experiment,
        unit="pair",
        disable=None,  # quiet where nobody looks
    ) as bar:
        for pair in left:
            if pair.configuration != warm:
                warm = pair.configuration
                for arm in warm_up(pair).values():
                    arm()
            rng = random.Random("/".join([str(seed), *pair.key]))
            run.append(*rows(pair, run_block(arms(pair), rng)))
            bar.update()


def check_text(
    model, prompt: Sequence[int], block: Block, arm: str, tie_bound: float, what: str
) -> lossless.Verdict:
    """Whether an arm's text is the target's own.

    Args:
        what: names configuration and prompt in the error.

    Raises:
        StudyError: some token is not; nothing may be published from such a run.
    """
    verdict = lossless.check(
        model,
        prompt,
        block.decoded[arm].tokens,
        baseline=block.decoded[BASELINE].tokens,
        tie_bound=tie_bound,
    )
    if not verdict.lossless:
        raise StudyError(
            f"{what}: token {verdict.position} is not the target's own. Way out: "
            "report it with provenance.json; the rows so far are kept"
        )
    return verdict


def plain_arm(who: str) -> Callable[..., Decoded]:
    """Plain decoding as mlx-lm's loop does it, or as this engine's does."""
    if who == MLX_LM:
        return ways.plain
    return lambda model, prompt, **options: ways.one_cache(
        model, None, prompt, **options
    )


def faster_plain(model, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Whose plain decoding is faster here: the two in turn, on the same prompts.

    Returns:
        `chosen`, and the median seconds a token of each.
    """
    seconds: dict[str, list[float]] = {MLX_LM: [], ENGINE: []}
    for repeat in range(DRIFT_REPEATS + 1):
        for prompt in prompts:
            for who, found in seconds.items():
                timed = plain_arm(who)(model, prompt, num_tokens=DRIFT_TOKENS)
                if repeat:  # the first warms up
                    found.append(timed.seconds_per_token)
    medians = {who: median(found) for who, found in seconds.items()}
    return {"chosen": min(medians, key=medians.get), **medians}


def baseline_seconds(model, prompt: Sequence[int], who: str = MLX_LM) -> float:
    """Seconds of a plain token, to see whether the machine drifts."""
    return median(
        plain_arm(who)(model, prompt, num_tokens=DRIFT_TOKENS).seconds_per_token
        for _ in range(DRIFT_REPEATS)
    )


def drift(start: float, end: float) -> dict[str, float]:
    """What a run's provenance closes with: the baseline's move, as a ratio minus 1."""
    return {"baseline_seconds_at_end": end, "drift": end / start - 1}


def choose_prompts(prompts_file: str, count: int) -> list[Prompt]:
    """The evaluation prompts, or the first of the reader's own.

    Raises:
        StudyError: fewer prompts than asked for.
    """
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


def results_folder(results: str | Path, facts: Mapping[str, Any], source) -> Path:
    """results/<machine>/<model>."""
    return Path(results) / provenance.machine_slug(facts["machine"]) / source.slug


def fingerprint(
    facts: Mapping[str, Any], parameters: Mapping[str, Any], prompts: Sequence[Prompt]
) -> str:
    """Hash of code, parameters, prompts, model and machine: the same run, or another."""
    same = [
        *(facts[name] for name in ("code", "machine", "model", "versions")),
        parameters,
        [prompt.text for prompt in prompts],
    ]
    text = json.dumps(same, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def command(model: str, experiment: str, size: str, prompts_file: str) -> str:
    """The command that measures the same, with files and folders by their names only."""
    shown = Path(model).name if Path(model).exists() else model
    words = ["selfspec", "study", "--model", shown, "--size", size]
    words += ["--experiment", experiment]
    words += ["--prompts", Path(prompts_file).name] if prompts_file else []
    return shlex.join(words)
