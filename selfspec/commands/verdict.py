"""`selfspec verdict`: does any draft pay here? One paragraph and an exit code.

selfspec verdict --model smollm2-135m && echo "it pays"
"""

from selfspec.commands.loading import load

NOTHING_PAYS = 3


def add(commands, say) -> None:
    """Add the command to the parser; `say` prints a line to standard error."""
    verdict = commands.add_parser(
        "verdict",
        help="does any draft pay with this model here? one paragraph, two minutes",
        description="Measure what a step costs on this machine (once, kept), time the "
        "most promising drafts against plain decoding on a few short texts, and say "
        "which one pays, if any. A quick answer: the study measures more and shows why. "
        f"Exit code 0 when a draft pays (its interval lies above 1), {NOTHING_PAYS} "
        "when none does, 1 when it cannot be told. Interrupted, the same command goes "
        "on.",
    )
    verdict.add_argument(
        "--model",
        default="smollm2-135m",
        help="as of study (default: smollm2-135m, fetched for you)",
    )
    verdict.set_defaults(run=lambda arguments: _verdict(arguments, say))


def _verdict(arguments, say) -> int:
    from selfspec import blas
    from selfspec.study import progress, verdict

    if blas.problem():
        say(blas.problem())
    loaded = load(arguments.model, say)
    found = verdict.reach(loaded, stage=progress.expected)
    print(found.paragraph())
    if found.best is None:
        return 1
    return 0 if found.pays else NOTHING_PAYS
