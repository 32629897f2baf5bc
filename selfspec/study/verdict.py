"""Does any draft pay with this model on this machine? An answer within two minutes.

Costs are measured once and kept; drafts are compared by what they are expected to be
worth; the most promising are timed against plain decoding, pair by pair. The draft that
is best on some prompts is judged on the others, so that being picked as the best of
several does not flatter it.

    found = reach(models.load("smollm2-135m"))
    found.pays, found.paragraph()
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec import costs, models
from selfspec.costs.profiling import BUDGET
from selfspec.models.embedded import cache_folder
from selfspec.selection import Scorer, make_windows
from selfspec.study import draft_bench, draft_summary
from selfspec.study.candidates import Offer, Setting, offers, promising
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.known_costs import machine_profile
from selfspec.study.prompt_set import Prompt, load_prompts
from selfspec.study.run_records import DEVICES
from selfspec.study.statistics import FEWEST_PROMPTS

VERDICT = "verdict"
CHOOSING, JUDGING = 4, 8  # prompts; one and two of each domain
WINDOWS, WINDOW_TOKENS = 1, 24  # of the target's own text, on which drafts are scored
TIMED_SECONDS = 25.0  # what the pairs may take
SEARCH_SECONDS = 15.0  # what looking for drafts usually takes
SHORTEST, LONGEST = 16, 64  # tokens of a text


@dataclass(frozen=True)
class Verdict:
    """What was found.

    Attributes:
        table: one line a timed draft, of the prompts that choose.
        best: the line of the chosen draft, of the prompts that judge; None where no
            text was long enough to be timed.
        chosen: the draft itself.
        passed_over: drafts that were not timed, because too little is expected.
        facts: provenance of the run.
        folder: where its rows are.
    """

    table: pd.DataFrame
    best: dict[str, Any] | None
    chosen: Offer | None
    passed_over: tuple[Offer, ...]
    facts: dict[str, Any]
    folder: Path

    @property
    def pays(self) -> bool:
        """Whether the chosen draft's interval lies above 1."""
        return self.best is not None and self.best["verdict"] == "faster"

    def paragraph(self) -> str:
        """The answer in words."""
        machine = self.facts["machine"]
        device = DEVICES.get(machine["device"], machine["device"])
        rate = 1 / self.facts["costs"]["step_seconds"]
        begins = (
            f"{self.facts['model']['name']} on {machine['chip']} ({device}) decodes "
            f"about {rate:.3g} tokens/s plainly."
        )
        if self.best is None:
            return (
                f"{begins} Every text ended within its first round, so no draft could "
                "be timed."
            )
        best = self.best
        kept = best["acceptance_rate"]
        what = (
            f"{self.chosen.label} with {self.chosen.num_draft_tokens} draft tokens: "
            f"{best['speedup']:.2f} times the plain speed, {_interval(best)}, "
            + (
                "with nothing drafted"
                if math.isnan(kept)
                else f"with {kept:.0%} of its tokens kept"
            )
        )
        if self.pays:
            answer = (
                f"Self-speculation pays: {what}. In a program: "
                f"draft={self.chosen.code}, "
                f"num_draft_tokens={self.chosen.num_draft_tokens}."
            )
        else:
            answer = (
                f"Nothing pays here: the best of {len(self.table)} timed "
                f"draft{'s' if len(self.table) > 1 else ''} is {what}. Decode plainly, "
                'or use num_draft_tokens="auto", which declines by itself.'
            )
        return " ".join(filter(None, (begins, answer, self._passed_over())))

    def _passed_over(self) -> str:
        if not self.passed_over:
            return ""
        words = ", ".join(
            f"{offer.label} ({offer.predicted:.2f} expected)"
            for offer in self.passed_over
        )
        return f"Not timed, because too little is expected of them: {words}."


