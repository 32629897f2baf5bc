"""What a draft costs, as known before the first pair, and the speedup that promises.

Costs come from a profile of the machine; a draft that a profile cannot predict has its
c timed on its own. Prompt lookup runs no pass of any model, so its c is 0. Nothing
here knows a timing of the rounds that it predicts.

    known = DraftCosts(machine_profile(loaded), draft)
    known.speedup(rounds, tokens=40, context=128)     # S of the identity
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from selfspec import costs, models
from selfspec.costs import CostProfile
from selfspec.costs.profile import DRAFTED
from selfspec.costs.profiling import BUDGET
from selfspec.decoding import LookupDraft
from selfspec.study import sweep_checks
from selfspec.study.errors import StudyError
from selfspec.study.prompt_set import load_prompts


@dataclass(frozen=True)
class DraftCosts:
    """c, v and o of one draft in plain decoding steps.

    Attributes:
        profile: of the model and machine.
        draft: what drafts.
        timed: c, where the profile cannot predict the draft.
    """

    profile: CostProfile
    draft: Any
    timed: float | None = None

    def predictable(self) -> bool:
        """Whether the profile knows this kind of draft.

        Raises:
            ValueError: the draft does not fit the model.
        """
        if isinstance(self.draft, LookupDraft):
            return True
        try:
            self.profile.cost_ratio(self.draft)
        except TypeError:
            return False
        return True

    def cost_ratio(self, context: int, num_draft_tokens: int = DRAFTED) -> float:
        """c after `context` tokens, in rounds that draft that many."""
        if isinstance(self.draft, LookupDraft):
            return 0.0
        if self.timed is not None:
            return self.timed
        return self.profile.cost_ratio(self.draft, context, num_draft_tokens)

    def verify_ratio(self, rows: int, context: int) -> float:
        """v(rows) after that draft."""
        if isinstance(self.draft, LookupDraft) or self.timed is not None:
            return self.profile.verify_ratio(rows, context)
        return self.profile.draft_verify_ratio(self.draft, rows, context)

    def overhead_ratio(self, context: int) -> float:
        """o."""
        return self.profile.overhead_ratio(context)

    def round_cost(self, drafted: int, context: int) -> float:
        """c*D + v(D + 1) + o; with nothing drafted, the pass over one row and o."""
        drafting = drafted * self.cost_ratio(context, drafted) if drafted else 0.0
        passing = self.verify_ratio(drafted + 1, context)
        return drafting + passing + self.overhead_ratio(context)

    def speedup(
        self,
        rounds: Iterable[tuple[int, int]],
        tokens: int,
        context: int,
        plain: int = 0,
    ) -> float:
        """S: tokens emitted over what their rounds cost; NaN without rounds.

        Args:
            rounds: (drafted, accepted) of each.
            tokens: emitted in them, a last round cut short counting what it emitted.
            context: mean number of tokens in the cache.
            plain: how many of the rounds without a draft are plain steps that a rule
                chose, at a cost of 1; in the others a lookup found nothing.
        """
        counts = Counter(d for d, _ in rounds)
        counts[0] -= plain
        cost = plain + sum(
            count * self.round_cost(d, context) for d, count in counts.items()
        )
        return tokens / cost if cost else float("nan")


def machine_profile(
    loaded, *, budget: float = BUDGET, told: Callable[[str], None] = lambda why: None
) -> CostProfile:
    """What a step costs on this machine: kept from before, or measured now.

    Sets the BLAS threads at which plain decoding is fastest first, because every cost
    depends on them.

    Args:
        loaded: of `models.load`.
        budget: seconds of measuring; a profile of another budget is kept apart.
        told: called with the reason before measuring.

    Raises:
        StudyError: a model that is broken, or whose window is too short.
        UnsupportedModelError: a model whose blocks cannot be told apart.
    """
    [prompt] = load_prompts("calibration", 1)
    ids = models.render_prompt(loaded.tokenizer, prompt.text)
    sweep_checks.require_numbers(loaded, ids)
    costs.choose_threads(loaded.model, context=ids)
    own = {} if budget == BUDGET else {"budget": budget}
    key = costs.profile_key(loaded.source.to_json(), **own)
    try:
        return costs.profile_for(
            key, lambda: costs.measure_profile(loaded.model, budget=budget), told=told
        )
    except ValueError as error:
        raise StudyError(f"{error}. Way out: another model") from None


def timed_costs(
    model, profile: CostProfile, drafts: Mapping[str, Any]
) -> dict[str, float]:
    """c of the drafts that the profile cannot predict, each timed now, by label.

    Args:
        drafts: label -> what drafts.
    """
    return {
        label: costs.costs_of_draft(draft, model, profile)["cost_ratio"]
        for label, draft in drafts.items()
        if not DraftCosts(profile, draft).predictable()
    }
