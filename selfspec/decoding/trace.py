"""What happened while decoding: one record a round, and sums over sums.

Everything is kept raw, so that any rate can be computed afterwards. Knows seconds and
counts; no model, no text.

    trace = Trace()
    list(generate_step(prompt, model, draft=draft, trace=trace))
    trace.acceptance_rate, trace.tokens_per_round, trace.accepted_per_round
"""

from dataclasses import dataclass, field


@dataclass
class Round:
    """One round: drafted, verified, accepted, rolled back.

    Attributes:
        drafted: D, tokens proposed.
        accepted: A, how many of them were kept; the bonus token is not counted.
        rows: rows of the verification pass, D + 1.
        seconds_drafting: until the draft steps are queued; the device may still be at
            them, unless phases are timed with a synchronisation each.
        seconds_verifying: queueing the verification and waiting for its outcome.
        seconds_rest: rolling back and everything else of ours in the round.
        draft_source: kind of the draft that proposed, e.g. "SkipDraft".
    """

    drafted: int
    accepted: int
    rows: int
    seconds_drafting: float = 0.0
    seconds_verifying: float = 0.0
    seconds_rest: float = 0.0
    draft_source: str = ""


@dataclass
class Trace:
    """The whole of one generation.

    Attributes:
        prompt_tokens: tokens of the prompt that were prefilled, the last one included.
        plain_tokens: tokens that plain decoding emitted, outside any round.
        emitted: all tokens that reached the caller.
        cached_tokens: tokens in the cache at the end; the last token emitted in a round
            is not in it yet.
        seconds_choosing: that the policy took to answer; what it took for a round is
            part of the round's seconds_rest.
        draft_stopped: why drafting ended for good (a wrapped window), or "".
        peak_memory: bytes, of the process, since the caller last reset it.
        shortlist_bytes: how much of it are the head's rows that shortlists copied, one
            copy a draft; no other draft copies weights.
    """

    rounds: list[Round] = field(default_factory=list)
    prompt_tokens: int = 0
    plain_tokens: int = 0
    emitted: int = 0
    cached_tokens: int = 0
    seconds_prefill: float = 0.0
    seconds_plain: float = 0.0
    seconds_choosing: float = 0.0
    draft_stopped: str = ""
    peak_memory: int = 0
    shortlist_bytes: int = 0

    @property
    def drafted(self) -> int:
        """D summed over all rounds."""
        return sum(r.drafted for r in self.rounds)

    @property
    def accepted(self) -> int:
        """A summed over all rounds."""
        return sum(r.accepted for r in self.rounds)

    @property
    def rows_verified(self) -> int:
        """Rows of all verification passes."""
        return sum(r.rows for r in self.rounds)

    @property
    def accepted_per_round(self) -> list[int]:
        """A of every round, for a histogram."""
        return [r.accepted for r in self.rounds]

    @property
    def acceptance_rate(self) -> float:
        """Sum of accepted / sum of drafted; NaN where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else float("nan")

    @property
    def first_token_acceptance(self) -> float:
        """Share of the rounds that drafted in which the first token was kept."""
        tried = [r for r in self.rounds if r.drafted]
        kept = sum(r.accepted > 0 for r in tried)
        return kept / len(tried) if tried else float("nan")

    @property
    def tokens_per_round(self) -> float:
        """1 + A on average, the bonus token included; NaN without rounds."""
        if not self.rounds:
            return float("nan")
        return 1 + self.accepted / len(self.rounds)

    @property
    def seconds_drafting(self) -> float:
        """Seconds of all rounds until their draft steps were queued."""
        return sum(r.seconds_drafting for r in self.rounds)

    @property
    def seconds_verifying(self) -> float:
        """Seconds of all rounds spent on verification."""
        return sum(r.seconds_verifying for r in self.rounds)

    @property
    def seconds_rest(self) -> float:
        """Seconds of all rounds spent on everything else."""
        return sum(r.seconds_rest for r in self.rounds)
