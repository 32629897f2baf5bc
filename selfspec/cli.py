"""The `selfspec` command: the library raises, this prints one line and an exit code.

selfspec study --model smollm2-135m --size smoke
selfspec train
selfspec finetune --model smollm2-135m
selfspec book
"""

import argparse
import os
import sys
from pathlib import Path

from selfspec import __version__
from selfspec.commands import check, generate, verdict
from selfspec.study import fit_command, training_commands
from selfspec.study.experiments import EXPERIMENTS, NAIVE_SWEEP

ALL = "all"  # in the place of an experiment
EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
STOPPED = "stopped; what was done is kept: the same command goes on from there"


def parser() -> argparse.ArgumentParser:
    """The command line, from which `--help` and the book's page are made."""
    top = argparse.ArgumentParser(
        prog="selfspec",
        description="Does self-speculative decoding pay on this machine? Measure it.",
    )
    top.add_argument("--version", action="version", version=f"selfspec {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    study = commands.add_parser(
        "study",
        help="measure an experiment on a model and add its page to the book",
        description="Measure an experiment on a model and add its page to the book. "
        "An interrupted run goes on where it stopped when the same command is repeated.",
    )
    which = study.add_mutually_exclusive_group()
    which.add_argument(
        "--model",
        help="smollm2-135m (fetched for you), a hub name (owner/name) or a folder; "
        "layerskip-small is this project's own (default: the experiment's)",
    )
    which.add_argument(
        "--preset",
        choices=["post"],
        help="post: the two models of the June 2026 post, 24 configurations (on a Mac)",
    )
    study.add_argument(
        "--size",
        choices=["smoke", "default", "paper"],
        help="how much is measured (default: default; with --preset: paper)",
    )
    study.add_argument(
        "--experiment",
        choices=[*EXPERIMENTS, ALL],
        default=NAIVE_SWEEP,
        help=f"which experiment, or {ALL} of them in turn (default: {NAIVE_SWEEP})",
    )
    study.add_argument("--prompts", default="", help="your own prompts: JSONL or text")
    study.add_argument(
        "--mechanism",
        choices=["two caches", "one cache"],
        help=f"of {NAIVE_SWEEP}, measure one of them: the post's two caches, or this "
        "project's engine on one (default: both)",
    )
    study.set_defaults(run=_study)

    training_commands.add_commands(commands, _say)
    fit_command.add(commands, _say)

    book = commands.add_parser(
        "book",
        help="build the book from the results at hand",
        description="Build the book from the results at hand; needs no model and no Mac.",
    )
    book.add_argument("--clean", action="store_true", help="build every page anew")
    book.set_defaults(
        run=_book,
        stopped="stopped; no result was touched: the same command goes on building",
    )
    for command in (generate, verdict, check):
        command.add(commands, _say)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # at any moment, while modules load too
        _say(getattr(arguments, "stopped", STOPPED))
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    return EXIT_INTERRUPTED


def _run(arguments) -> int:
    """The command, with the errors that a reader may meet as one line each."""
    from selfspec.models.errors import ModelError
    from selfspec.study.errors import StudyError
    from selfspec.study.prompt_set import PromptError
    from selfspec.study.results import ResultsError
    from selfspec.training import TrainingError

    known = ModelError, StudyError, ResultsError, PromptError, TrainingError
    try:
        return arguments.run(arguments)
    except known as error:
        _say(str(error))
    return EXIT_ERROR


def _study(arguments) -> int:
    from selfspec import blas
    from selfspec.study import reference, study
    from selfspec.study.errors import StudyError
    from selfspec.study.prompt_set import read_prompts

    if arguments.mechanism and arguments.experiment != NAIVE_SWEEP:
        raise StudyError(
            f"--mechanism is a choice of {NAIVE_SWEEP}, not of {arguments.experiment}. "
            "Way out: leave one of the two out"
        )
    if blas.problem():
        _say(blas.problem())
    root = reference.find_root()
    extra = {}
    if arguments.prompts:
        read_prompts(arguments.prompts)  # a bad file is told before a model is loaded
        extra["prompts_file"] = str(Path(arguments.prompts).resolve())
    if arguments.mechanism:
        extra["mechanisms"] = [arguments.mechanism]
    options = {"root": root, "parameters": extra}

    def finished(page: Path) -> None:
        print(f"page: {page.relative_to(root)}")

    if arguments.preset and arguments.experiment == ALL:
        raise StudyError(
            f"--preset and --experiment {ALL} would take days. Way out: one experiment"
        )
    if arguments.preset:
        size, options["experiment"] = arguments.size or "paper", arguments.experiment
        study.run_preset(arguments.preset, size=size, finished=finished, **options)
    elif arguments.experiment == ALL:
        size = arguments.size or "default"
        study.run_all(arguments.model, size=size, finished=finished, **options)
    else:
        size, options["experiment"] = arguments.size or "default", arguments.experiment
        model = arguments.model or EXPERIMENTS[arguments.experiment].model
        finished(study.run_study(model, size=size, **options))
    print("next: selfspec book")
    return 0


def _book(arguments) -> int:
    from selfspec.study import book_build, reference

    root = reference.find_root()
    index = book_build.build_book(root, clean=arguments.clean, say=_say)
    print(f"open {index.relative_to(root)}")
    return 0


def _say(line: str) -> None:
    print(f"selfspec: {line}", file=sys.stderr)