def reach(
    loaded,
    *,
    results: Path | None = None,
    budget: float = BUDGET,
    seconds: float = TIMED_SECONDS,
    stage: Callable[[str, float], AbstractContextManager] = lambda *_: nullcontext(),
) -> Verdict:
    """Find the draft that pays best, or go on with an interrupted search.

    Args:
        loaded: of `models.load`.
        results: where rows go, so that they can be gone on with; by default the user's
            cache folder, for a verdict is no study.
        budget: seconds in which costs are measured, if they are not known.
        seconds: that the pairs may take, roughly.
        stage: entered around what takes long, with words and the usual seconds.

    Raises:
        StudyError: a model that cannot be measured, or a text that is not its own.
        UnsupportedModelError: a model that cannot be drafted with.
        ResultsError: the rows cannot be kept.
    """
    with stage("measuring what a step costs (once)", budget):
        profile = machine_profile(loaded, budget=budget)
    with stage("looking for drafts that may pay", SEARCH_SECONDS):
        offered = offers(Setting(loaded, profile, _scorer(loaded)))
    tried = promising(offered)
    prompts = short_prompts(CHOOSING + JUDGING)
    run = draft_bench.measure(
        loaded,
        experiment=VERDICT,
        size=VERDICT,
        grid=grid(tried, tokens_for(profile, len(tried), len(prompts), seconds)),
        profile=profile,
        prompts=prompts,
        results=results or cache_folder() / "verdicts",
        extra_facts={"command": f"selfspec verdict --model {loaded.source.name}"},
    )
    table, best = judge(run.rows, [prompt.id for prompt in prompts[:CHOOSING]])
    chosen = None
    if best is not None:
        [chosen] = [offer for offer in tried if offer.label == best["draft"]]
    passed = tuple(offer for offer in offered if offer not in tried)
    return Verdict(table, best, chosen, passed, run.provenance, run.folder)


def judge(
    rows: pd.DataFrame, choosing: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Choose on some prompts, judge on the others.

    Args:
        rows: of the timed pairs.
        choosing: ids of the prompts on which the best draft is chosen.

    Returns:
        A line a draft of the choosing prompts, and the chosen draft's line of the
        others, or None where it has none.
    """
    chooses = rows["prompt_id"].isin(choosing)
    table = draft_summary.summarise(rows[chooses])
    if table.empty:
        return table, None
    best = table.loc[table["speedup"].idxmax()]
    judged = draft_summary.summarise(rows[~chooses & (rows["draft"] == best["draft"])])
    return table, None if judged.empty else judged.iloc[0].to_dict()


def grid(tried: Sequence[Offer], num_tokens: int) -> DraftGrid:
    """All drafts beside one baseline of each prompt, each once."""
    return DraftGrid(
        groups=(tuple(Case(o.label, o.draft, o.num_draft_tokens) for o in tried),),
        num_prompts=CHOOSING + JUDGING,
        num_tokens=num_tokens,
        calibration_prompts=1,
        calibration_tokens=SHORTEST,
        stop_at_eos=False,  # a short answer would leave little to time
    )


def tokens_for(
    profile: costs.CostProfile, drafts: int, prompts: int, seconds: float
) -> int:
    """How long texts may be for all pairs to take about that many seconds."""
    step = seconds / (prompts * (drafts + 1)) / profile.step_seconds
    return min(LONGEST, max(SHORTEST, round(step)))


def short_prompts(count: int) -> list[Prompt]:
    """Evaluation prompts, the shortest of each domain in turn: less time to read them."""
    every = load_prompts("evaluation")
    domains = list(dict.fromkeys(prompt.domain for prompt in every))
    by_length = sorted(every, key=lambda prompt: len(prompt.text))
    turns = {domain: [p for p in by_length if p.domain == domain] for domain in domains}
    ranked = [
        turns[domain][turn]
        for turn in range(max(map(len, turns.values())))
        for domain in domains
        if turn < len(turns[domain])
    ]
    return ranked[:count]


def _scorer(loaded) -> Scorer:
    prompts = [
        models.render_prompt(loaded.tokenizer, prompt.text)
        for prompt in load_prompts("calibration", WINDOWS)
    ]
    return Scorer(
        loaded.model, make_windows(loaded.model, prompts, num_tokens=WINDOW_TOKENS)
    )


def _interval(line: dict[str, Any]) -> str:
    if math.isnan(line["low"]):
        return f"no interval below {FEWEST_PROMPTS} prompts"
    return (
        f"95 % interval {line['low']:.2f} to {line['high']:.2f} over "
        f"{int(line['prompts'])} prompts"
    )
