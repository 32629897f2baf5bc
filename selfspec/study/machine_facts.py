"""What a machine costs, as a run's provenance keeps it: measured before the first pair.

The profile, v(m) at every BLAS thread count, the copy ceiling, c of each draft timed
directly beside the profile's prediction, and what the drafts read. Dicts that JSON
holds; the words for them are machine_page.py's.

    profile, facts = find_out(loaded, drafts, size)
    facts["verify_curves"]["2"]["verify_ratio"]["4"]      # v(4) at two threads
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from selfspec import blas, costs, models
from selfspec.costs import bandwidth
from selfspec.costs.profiling import WIDTHS
from selfspec.decoding import LookupDraft
from selfspec.study.known_costs import machine_profile
from selfspec.study.machine_grid import MachineSize
from selfspec.study.prompt_set import load_prompts

COPY_BYTES = {"smoke": 2**24}  # elsewhere large enough for any cache


def find_out(
    loaded, drafts: Mapping[str, Any], size: MachineSize, *, name: str = "default"
) -> tuple[costs.CostProfile, dict[str, Any]]:
    """The profile, and everything else that is known of the machine.

    Leaves the BLAS threads at the count at which plain decoding is fastest.

    Args:
        drafts: label -> what drafts.
        name: of the size.

    Raises:
        StudyError: a model that is broken, or whose window is too short.
        UnsupportedModelError: a model whose blocks cannot be told apart.
    """
    reasons: list[str] = []
    profile = machine_profile(loaded, budget=size.budget, told=reasons.append)
    [prompt] = load_prompts("calibration", 1)
    ids = models.render_prompt(loaded.tokenizer, prompt.text)
    predictable = {k: d for k, d in drafts.items() if not isinstance(d, LookupDraft)}
    checks = costs.check_profile(
        profile,
        loaded.model,
        context=ids,
        drafts=predictable,
        repeats=size.cost_repeats,
    )
    return profile, {
        "profile_origin": {
            "measured_now": bool(reasons),
            "why": reasons[0] if reasons else "",
            "seconds": profile.measured_seconds,
        },
        "chosen_threads": profile.blas_threads,
        "verify_curves": verify_curves(loaded.model, ids, size.cost_repeats),
        "checks": [asdict(check) for check in checks],
        "check_context": len(ids),
        "step_bytes": costs.weights_per_step(loaded.model),
        "copy_bytes_per_second": costs.copy_ceiling(
            COPY_BYTES.get(name, bandwidth.COPY_BYTES),
            streams=max(1, profile.blas_threads),
        ),
    }


def verify_curves(
    model, context: Sequence[int], repeats: int
) -> dict[str, dict[str, Any]]:
    """v(m) at each BLAS thread count, in steps of that count, by the count as text.

    Afterwards the count is what it was.
    """
    chosen, curves = blas.threads(), {}
    try:
        for count in costs.thread_counts():
            blas.set_threads(max(1, count))
            found = costs.measure(model, context=context, rows=WIDTHS, repeats=repeats)
            curves[str(count)] = found.to_json()
    finally:
        blas.set_threads(max(1, chosen))
    return curves


def weight_shares(model, drafts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """label -> c and kept share by weights; empty for a mixture of experts."""
    found = {label: costs.weight_shares(model, d) for label, d in drafts.items()}
    return {label: asdict(shares) for label, shares in found.items() if shares}
