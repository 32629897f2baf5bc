"""What a selector is given: a model's costs, a score for any draft, and the rules.

The score is the share of positions at which a draft's first token is the target's. A
problem counts how often it was asked and remembers the answers, so that selectors can
be compared by drafts scored and none pays twice. A plain function does as a scorer,
which is how the tests judge selectors by brute force.

    problem = Problem(Scorer(model, windows), profile, context=512, protected={0})
    problem.agreement(SkipDraft(mlp={12}))           # 0.93
    problem.candidate(SkipDraft(mlp={12}))           # with c beside it
"""

import math
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from selfspec.costs.profile import CostProfile
from selfspec.decoding.drafts import ShortlistDraft, SkipDraft
from selfspec.selection.frontier import Candidate, Frontier, dearest_first
from selfspec.selection.items import Item, draft_of, items_of, saved_microseconds

SEARCH_SECONDS = 60.0
BUDGETS = tuple(i / 20 for i in range(1, 20))  # shares of what can be saved


class Problem:
    """One choice to be made.

    Args:
        scorer: `selfspec.selection.Scorer`, or a function from a draft to its first-token
            agreement, 0 to 1.
        profile: measured costs of the model.
        context: tokens in the cache at which drafts are priced; default, the profile's.
        protected: layers of which nothing may be left out.
        shortlists: size -> tokens that the head would still score.
        budgets: shares of all that can be saved, at which a frontier is wanted.
        seed: of everything random.
        seconds: that a search may take.

    Raises:
        ValueError: a budget outside 0 to 1, or a layer that the model has not.
    """

    def __init__(
        self,
        scorer,
        profile: CostProfile,
        *,
        context: int | None = None,
        protected: Collection[int] = (),
        shortlists: Mapping[int, tuple[int, ...]] | None = None,
        budgets: Iterable[float] = BUDGETS,
        seed: int = 0,
        seconds: float = SEARCH_SECONDS,
    ):
        self.scorer, self.profile = scorer, profile
        self.context = profile.context if context is None else context
        self.items = items_of(
            profile, self.context, protected=protected, shortlists=shortlists
        )
        self.protected = frozenset(protected)
        self.budgets = tuple(sorted(set(budgets)))
        if not all(0 <= budget <= 1 for budget in self.budgets):
            raise ValueError(f"budgets are shares from 0 to 1, got {self.budgets}")
        self.seed, self.seconds = seed, seconds
        self._known: dict[Any, tuple[float, float]] = {}  # agreement, KL

    @property
    def evaluations(self) -> int:
        """Drafts that were scored so far."""
        return len(self._known)

    @property
    def num_layers(self) -> int:
        return self.profile.num_layers

    @property
    def blocks(self) -> tuple[Item, ...]:
        """The items but the shortlists."""
        return tuple(item for item in self.items if not item.tokens)

    @property
    def total(self) -> int:
        """Microseconds of all blocks that may be left out."""
        return sum(item.microseconds for item in self.blocks)

    def agreement(self, draft) -> float:
        """First-token agreement of a draft, asked for once.

        Raises:
            ValueError: the score is not a number from 0 to 1.
        """
        return self._score(draft)[0]

    def divergence(self, draft) -> float:
        """KL of the draft from the target in nats, which tells drafts apart that agree
        equally often; 0 where the scorer has none."""
        return self._score(draft)[1]

    def _score(self, draft) -> tuple[float, float]:
        if draft not in self._known:
            if callable(self.scorer):
                found, kl = float(self.scorer(draft)), 0.0
            else:
                score = self.scorer.score(draft)
                found, kl = float(score.agreement), float(score.kl)
            if not (math.isfinite(found) and 0 <= found <= 1):
                raise ValueError(
                    f"the score of {draft} is {found}, which is no share of tokens. "
                    "Way out: a model whose logits are numbers"
                )
            self._known[draft] = found, kl if math.isfinite(kl) else 0.0
        return self._known[draft]

    def loss(self, items: Iterable[Item]) -> float:
        """Share of positions that are lost without these items."""
        return 1.0 - self.agreement(draft_of(items))

    def candidate(self, draft) -> Candidate:
        """The draft with its cost and its score."""
        return Candidate(
            draft,
            self.profile.cost_ratio(draft, self.context),
            saved_microseconds(self.items, draft),
            self.agreement(draft),
        )

    def frontier(
        self, selector: str, drafts: Iterable[Any], began: tuple[float, int]
    ) -> Frontier:
        """Drafts of a selector as its frontier; the post's middle sets are always there.

        Its best sets are tried with each shortlist as well, so that a selector that
        knows nothing of the head is not judged without it.

        Args:
            began: of `start`.
        """
        drafts = list(drafts)
        every = [SkipDraft(), *drafts, *self.middle_drafts()]
        if drafts:
            every += self._with_shortlists([SkipDraft(), *drafts])
        candidates = dearest_first(map(self.candidate, dict.fromkeys(every)))
        seconds, evaluations = began
        return Frontier(
            selector,
            candidates,
            time.perf_counter() - seconds,
            self.evaluations - evaluations,
        )

    def _with_shortlists(self, drafts: Iterable[Any]) -> list[Any]:
        """At each budget, for each shortlist, the best set that saves it with that list."""
        plain = [
            self.candidate(draft)
            for draft in dict.fromkeys(drafts)
            if isinstance(draft, SkipDraft)
        ]
        found = []
        for item in (item for item in self.items if item.tokens):
            for budget in self.budgets:
                least = round(budget * self.total) - item.microseconds
                enough = [c for c in plain if c.saved >= least]
                if enough:
                    best = max(enough, key=lambda c: (c.agreement, c.saved))
                    found.append(ShortlistDraft(best.draft, item.tokens))
        return found

    def start(self) -> tuple[float, int]:
        """The moment at which a selector begins."""
        return time.perf_counter(), self.evaluations

    def middle_drafts(self) -> list[SkipDraft]:
        """The contiguous middle run of whole layers, one for every number of layers.

        Those that would leave out a protected layer are not among them.
        """
        runs = []
        for count in range(1, self.num_layers):
            first = (self.num_layers - count) // 2
            runs.append(range(first, first + count))
        return self.whole_layers(runs)

    def whole_layers(self, runs: Iterable[Iterable[int]]) -> list[SkipDraft]:
        """Drafts without these layers, up to the first that reaches the last budget.

        Those that would leave out a protected layer are not among them.

        Args:
            runs: layers of each, fewest first.
        """
        most = round(max(self.budgets, default=0.0) * self.total)
        found: list[SkipDraft] = []
        for run in map(frozenset, runs):
            if found and saved_microseconds(self.items, found[-1]) >= most:
                break
            if not run & self.protected:
                found.append(SkipDraft(run, run))
        return found
