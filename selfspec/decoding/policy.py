"""Which draft, how many tokens, and whether to draft at all, asked before every round.

`FixedLength` always answers the same. Rules that work from measured costs live with the
costs (`selfspec.costs.DeclinePolicy`); here is only what the loop asks of them.

    FixedLength(draft, 3).choose()                   # Choice(draft, 3)
"""

from typing import Any, NamedTuple, Protocol

from selfspec.decoding.trace import Round


class Choice(NamedTuple):
    """What to do next; `num_draft_tokens` 0 means one plain step."""

    draft: Any
    num_draft_tokens: int


class DraftPolicy(Protocol):
    """What the loop asks.

    A policy that wants to look at the text may also have `begin(target, tokens)`, which
    is called once the prompt is read: `tokens` is the text itself, which grows, and
    `target` holds the model and caches of its first tokens, not to be changed.
    """

    def choose(self) -> Choice:
        """Asked before every round, and before every plain step."""

    def record(self, finished: Round) -> None:
        """Told of every round that drafted."""


class FixedLength:
    """The same draft and length every time."""

    def __init__(self, draft, num_draft_tokens: int):
        self.choice = Choice(draft, num_draft_tokens)

    def choose(self) -> Choice:
        return self.choice

    def record(self, finished: Round) -> None:
        pass
