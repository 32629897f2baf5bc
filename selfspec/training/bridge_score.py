"""What a bridge is worth before it ever drafts: agreement with a text, and rounds.

The bridge reads drafted tokens as it would read the finished text (its first layers are
the target's), so whether it would be right at a place does not depend on the round. One
pass over a greedy text of the target therefore says exactly what every round in it
would have accepted, at any draft length. Arrays in, numbers out; no model.

    accepted = rounds([True, True, False, True], num_draft_tokens=2)   # [2, 1]
    by_position(flags, 2)                                # [kept / tried, ...]
"""

from collections.abc import Iterable, Sequence


def rounds(agreed: Sequence[bool], num_draft_tokens: int) -> list[int]:
    """Tokens accepted in each round of a text, each followed by the target's own.

    Rounds that the end of the text cuts short are left out.
    """
    accepted, at = [], 0
    while at + num_draft_tokens <= len(agreed):
        window = agreed[at : at + num_draft_tokens]
        count = next((i for i, good in enumerate(window) if not good), len(window))
        accepted.append(count)
        at += count + 1
    return accepted


def acceptance_rate(texts: Iterable[Sequence[bool]], num_draft_tokens: int) -> float:
    """Sum of accepted / sum of drafted over all texts; NaN without a round."""
    counts = [a for agreed in texts for a in rounds(agreed, num_draft_tokens)]
    drafted = len(counts) * num_draft_tokens
    return sum(counts) / drafted if drafted else float("nan")


def by_position(texts: Iterable[Sequence[bool]], num_draft_tokens: int) -> list[float]:
    """Of the rounds that verification reaches a draft position in, the share that keeps
    it; by position from the first, as far as any is reached."""
    counts = [a for agreed in texts for a in rounds(agreed, num_draft_tokens)]
    rates = []
    for position in range(num_draft_tokens):
        reached = sum(a >= position for a in counts)
        if not reached:
            break
        rates.append(sum(a > position for a in counts) / reached)
    return rates
