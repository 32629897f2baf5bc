"""Windows: prompts continued by the target itself, on which drafts are scored.

What a draft must agree with is the target's own greedy text, so that is what it is
scored on. Calibration windows are for choosing, evaluation windows for telling what the
choice is worth; `overlap` says whether two sets share a text.

    calibration = make_windows(model, prompts[:4], num_tokens=64)
    evaluation = make_windows(model, prompts[4:], num_tokens=64)
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from selfspec.decoding import generate_step


@dataclass(frozen=True)
class Window:
    """A prompt and what the target said after it.

    Attributes:
        tokens: both, one after the other.
        start: where the generated part begins; from 1.
    """

    tokens: tuple[int, ...]
    start: int

    def __post_init__(self):
        if not 1 <= self.start < len(self.tokens):
            raise ValueError(
                "a window needs a prompt and a generated token, got start "
                f"{self.start} of {len(self.tokens)} tokens"
            )

    @property
    def generated(self) -> tuple[int, ...]:
        return self.tokens[self.start :]


def make_windows(
    model,
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    eos: Collection[int] = frozenset(),
) -> tuple[Window, ...]:
    """Continue every prompt greedily.

    Args:
        model: the target.
        prompts: token ids.
        num_tokens: generated for each, fewer where an end-of-sequence token comes, which
            is the last token then.
        eos: end-of-sequence tokens.

    Raises:
        ValueError: no prompts, an empty one, or fewer tokens than 1.
    """
    if not prompts or not all(len(prompt) for prompt in prompts):
        raise ValueError("make_windows needs prompts of one or more tokens each")
    if num_tokens < 1:
        raise ValueError(f"num_tokens must be 1 or more, got {num_tokens}")
    found = []
    for prompt in prompts:
        text = list(prompt)
        for token, *_ in generate_step(list(prompt), model, max_tokens=num_tokens):
            text.append(int(token))
            if text[-1] in eos:
                break
        found.append(Window(tuple(int(t) for t in text), len(prompt)))
    return tuple(found)


def overlap(one: Iterable[Window], other: Iterable[Window]) -> bool:
    """Whether a prompt is in both: then the second is no evidence about the first."""
    prompts = {window.tokens[: window.start] for window in one}
    return any(window.tokens[: window.start] in prompts for window in other)
