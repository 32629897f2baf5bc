"""What decoding costs on this machine, and the identity that turns costs into speedup."""

from selfspec.costs.identity import round_remainder, speedup, weight_share_cost
from selfspec.costs.measure import Costs, choose_threads, measure

__all__ = [
    "Costs",
    "choose_threads",
    "measure",
    "round_remainder",
    "speedup",
    "weight_share_cost",
]
