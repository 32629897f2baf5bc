"""What a draft is, as plain values: which blocks it leaves out, where it exits.

A draft proposes tokens that the target verifies. The classes only carry the choice,
checked when made; they hold no cache and run nothing.

    SkipDraft(attention={12, 13}, mlp={13})      # blocks left out, cache shared
    SkipDraft.middle(num_layers=30, skip_fraction=0.3)
"""

from dataclasses import dataclass


def _indices(name, values) -> frozenset[int]:
    values = frozenset(values)
    if not all(isinstance(v, int) and v >= 0 for v in values):
        raise ValueError(f"{name} must hold layer numbers from 0, got {sorted(values)}")
    return values


@dataclass(frozen=True)
class SkipDraft:
    """The target with some attention and MLP blocks left out.

    Args:
        attention: layers whose attention is left out.
        mlp: layers whose MLP is left out.
    """

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()

    def __post_init__(self):
        object.__setattr__(self, "attention", _indices("attention", self.attention))
        object.__setattr__(self, "mlp", _indices("mlp", self.mlp))

    @classmethod
    def middle(cls, num_layers: int, skip_fraction: float) -> "SkipDraft":
        """The contiguous middle run of whole layers of the June 2026 post.

        `skip_fraction` of `num_layers`, rounded, at least one layer.
        """
        if not 0 < skip_fraction < 1:
            raise ValueError(
                f"skip_fraction must be between 0 and 1, got {skip_fraction}"
            )
        count = max(1, round(num_layers * skip_fraction))
        if count >= num_layers:
            raise ValueError(
                f"skip_fraction {skip_fraction} leaves none of {num_layers} layers"
            )
        start = (num_layers - count) // 2
        skipped = frozenset(range(start, start + count))
        return cls(attention=skipped, mlp=skipped)

    @property
    def whole_layers(self) -> frozenset[int]:
        """Layers of which both blocks are left out."""
        return self.attention & self.mlp
