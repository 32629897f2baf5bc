"""The loop: prefill, then rounds of draft, verify, accept, roll back.

One loop for every draft and every acceptance rule; what differs is in those objects.
The text so far is a list of token ids; the cache always stands at all of it but the
last token, which the next pass reads. Where nothing is drafted it decodes plainly, one
step ahead, as mlx-lm does. Knows token ids; no text, no costs.

    for token, logprobs, from_draft in Decoder(prompt, target, policy, rule).run(256):
        ...
"""

import itertools
import time
from collections.abc import Callable, Iterator

import mlx.core as mx

from selfspec.decoding.acceptance import Rule, Verdict
from selfspec.decoding.binding import bind
from selfspec.decoding.drafting import Drafter, Proposal, Target
from selfspec.decoding.policy import Choice, DraftPolicy
from selfspec.decoding.trace import Round, Trace

CLEAR_EVERY = 256  # tokens between two emptyings of MLX's buffer cache, as in mlx-lm

Emitted = tuple[int, mx.array, bool]  # token, logprobs, from_draft


class Decoder:
    """One generation.

    Args:
        prompt: token ids, at least one.
        target: the model and its caches.
        policy: which draft and how many tokens, asked before every round.
        rule: when a drafted token is kept.
        stream: MLX stream on which everything is computed.
        trace: filled as decoding goes.
        min_confidence: stop a draft before a token of lower draft probability.
        first: the policy's first answer, whose draft reads the prompt along.
        drafts: whether anything may be drafted; if not, the cache ends as mlx-lm's.
        draft_cache: entries of a ModelDraft's cache, where the caller keeps it.
        progress: called with (tokens read, tokens in all) while prefilling.
        time_phases: wait for the device after drafting, so that its seconds are its own.
    """

    def __init__(
        self,
        prompt: list[int],
        target: Target,
        policy: DraftPolicy,
        rule: Rule,
        stream,
        *,
        first: Choice | None = None,
        drafts: bool = True,
        trace: Trace | None = None,
        min_confidence: float = 0.0,
        draft_cache: list | None = None,
        progress: Callable[[int, int], None] | None = None,
        time_phases: bool = False,
    ):
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.target = target
        self.policy = policy
        self.rule = rule
        self.stream = stream
        self.first = first
        self.drafts = drafts
        self.trace = Trace() if trace is None else trace
        self.min_confidence = min_confidence
        self.draft_cache = draft_cache
        self.progress = progress or (lambda done, total: None)
        self.time_phases = time_phases
        self.drafters: dict[object, Drafter] = {}
        self.chosen: Choice | None = None  # asked for while decoding plainly
        self.seconds_asking = 0.0  # of the policy, since the last round or plain step
        self.needs_history = getattr(rule, "needs_history", False)

    # The whole

    def run(self, max_tokens: int) -> Iterator[Emitted]:
        """Yield tokens, at most `max_tokens`; -1 for no limit."""
        left = float("inf") if max_tokens < 0 else max_tokens
        # Not when this was made: others may have used the cache since.
        self.target.base = self.target.caches.length
        self.trace.draft_stopped = ""
        try:
            self.prefill()
            if begin := getattr(self.policy, "begin", None):
                begin(self.target, self.tokens)
            if not (left or self.drafts):  # mlx-lm reads the last token too
                self._step(mx.array(self.tokens[-1:], mx.uint32), ())
            while left > 0:
                choice = self.chosen or self._affordable(self._ask(), left)
                self.chosen = None
                source = self.round(choice) if choice else self.plain(left)
                for emitted in source:
                    left -= 1
                    yield emitted
                    if left <= 0:
                        return
        finally:
            self._finish()

    def _ask(self) -> Choice:
        first, self.first = self.first, None
        return first or self._choose()

    def _choose(self) -> Choice:
        started = time.perf_counter()
        choice = self.policy.choose()
        self.seconds_asking += time.perf_counter() - started
        return choice

    def _asked(self) -> float:
        """Seconds that the policy took since this was last asked; kept in the trace."""
        seconds, self.seconds_asking = self.seconds_asking, 0.0
        self.trace.seconds_choosing += seconds
        return seconds

    def _affordable(self, choice: Choice, left: float) -> Choice | None:
        """The choice within what may be emitted and rolled back; None to go plainly."""
        wanted = choice.num_draft_tokens
        if wanted < 1 or choice.draft is None or self.trace.draft_stopped:
            return None
        drafter = self.drafter(choice.draft)
        caches = self.target.caches
        # A round of D drafted tokens writes D + 1 rows, all of which may be taken back.
        room = min(caches.room() - 1, drafter.room())
        if room < 1:
            whose = "draft model's"
            if caches.room() <= 1:
                whose = f"model's {caches.window()}-token"
            self.trace.draft_stopped = (
                f"the {whose} sliding window is full after {len(self.tokens)} tokens "
                "and cannot be rolled back: plain decoding from here on"
            )
            return None
        # Of `left` tokens one is the target's own.
        limit = min(wanted, left - 1, room, caches.rows_until_quantised() - 1)
        return Choice(choice.draft, limit)

    def drafter(self, draft) -> Drafter:
        """The draft, bound at first use; a late one reads what it missed by itself."""
        if draft not in self.drafters:
            self.drafters[draft] = bind(draft, self.target, self.draft_cache)
        return self.drafters[draft]

    # The phases

    def prefill(self) -> None:
        """Read the prompt, all but its last token, split as mlx-lm splits it."""
        start = time.perf_counter()
        total = len(self.tokens)
        self.progress(0, total)
        caches, step = self.target.caches, self.target.prefill_step_size
        with mx.stream(self.stream):
            for begin in range(0, total - 1, step):
                chunk = self.tokens[begin : min(begin + step, total - 1)]
                self.target.logits(mx.array(chunk, mx.uint32))
                caches.quantise()
                caches.evaluate()
                self.progress(begin + len(chunk), total)
                mx.clear_cache()
            if self.first is not None and self.first.draft is not None:
                self.drafter(self.first.draft).prefill(self.tokens)
        self.progress(total, total)
        self.trace.prompt_tokens = total
        self.trace.seconds_prefill = time.perf_counter() - start

    def draft(self, choice: Choice) -> Proposal:
        """Queue the draft steps."""
        drafter = self.drafter(choice.draft)
        proposal = drafter.propose(
            self.tokens, choice.num_draft_tokens, self.rule, self.min_confidence
        )
        if self.time_phases:
            mx.eval(proposal.tokens)
        return proposal

    def verify(self, proposal: Proposal) -> mx.array:
        """Queue the target's pass over the last token and the drafted ones."""
        return proposal.drafter.verify(self.tokens, proposal.tokens)

    def accept(self, proposal: Proposal, logits: mx.array) -> Verdict:
        """Judge on the device."""
        return self.rule.accept(
            proposal.tokens, proposal.probs, logits, self._history()
        )

    def roll_back(self, length: int, drafter: Drafter) -> None:
        """Forget every token of the text after the first `length`."""
        self.target.caches.roll_back(self.target.base + length)
        self.target.caches.quantise()  # not sooner: rejected rows do not count
        drafter.settle(length)

    def round(self, choice: Choice) -> Iterator[Emitted]:
        """Draft, verify, accept, roll back; then hand the tokens out."""
        started = time.perf_counter()
        with mx.stream(self.stream):
            proposal = self.draft(choice)
            drafted_at = time.perf_counter()
            verdict = self.accept(proposal, self.verify(proposal))
            *drafted, accepted, bonus = _read_back(proposal.tokens, verdict)
        verified_at = time.perf_counter()
        with mx.stream(self.stream):
            self.roll_back(len(self.tokens) + accepted, self.drafter(choice.draft))
        finished = Round(
            drafted=len(drafted),
            accepted=accepted,
            rows=len(drafted) + 1,
            seconds_drafting=drafted_at - started,
            seconds_verifying=verified_at - drafted_at,
            draft_source=proposal.drafter.name,
        )
        self.trace.rounds.append(finished)
        self.policy.record(finished)
        finished.seconds_rest = time.perf_counter() - verified_at + self._asked()
        for place, token in enumerate([*drafted[:accepted], bonus]):
            yield self._emit(token, verdict.logprobs[place], place < accepted)

    def plain(self, left: float) -> Iterator[Emitted]:
        """Decode plainly, one step ahead, until the policy wants to draft."""
        if not self.drafts:
            left = float("inf")  # mlx-lm reads the last token too
        started = time.perf_counter()
        token, logprobs = self._step(mx.array(self.tokens[-1:], mx.uint32), ())
        for count in itertools.count(1):
            if count > 1 and count < left:
                self.chosen = self._affordable(self._choose(), left - count)
            ahead = count < left and self.chosen is None
            if ahead:  # queued before this token is read, so the device never waits
                following = self._step(token, token)
            value = token.item()
            self.trace.plain_tokens += 1
            self.trace.seconds_plain += time.perf_counter() - started
            self._asked()
            yield self._emit(value, logprobs, False)
            started = time.perf_counter()
            if not ahead:
                return
            token, logprobs = following

    def _step(self, ids: mx.array, unread) -> tuple[mx.array, mx.array]:
        """Queue one plain step; `unread` are tokens not yet in the text."""
        with mx.stream(self.stream):
            logits = self.target.logits(ids)
            self.target.caches.quantise()
            history = self._history()
            if history is not None and len(unread):
                history = mx.concatenate([history, unread.astype(mx.uint32)])
            token, logprobs = self.rule.sample(logits, history)
            mx.async_eval(token, logprobs)
        return token, logprobs

    # Bookkeeping

    def _history(self) -> mx.array | None:
        return mx.array(self.tokens, mx.uint32) if self.needs_history else None

    def _emit(self, token: int, logprobs: mx.array, from_draft: bool) -> Emitted:
        self.tokens.append(token)
        self.trace.emitted += 1
        if self.trace.emitted % CLEAR_EVERY == 0:
            mx.clear_cache()
        return token, logprobs, from_draft

    def _finish(self) -> None:
        """However it ended, leave the cache at all of the text but its last token.

        Without a draft it is left as mlx-lm leaves it, the last token included; past a
        wrapped window, where nothing can be taken back, an abandoned one is so too.
        """
        caches = self.target.caches
        length = max(self.target.base, self.target.length(self.tokens))
        if self.drafts and caches.can_roll_back:
            caches.roll_back(length)
            for drafter in self.drafters.values():
                drafter.finish(self.tokens)
        self.trace.cached_tokens = caches.length
        self.trace.peak_memory = mx.get_peak_memory()
        copied = (drafter.copied_bytes() for drafter in self.drafters.values())
        self.trace.shortlist_bytes = sum(copied)


def _read_back(drafted: mx.array, verdict: Verdict) -> list[int]:
    """The one wait for the device in a round: drafted tokens, A, the token after."""
    outcome = [verdict.accepted[None], verdict.token]
    outcome = [x.astype(mx.int32) for x in (drafted, *outcome)]
    return mx.concatenate(outcome).tolist()
