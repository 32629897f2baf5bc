"""The command `selfspec fit`: words in, lines out. Costs nothing to import."""

from pathlib import Path


def add(commands, say) -> None:
    """Add it to the parser's commands; `say` prints a line to standard error."""
    fit = commands.add_parser(
        "fit",
        help="teach a frozen model to draft: fit a small bridge from an early layer",
        description="Fit a bridge between an early layer and the head of a model, whose "
        "own weights stay as they are, so that what it writes stays its own text. First "
        "it says which acceptance each choice needs on this machine to break even; then "
        "the model writes text, and the bridge learns from it. An interrupted fit goes "
        "on when the same command is repeated.",
    )
    fit.add_argument(
        "--model", default="smollm2-135m", help="as of study (default: smollm2-135m)"
    )
    fit.add_argument(
        "--minutes",
        type=float,
        default=30,
        metavar="T",
        help="for text and training together (default: 30)",
    )
    fit.add_argument(
        "--data", default="", help="your own prompts beside the study's: JSONL or text"
    )
    fit.add_argument(
        "--exit-layer", type=int, metavar="E", help="in the place of the choice"
    )
    fit.add_argument(
        "--bridge", choices=["layer", "mlp"], help="in the place of the choice"
    )
    fit.add_argument(
        "--loss",
        choices=["kl", "ce"],
        default="kl",
        help="the target's whole distribution, or its best token (default: kl)",
    )
    fit.add_argument(
        "--disk",
        type=int,
        default=1024,
        metavar="MB",
        help="most that the text's streams may take (default: 1024)",
    )
    fit.add_argument("--seed", type=int, default=0, help="of text and training")
    fit.add_argument(
        "--out", default="", help="of the bridge (default: weights/bridges/)"
    )
    fit.add_argument(
        "--root", default="", help="the study's folder (default: the clone)"
    )
    fit.set_defaults(run=lambda arguments: _fit(arguments, say))


def _fit(arguments, say) -> int:
    from selfspec import blas
    from selfspec.study import fit_run, reference
    from selfspec.study.errors import StudyError
    from selfspec.training.errors import TrainingError

    if blas.problem():
        say(blas.problem())
    root = Path(arguments.root) if arguments.root else reference.find_root()
    try:
        done = fit_run.fit_model(
            arguments.model,
            minutes=arguments.minutes,
            root=root,
            data=arguments.data,
            exit_layer=arguments.exit_layer,
            kind=arguments.bridge,
            loss=arguments.loss,
            disk_mb=arguments.disk,
            seed=arguments.seed,
            out=Path(arguments.out) if arguments.out else None,
            say=say,
        )
    except TrainingError as error:  # the command line knows the study's errors
        raise StudyError(str(error)) from None
    places = ", ".join(f"{rate:.0%}" for rate in done.card.acceptance)
    print(f"acceptance on held-out text, by draft position: {places}")
    print(f"bridge: {done.path}")
    print(
        f"use it: draft = selfspec.load_bridge({str(done.path)!r}, loaded), "
        'num_draft_tokens="auto"'
    )
    return 0
