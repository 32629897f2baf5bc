"""What a run of drafts measures: which drafts, how long, on how many prompts.

A case is a draft with a draft length; the cases of a group share one baseline run of
each prompt, so a group is kept small: what is compared must lie close in time.

    DraftGrid(groups=((Case("skip 10 %", SkipDraft.middle(30, 0.1), 2),),),
              num_prompts=8, num_tokens=64)
"""

from dataclasses import dataclass
from typing import Any

from selfspec.study.errors import StudyError
from selfspec.study.row_table import AUTO


@dataclass(frozen=True)
class Case:
    """One configuration.

    Attributes:
        label: what drafts, in words: "skip 10 %", "exit 15", "lookup".
        draft: what drafts.
        num_draft_tokens: tokens a round, or "auto" for the rule that declines.
        temperature: 0 is greedy.
        context: tokens of other text that are read before each prompt.
        match: a sampled draft token is kept where the target's own draw is the same,
            not by rejection sampling.
    """

    label: str
    draft: Any
    num_draft_tokens: int | str
    temperature: float = 0.0
    context: int = 0
    match: bool = False

    @property
    def name(self) -> str:
        """Unique in its grid."""
        name = f"{self.label}, {self.num_draft_tokens}"
        return name + (
            f", temperature {self.temperature:g}" if self.temperature else ""
        )

    @property
    def is_auto(self) -> bool:
        return self.num_draft_tokens == AUTO


@dataclass(frozen=True)
class DraftGrid:
    """How much is measured.

    Attributes:
        groups: cases of a group run back to back with one baseline, in shuffled order.
        num_prompts: evaluation prompts.
        num_tokens: emitted a prompt, by every arm alike.
        repeats: of every pair.
        calibration_prompts, calibration_tokens: of the untimed runs before the first
            pair, on prompts that are not evaluated.
        stop_at_eos: False decodes on past an end-of-sequence token, so that every text
            has `num_tokens` tokens.
        faster_baseline: plain decoding is that of mlx-lm or of this engine, whichever
            is faster when the run begins; False takes mlx-lm's.
    """

    groups: tuple[tuple[Case, ...], ...]
    num_prompts: int
    num_tokens: int
    repeats: int = 1
    calibration_prompts: int = 4
    calibration_tokens: int = 64
    stop_at_eos: bool = True
    faster_baseline: bool = False

    def __post_init__(self):
        names = [case.name for case in self.cases]
        lengths = [c.num_draft_tokens for c in self.cases if not c.is_auto]
        whole = all(isinstance(k, int) and k >= 1 for k in lengths)
        checks = {
            "groups must hold cases": names and all(self.groups),
            "each case must be there once": len(set(names)) == len(names),
            'num_draft_tokens must be 1 or more, or "auto"': whole,
            "the cases of a group must have one temperature, which is 0 or more": all(
                len({c.temperature for c in g}) == 1 and g[0].temperature >= 0
                for g in self.groups
                if g
            ),
            "the cases of a group must have one context, which is 0 or more": all(
                len({c.context for c in g}) == 1 and g[0].context >= 0
                for g in self.groups
                if g
            ),
            "the match rule is of sampled text": all(
                c.temperature > 0 for c in self.cases if c.match
            ),
            "num_prompts must be at least 1": self.num_prompts >= 1,
            "repeats must be at least 1": self.repeats >= 1,
            "calibration_prompts must be at least 1": self.calibration_prompts >= 1,
            "calibration_tokens must be at least 2": self.calibration_tokens >= 2,
            # room for a first round and timed rounds after it
            "num_tokens must be at least twice the longest draft + 2": whole
            and self.num_tokens >= 2 * (max(lengths, default=1) + 1),
        }
        for rule, holds in checks.items():
            if not holds:
                raise StudyError(f"{rule}, got {self}")

    @property
    def cases(self) -> tuple[Case, ...]:
        """All of them, in reading order."""
        return tuple(case for group in self.groups for case in group)

    def to_json(self) -> dict[str, Any]:
        """As provenance keeps it: drafts by their labels."""
        return {
            "groups": [
                [
                    {
                        "draft": c.label,
                        "num_draft_tokens": c.num_draft_tokens,
                        "temperature": c.temperature,
                        "context": c.context,
                        "match": c.match,
                    }
                    for c in g
                ]
                for g in self.groups
            ],
            "num_prompts": self.num_prompts,
            "num_tokens": self.num_tokens,
            "repeats": self.repeats,
            "calibration_prompts": self.calibration_prompts,
            "calibration_tokens": self.calibration_tokens,
            "stop_at_eos": self.stop_at_eos,
            "faster_baseline": self.faster_baseline,
        }
