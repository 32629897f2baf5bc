"""Numbers of a machine run that prose may quote, by key; None where a run lacks them.

of_machine(record.facts)["bandwidth_percent"]
"""

from collections.abc import Mapping
from statistics import median
from typing import Any

from selfspec.costs.draft_length import required_acceptance, verify_at
from selfspec.study.machine_page import bandwidth, check_error

MACHINE_FIELDS = (
    "weights_gigabytes bandwidth_gigabytes copy_gigabytes bandwidth_percent"
    " profile_seconds checked_drafts check_error_percent check_error_most_percent"
    " needed_at_half_percent dearest_percent"
).split()


def of_machine(facts: Mapping[str, Any]) -> dict[str, Any]:
    """MACHINE_FIELDS. Of two draft tokens: the acceptance that breaks even at half a
    step each, and the c at which even perfect acceptance only breaks even.
    """
    if "profile_origin" not in facts:
        return dict.fromkeys(MACHINE_FIELDS)
    reached, ceiling = bandwidth(facts), facts["copy_bytes_per_second"]
    errors = [abs(check_error(check)) for check in facts["checks"]]
    verify = {int(m): v for m, v in facts["costs"]["verify_ratio"].items()}
    needed = required_acceptance(
        1, num_draft_tokens=2, cost_ratio=0.5, verify_ratio=verify
    )
    return {
        "weights_gigabytes": reached and facts["step_bytes"] / 1e9,
        "bandwidth_gigabytes": reached and reached / 1e9,
        "copy_gigabytes": ceiling / 1e9,
        "bandwidth_percent": reached and 100 * reached / ceiling,
        "profile_seconds": facts["profile_origin"]["seconds"],
        "checked_drafts": len(errors),
        "check_error_percent": 100 * median(errors) if errors else None,
        "check_error_most_percent": 100 * max(errors) if errors else None,
        "needed_at_half_percent": 100 * needed,
        "dearest_percent": 100 * (3 - verify_at(verify, 3)) / 2,
    }
