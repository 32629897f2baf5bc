"""How much the sweep measures: skip fractions x draft lengths x prompts x repeats.

resolve_grid("paper", num_prompts=16).configurations     # 12 pairs
"""

from dataclasses import asdict, dataclass
from typing import Any

from selfspec.study.errors import StudyError


@dataclass(frozen=True)
class Grid:
    """How much is measured: every skip fraction x draft length x prompt x repeat.

    `cost_repeats` is how often the costs are timed before the first pair.
    """

    skip_fractions: tuple[float, ...]
    draft_lengths: tuple[int, ...]
    num_prompts: int
    num_tokens: int
    repeats: int = 1
    cost_repeats: int = 7

    def __post_init__(self):
        checks = {
            "skip_fractions must lie between 0 and 1": self.skip_fractions
            and all(0 < f < 1 for f in self.skip_fractions),
            "draft_lengths must be at least 1": self.draft_lengths
            and all(isinstance(k, int) and k >= 1 for k in self.draft_lengths),
            "num_prompts must be at least 1": self.num_prompts >= 1,
            "repeats must be at least 1": self.repeats >= 1,
            # room for a first round and timed rounds after it
            "num_tokens must be at least twice the longest draft + 2": self.num_tokens
            >= 2 * (max(self.draft_lengths, default=0) + 1),
        }
        for rule, holds in checks.items():
            if not holds:
                raise StudyError(f"{rule}, got {self}")

    @property
    def configurations(self) -> list[tuple[float, int]]:
        """(skip fraction, draft length) pairs, in reading order."""
        return [(f, k) for f in self.skip_fractions for k in self.draft_lengths]


SIZES = {
    "smoke": Grid((0.1, 0.5), (2,), num_prompts=2, num_tokens=16, cost_repeats=3),
    "default": Grid((0.1, 0.3, 0.5), (2, 5), num_prompts=6, num_tokens=24),
    "paper": Grid((0.1, 0.2, 0.3, 0.5), (2, 3, 5), num_prompts=8, num_tokens=64),
}


def resolve_grid(size: str, **overrides: Any) -> Grid:
    """The grid of `size`, with every override that is not None.

    Raises:
        StudyError: unknown size, or values outside the grid's rules.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    for name in ("skip_fractions", "draft_lengths"):
        if name in given:
            given[name] = tuple(given[name])
    return Grid(**{**asdict(SIZES[size]), **given})
