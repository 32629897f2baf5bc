"""A machine with known costs, for the fits and the predictions to find again."""

from selfspec.costs import BlockSeconds, CostProfile, Residuals

MS = 1e-3
BLOCKS = {
    "attention": BlockSeconds(0.5 * MS, 0.1 * MS, 0.05 * MS, 4e-7, 1e-7),
    "mlp": BlockSeconds(1.0 * MS, 0.2 * MS, 0.08 * MS),
    "layer": BlockSeconds(fixed=0.05 * MS, row=0.002 * MS, wait=0.03 * MS),
    "head": BlockSeconds(6 * MS, 1 * MS, 0.9 * MS),
    "rest": BlockSeconds(fixed=0.4 * MS, row=0.01 * MS, wait=0.2 * MS),
}
LAYERS = 6
VOCAB = 258  # of the tiny model


def whole(rows: int, context: int, waits: float = 0.0) -> float:
    """Seconds of a pass of the whole synthetic model."""
    at = {k: b.seconds(rows, context, waits) for k, b in BLOCKS.items()}
    blocks = at["attention"] + at["mlp"] + at["layer"]
    return LAYERS * blocks + at["head"] + at["rest"]


def profile(**changes) -> CostProfile:
    values = dict(
        step_seconds=whole(1, 256),
        context=256,
        pass_seconds={m: whole(m, 256, 1.0) for m in range(1, 17)},
        attention=("attention",) * LAYERS,
        mlp=("mlp",) * LAYERS,
        blocks=BLOCKS,
        vocab_size=VOCAB,
        round_seconds=0.1 * MS,
        contexts=(128, 256, 1024),
        residuals=Residuals(0.01, 0.03, 40),
        repeats=5,
        blas_threads=1,
        measured_seconds=20.0,
    )
    return CostProfile(**{**values, **changes})
