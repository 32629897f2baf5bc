"""How long and how fast a training goes, whatever its recipe. No MLX.

Settings(steps=800, batch=16, seed=0)
learning_rate(settings, step=0)             # of the update after `step` updates
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

FLOOR = 0.05  # of the peak, at the last step


@dataclass(frozen=True)
class Settings:
    """Everything that is the same for every arm.

    Attributes:
        steps: updates in all.
        batch: samples a step.
        seed: of the order of the data and of layer dropout.
        learning_rate: at its peak.
        warmup: steps until it is reached.
        weight_decay: AdamW's, of every matrix.
        clip: largest norm of the gradient.
        checkpoint_every: steps between checkpoints.

    Raises:
        ValueError: a value outside its range.
    """

    steps: int = 800
    batch: int = 16
    seed: int = 0
    learning_rate: float = 2e-3
    warmup: int = 50
    weight_decay: float = 0.05
    clip: float = 1.0
    checkpoint_every: int = 50

    def __post_init__(self):
        for name in ("steps", "batch", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        for name in ("seed", "warmup", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")

    def to_json(self) -> dict[str, Any]:
        """Every field by its name, as JSON holds it."""
        return asdict(self)


def learning_rate(settings: Settings, step: int) -> float:
    """Of the update after `step` updates: a straight rise, then a cosine to FLOOR."""
    peak, warmup = settings.learning_rate, min(settings.warmup, settings.steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    after = (step - warmup) / max(1, settings.steps - 1 - warmup)
    cosine = (1 + math.cos(math.pi * min(1.0, after))) / 2
    return peak * (FLOOR + (1 - FLOOR) * cosine)
