"""What decoding costs on this machine, and the identity that turns costs into speedup.

Names are looked up on first use: the identity is arithmetic and needs no MLX, which the
book's pages rely on.
"""

from importlib import import_module

# name -> the module that defines it
_PUBLIC = {
    "Costs": "selfspec.costs.timing",
    "DeclinePolicy": "selfspec.costs.decline",
    "Plan": "selfspec.costs.draft_length",
    "best_draft_length": "selfspec.costs.draft_length",
    "choose_threads": "selfspec.costs.timing",
    "clairvoyant_bound": "selfspec.costs.draft_length",
    "expected_accepted": "selfspec.costs.draft_length",
    "expected_speedup": "selfspec.costs.draft_length",
    "measure": "selfspec.costs.timing",
    "required_acceptance": "selfspec.costs.draft_length",
    "round_cost": "selfspec.costs.draft_length",
    "round_remainder": "selfspec.costs.identity",
    "speedup": "selfspec.costs.identity",
    "upper_bound": "selfspec.costs.draft_length",
    "verify_at": "selfspec.costs.draft_length",
    "weight_share_cost": "selfspec.costs.identity",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfspec.costs' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
