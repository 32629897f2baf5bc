"""What is added to ordinary training: layer dropout, early-exit loss, distillation.

A recipe is choices, checked when made; what they mean is in dropout.py, curricula.py
and exit_loss.py. Plain training is the recipe that adds nothing. No MLX.

    Recipe()                                            # the baseline
    Recipe(max_dropout=0.2, early_exit=True, rotation=6)
    Recipe.from_json(recipe.to_json()) == recipe
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

DEPTHS = ("exponential", "constant")
TIMES = ("constant", "exponential")
CURRICULA = ("rotational", "gradual", "all")


@dataclass(frozen=True)
class Recipe:
    """Choices of LayerSkip's training (arXiv 2404.16710, section 4.1).

    Attributes:
        max_dropout: p_max, the chance that a sample leaves out the last layer; 0 drops
            nothing.
        dropout_depth: "exponential" raises the rate over the layers as D(l) does;
            "constant" gives every layer the mean of that.
        dropout_time: S(t): "constant", for a model that is trained already, or
            "exponential" from nothing, from scratch.
        early_exit: whether earlier exits have a loss too.
        exit_scale: e_scale, how much the earlier exits weigh.
        curriculum: which exits have a loss at a step: "rotational" (every R-th, moved on
            by one each step), "gradual" (one more from the last downwards, all of them by
            half the time) or "all". The last exit always has one.
        rotation: R.
        distillation: share of an earlier exit's loss that is its divergence from the
            model's own last exit instead of the text's cross-entropy.

    Raises:
        ValueError: a value outside its range.
    """

    max_dropout: float = 0.0
    dropout_depth: str = "exponential"
    dropout_time: str = "constant"
    early_exit: bool = False
    exit_scale: float = 1.0
    curriculum: str = "rotational"
    rotation: int = 8
    distillation: float = 0.0

    def __post_init__(self):
        _within("max_dropout", self.max_dropout, 0 <= self.max_dropout < 1, "in [0, 1)")
        _within("exit_scale", self.exit_scale, self.exit_scale > 0, "above 0")
        _within("rotation", self.rotation, self.rotation >= 1, "1 or more")
        share = self.distillation
        _within("distillation", share, 0 <= share <= 1, "in [0, 1]")
        for name, known in (
            ("dropout_depth", DEPTHS),
            ("dropout_time", TIMES),
            ("curriculum", CURRICULA),
        ):
            value = getattr(self, name)
            _within(name, value, value in known, f"one of {', '.join(known)}")
        if self.distillation and not self.early_exit:
            raise ValueError(
                "distillation needs early_exit: there is no earlier exit to teach"
            )

    def to_json(self) -> dict[str, Any]:
        """Every field by its name, as JSON holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Recipe":
        """The recipe of these values; a key it does not know is refused."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"Recipe: unknown keys {unknown}")
        return cls(**values)


def _within(name: str, value: Any, right: bool, rule: str) -> None:
    if not right:
        raise ValueError(f"{name} must be {rule}, got {value!r}")
