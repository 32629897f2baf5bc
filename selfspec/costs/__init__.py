"""What decoding costs on this machine, and the identity that turns costs into speedup.

Names are looked up on first use: the identity is arithmetic and needs no MLX, which the
book's pages rely on.
"""

from importlib import import_module

# name -> the module that defines it
_PUBLIC = {
    "BlockSeconds": "selfspec.costs.block_fit",
    "Check": "selfspec.costs.profiling",
    "CostProfile": "selfspec.costs.profile",
    "Costs": "selfspec.costs.timing",
    "DeclinePolicy": "selfspec.costs.decline",
    "Found": "selfspec.costs.store",
    "Plan": "selfspec.costs.draft_length",
    "Residuals": "selfspec.costs.block_fit",
    "Sample": "selfspec.costs.block_fit",
    "WeightShares": "selfspec.costs.bandwidth",
    "best_draft_length": "selfspec.costs.draft_length",
    "check_profile": "selfspec.costs.profiling",
    "choose_threads": "selfspec.costs.timing",
    "clairvoyant_bound": "selfspec.costs.draft_length",
    "copy_ceiling": "selfspec.costs.bandwidth",
    "costs_of_draft": "selfspec.costs.draft_costs",
    "expected_accepted": "selfspec.costs.draft_length",
    "expected_speedup": "selfspec.costs.draft_length",
    "fit_blocks": "selfspec.costs.block_fit",
    "load_profile": "selfspec.costs.store",
    "measure": "selfspec.costs.timing",
    "measure_profile": "selfspec.costs.profiling",
    "profile_for": "selfspec.costs.store",
    "profile_key": "selfspec.costs.store",
    "required_acceptance": "selfspec.costs.draft_length",
    "round_cost": "selfspec.costs.draft_length",
    "round_remainder": "selfspec.costs.identity",
    "save_profile": "selfspec.costs.store",
    "speedup": "selfspec.costs.identity",
    "thread_counts": "selfspec.costs.timing",
    "upper_bound": "selfspec.costs.draft_length",
    "verify_at": "selfspec.costs.draft_length",
    "weight_share_cost": "selfspec.costs.identity",
    "weight_shares": "selfspec.costs.bandwidth",
    "weights_per_step": "selfspec.costs.bandwidth",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfspec.costs' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
