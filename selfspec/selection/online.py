"""Choosing again while decoding: which draft fits the text that is being written?

A DraftPolicy over a few candidate drafts, such as those of a frontier. Now and then it
scores some of them on the last rows of the text: the target's keys and values are in the
cache already and its tokens are the text itself, so a score is one pass of the draft
over those rows and nothing of the target. What was seen fades, and the candidate with
the best expected S drafts, at its best length; or nothing does. When to choose again is
a choice of its own: after so many tokens, when a longer context has changed the costs,
or when acceptance falls below what was expected. The seconds that it takes are spent
inside a round, so they count in o, and are told apart in `seconds`.

    cache = make_prompt_cache(model)
    policy = OnlinePolicy(drafts, model, cache, profile, interval=64)
    generate_step(prompt, model, prompt_cache=cache, draft=drafts[0], policy=policy)
    policy.seconds, policy.choices
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from selfspec.costs.decline import Rate
from selfspec.costs.draft_length import best_draft_length, expected_speedup
from selfspec.costs.profile import CostProfile
from selfspec.decoding.caches import WindowCache
from selfspec.decoding.drafts import ShortlistDraft
from selfspec.decoding.policy import Choice
from selfspec.decoding.skip import skipping_layers
from selfspec.decoding.trace import Round
from selfspec.models import device
from selfspec.models.blocks import find_stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.selection.passes import Past

READABLE = (KVCache, WindowCache)
INTERVAL, COST, DRIFT = "interval", "cost", "drift"
TRIGGERS = (INTERVAL, COST, DRIFT)
ROWS = 16  # of the text that a score looks at
EVERY = 128  # tokens between two choices; from the study's measured curve
PER_CHOICE = 1  # candidates scored each time, besides what rounds told of the current
COST_STEP = 0.1  # share by which a plain step grows before costs are looked at again
DRIFT_DEVIATIONS = 2.0
MEMORY = 256.0  # tokens after which what was seen counts half
PRIOR = 4.0  # tokens that the opinion beforehand counts for
LIMIT = 8  # longest draft


@dataclass(frozen=True)
class Reselection:
    """One time that the policy chose.

    Attributes:
        tokens: length of the text.
        chosen: number of the candidate.
        num_draft_tokens: its length; 0 declined.
        seconds: that choosing took.
    """

    tokens: int
    chosen: int
    num_draft_tokens: int
    seconds: float


class OnlinePolicy:
    """A DraftPolicy that re-selects among candidates.

    Args:
        candidates: skip or shortlist drafts; the first one begins.
        model: the target.
        prompt_cache: the list of caches that the generation runs on, which must hold
            keys and values as they are (no quantised cache, no ring).
        profile: costs of the model on this machine.
        agreements: first-token agreement of each candidate as known beforehand.
        trigger: "interval", "cost" or "drift".
        interval: tokens between two choices; for "cost" and "drift" the least number.
            0 never chooses again.
        rows: of the text that a score looks at.
        per_choice: candidates that are scored each time.
        declines: whether it may answer with no draft at all.
        limit: longest draft.

    Raises:
        ValueError: no candidates, or an argument out of range.
        TypeError: a candidate that a profile cannot price.
        UnsupportedModelError: a cache that cannot be looked at.
    """

    def __init__(
        self,
        candidates: Sequence[Any],
        model,
        prompt_cache: list,
        profile: CostProfile,
        *,
        agreements: Sequence[float] | None = None,
        trigger: str = INTERVAL,
        interval: int = EVERY,
        rows: int = ROWS,
        per_choice: int = PER_CHOICE,
        declines: bool = True,
        limit: int = LIMIT,
    ):
        if not candidates or (agreements and len(agreements) != len(candidates)):
            raise ValueError("candidates, and one agreement for each, or none at all")
        if trigger not in TRIGGERS:
            raise ValueError(
                f"trigger must be one of {', '.join(TRIGGERS)}, got {trigger!r}"
            )
        if interval < 0 or rows < 1 or per_choice < 1 or limit < 1:
            raise ValueError(
                "interval must be 0 or more, rows, per_choice and limit 1 or more, got "
                f"{interval}, {rows}, {per_choice} and {limit}"
            )
        self.candidates, self.model = list(candidates), model
        self.cache, self.profile = prompt_cache, profile
        self.trigger, self.interval, self.rows = trigger, interval, rows
        self.per_choice, self.declines, self.limit = per_choice, declines, limit
        strange = {type(e).__name__ for e in prompt_cache if type(e) not in READABLE}
        if strange:
            raise UnsupportedModelError(
                f"{name_of(model)}: keys and values of {'/'.join(sorted(strange))} "
                "cannot be looked at while decoding. Way out: a fixed draft, or "
                'num_draft_tokens="auto"'
            )
        beforehand = agreements or [0.5] * len(self.candidates)
        self.rates = [Rate(share, PRIOR) for share in beforehand]
        self.stack = find_stack(model)
        self._layers: dict[int, list] = {}
        self.text: list[int] = []
        self.seconds = 0.0
        self.choices: list[Reselection] = []
        self._next = 0  # candidate that is scored next
        self._context = 0  # at which costs were last looked at
        self._expected = 1.0  # acceptance when it last chose
        self._since = Rate(0.5, 1e-9)  # first tokens kept since then
        self._costs: list[dict] = []
        self._base = 0  # position in the cache of the text's first token
        self._price()
        self._decide(time.perf_counter())

    # DraftPolicy

    def begin(self, text: list[int]) -> None:
        """Told by the loop once: the text so far, a list that grows as it is written."""
        self.text = text
        # the cache stands at all of the text but its last token
        self._base = min(entry.offset for entry in self.cache) - (len(text) - 1)

    def choose(self) -> Choice:
        if self._due():
            self._reselect()
        return self.current

    def record(self, finished: Round) -> None:
        if not finished.drafted:
            return
        kept = finished.accepted > 0
        rate = self.rates[self._number()]
        for seen in (rate, self._since):
            seen.kept += kept
            seen.rejected += not kept

    # Inside

    def _number(self) -> int:
        return self.candidates.index(self.current.draft)

    def _due(self) -> bool:
        last = self.choices[-1].tokens if self.choices else 0
        if not self.interval or len(self.text) - last < self.interval:
            return False
        if self.trigger == COST:
            now, then = (self.profile.step(n) for n in (len(self.text), self._context))
            return now > (1 + COST_STEP) * then
        if self.trigger == DRIFT:
            seen = self._since
            count = seen.kept + seen.rejected
            if count < 4:
                return False
            share = seen.kept / count
            spread = max(self._expected * (1 - self._expected) / count, 1e-4) ** 0.5
            return share < self._expected - DRIFT_DEVIATIONS * spread
        return True

    def _reselect(self) -> None:
        started = time.perf_counter()
        self._price()
        fade = 0.5 ** (max(1, self.interval) / MEMORY)
        for rate in self.rates:
            rate.fade(fade)
        for _ in range(min(self.per_choice, len(self.candidates))):
            agreed = self.score(self._next)
            rate = self.rates[self._next]
            rate.kept += sum(agreed)
            rate.rejected += len(agreed) - sum(agreed)
            self._next = (self._next + 1) % len(self.candidates)
        self._decide(started)

    def score(self, number: int) -> list[bool]:
        """Whether a candidate says what the text says, at each of the last rows.

        The last token of the text is what the last row must say.
        """
        count = min(self.rows, len(self.text) - 2)
        if count < 1:
            return []
        begin = len(self.text) - 1 - count
        first, ids = self._base + begin, mx.array([self.text[begin : begin + count]])
        starts = mx.arange(count)
        entries = [
            Past(
                entry.keys[..., : first + count, :],
                entry.values[..., : first + count, :],
                getattr(entry, "window", None),
                first,
                starts,
            )
            for entry in self.cache
        ]
        draft = self.candidates[number]
        inner = draft.draft if isinstance(draft, ShortlistDraft) else draft
        if number not in self._layers:
            self._layers[number] = skipping_layers(self.stack, inner)
        logits = self.stack.with_layers(self._layers[number])(ids, cache=entries)[0]
        if isinstance(draft, ShortlistDraft):
            tokens = mx.array(draft.tokens)
            said = tokens[mx.argmax(logits[:, tokens], axis=-1)]
        else:
            said = mx.argmax(logits, axis=-1)
        device.synchronize()
        wanted = self.text[begin + 1 : begin + count + 1]
        return [a == b for a, b in zip(said.tolist(), wanted, strict=True)]

    def _price(self) -> None:
        self._context = max(1, len(self.text))
        self._costs = [
            self.profile.costs_of(draft, self._context) for draft in self.candidates
        ]

    def _decide(self, started: float) -> None:
        """The candidate with the best expected S, at its best length."""
        plans = []
        for number, (rate, known) in enumerate(
            zip(self.rates, self._costs, strict=True)
        ):
            found = best_draft_length(rate.mean, limit=self.limit, **known)
            if found.num_draft_tokens == 0 and not self.declines:
                lengths = range(1, self.limit + 1)
                worth = {k: expected_speedup(rate.mean, k, **known) for k in lengths}
                length = max(worth, key=worth.get)
                plans.append((worth[length], length, number))
            else:
                plans.append((found.speedup, found.num_draft_tokens, number))
        _, length, number = max(plans, key=lambda plan: (plan[0], -plan[2]))
        self.current = Choice(self.candidates[number], length)
        self._expected, self._since = self.rates[number].mean, Rate(0.5, 1e-9)
        seconds = time.perf_counter() - started
        self.seconds += seconds
        self.choices.append(Reselection(len(self.text), number, length, seconds))
