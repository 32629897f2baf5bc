"""Facts of a made-up run of the experiment "machine", with costs that are known."""

from selfspec.study.machine_page import verify_curves
from tests.costs.synthetic import profile
from tests.study.drafts import rows


def facts(**changes) -> dict:
    """As provenance keeps them, from the synthetic machine."""
    machine = profile()
    curve = {str(m): machine.verify_ratio(m, 40) for m in range(1, 17)}
    slower = {m: 1.5 * v for m, v in curve.items()}
    return {
        "machine": {
            "chip": "Testron 9000",
            "cores": 2,
            "memory_gb": 16,
            "device": "cpu",
            "blas": "OpenBLAS 0.3",
        },
        "profile": machine.to_json(),
        "profile_origin": {"measured_now": True, "why": "", "seconds": 21.4},
        "chosen_threads": 1,
        "verify_curves": {
            "1": {"step_seconds": 0.02, "verify_ratio": curve},
            "2": {"step_seconds": 0.03, "verify_ratio": slower},
        },
        "checks": [
            {"label": "skip 10 %", "predicted": 0.92, "measured": 0.90},
            {"label": "exit 4", "predicted": 0.60, "measured": 0.75},
            {"label": "shortlist 99", "predicted": 0.70, "measured": 0.71},
        ],
        "check_context": 40,
        "step_bytes": 8_000_000,
        "copy_bytes_per_second": 1e9,
        "costs": {"verify_ratio": {str(m): machine.verify_ratio(m) for m in (1, 3)}},
        "weight_shares": {"skip 10 %": {"cost_ratio": 0.9, "kept": 0.0}},
        **changes,
    }


def missed_rows(draft="exit 4", **changes):
    """Eight prompts of ten timed rounds each, predicted a fifth too high."""
    values = dict(
        speedups=(1.0,) * 8,
        length=2,
        predicted_speedup=1.2,
        drafted_accepted_per_round=" ".join(["2:1"] * 11),
        decode_tokens=20,
        cost_ratio=0.6,
        verify_ratio=verify_curves(facts())[1][3],
    )
    return rows(draft, **{**values, **changes})
