"""What decoding costs on this machine, and the identity that turns costs into speedup."""

from selfspec.costs.identity import round_remainder, speedup, weight_share_cost

try:
    from selfspec.costs.timing import Costs, choose_threads, measure
except ModuleNotFoundError as error:  # the book's numbers need the identity, not MLX
    if (error.name or "").split(".")[0] not in ("mlx", "mlx_lm"):
        raise

__all__ = [
    "Costs",
    "choose_threads",
    "measure",
    "round_remainder",
    "speedup",
    "weight_share_cost",
]
