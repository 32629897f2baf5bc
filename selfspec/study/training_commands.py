"""The commands `selfspec train` and `selfspec finetune`: words in, lines out.

Costs nothing to import: defaults come from files without MLX, the rest is imported when
a command runs.
"""

from dataclasses import replace
from pathlib import Path

from selfspec.training import arms
from selfspec.training.settings import Settings

ALL = "all"
COMMITTED = ("baseline", "ld-ee")  # whose weights of seed 0 the study keeps


def add_commands(commands, say) -> None:
    """Add both to the parser's commands; `say` prints a line to standard error."""
    defaults = Settings()
    train = commands.add_parser(
        "train",
        help="train the study's small models, or all arms of the comparison",
        description="Train the study's small models on its own task, from the seed. "
        f"Without --arms: {' and '.join(COMMITTED)} of seed 0 and the small draft, "
        "whose weights the study keeps (minutes each on a CPU). With --arms all: every "
        "arm with every seed, one after another (hours). What is trained already is "
        "left alone; an interrupted training goes on from its checkpoint when the same "
        "command is repeated.",
    )
    train.add_argument(
        "--arms",
        nargs="+",
        choices=[ALL, *arms.ARMS],
        metavar="ARM",
        help=f"{ALL}, or some of {', '.join(arms.ARMS)}",
    )
    train.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        metavar="SEED",
        help="of the named arms (default: 0; with --arms all the arm's own number)",
    )
    train.add_argument(
        "--steps", type=int, help=f"updates of each model (default: {defaults.steps})"
    )
    train.add_argument(
        "--root", default="", help="folder of results and weights (default: the clone)"
    )
    train.set_defaults(run=lambda arguments: _train(arguments, say))

    finetune = commands.add_parser(
        "finetune",
        help="teach a model's early layers to speak, and compare before with after",
        description="Continue the training of a model with layer dropout and an "
        "early-exit loss, and score its exits on held-out texts before and after. "
        "An interrupted run goes on when the same command is repeated.",
    )
    finetune.add_argument(
        "--model",
        default="smollm2-135m",
        help="as of study (default: smollm2-135m)",
    )
    finetune.add_argument(
        "--data",
        default="",
        metavar="JSONL",
        help='your own texts, {"text": ...} or {"prompt": ..., "completion": ...} a '
        "line; a tenth is held out (default: the study's task)",
    )
    finetune.add_argument(
        "--method",
        choices=["lora", "full"],
        default="lora",
        help="train adapters (mlx-lm's) or every weight (default: lora)",
    )
    finetune.add_argument("--steps", type=int, help="updates (default: 200)")
    finetune.add_argument("--batch", type=int, help="texts a step (default: 4)")
    finetune.add_argument("--rate", type=float, help="learning rate, at its peak")
    finetune.add_argument("--seed", type=int, help="of data and dropout (default: 0)")
    finetune.add_argument(
        "--root", default="", help="folder of results (default: the clone)"
    )
    finetune.set_defaults(run=lambda arguments: _finetune(arguments, say))


def _root(arguments) -> Path:
    from selfspec.study import reference

    return Path(arguments.root) if arguments.root else reference.find_root()


def _train(arguments, say) -> int:
    _advise(say)
    from selfspec.study.arms_series import WEIGHTS, Series
    from selfspec.study.errors import StudyError

    names = list(dict.fromkeys(arguments.arms or COMMITTED))
    if ALL in names and len(names) > 1:
        raise StudyError(f"--arms {ALL} is all of them. Way out: leave the others out")
    if ALL in names:
        jobs = arms.plan(seeds=arguments.seeds)
    else:
        jobs = arms.plan(names, arguments.seeds or [0])
    root = _root(arguments)
    settings = _settings(Settings(), steps=arguments.steps)
    series = Series(root, settings)
    if arguments.arms is None or ALL in names:
        series.small_draft(say=print)
    series.run(jobs, say=print)
    print(f"rows: {series.folder.relative_to(root)}; weights: {WEIGHTS}")
    return 0


def _finetune(arguments, say) -> int:
    _advise(say)
    from selfspec.study import finetune
    from selfspec.study.arms_series import steps_shown

    settings = _settings(
        finetune.settings_for(arguments.method),
        steps=arguments.steps,
        batch=arguments.batch,
        seed=arguments.seed,
        learning_rate=arguments.rate,
    )
    root = _root(arguments)
    with steps_shown(arguments.model, settings.steps) as progress:
        done = finetune.finetune(
            arguments.model,
            root=root,
            data=arguments.data,
            method=arguments.method,
            settings=settings,
            say=say,
            progress=progress,
        )
    for line in finetune.summary(done.rows):
        print(line)
    if done.folder:
        print(f"model: {done.folder}; study it with --model {done.folder}")
    print(f"rows: {done.csv}")
    return 0


def _settings(settings: Settings, **changes) -> Settings:
    """The settings with what was asked; a value out of range is one line."""
    from selfspec.study.errors import StudyError

    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return replace(settings, **given)
    except ValueError as error:
        raise StudyError(f"{error}. Way out: another value") from None


def _advise(say) -> None:
    from selfspec import blas

    if blas.problem():
        say(blas.problem())
