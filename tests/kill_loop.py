"""Run an experiment in child processes that are killed at random, until it is whole.

A script of its own, because children are forked: whatever is slow to import and safe to
fork is imported once, MLX only in each child.

    python tests/kill_loop.py JOB.json

JOB.json: model, kills (per experiment), seed, and of every experiment `module`,
`options` of its `measure`, and two results folders: `whole`, for a run that nobody
disturbs, and `killed`. Prints a line of JSON for every experiment: how often it was
killed, and how many rows were on disk each time.
"""

import importlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import matplotlib.pyplot  # noqa: F401
import optuna  # noqa: F401
import pandas  # noqa: F401
import scipy.stats  # noqa: F401
import transformers  # noqa: F401


def main(job: dict) -> None:
    if hasattr(os, "sched_setaffinity"):  # one core, so one thread count to choose from
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = random.Random(job["seed"])
    for name, experiment in job["experiments"].items():
        began = time.monotonic()
        wait(start(job["model"], experiment, experiment["whole"]))
        usual = time.monotonic() - began
        rows = []
        while len(rows) < job["kills"]:
            child = start(job["model"], experiment, experiment["killed"])
            # the later kills wait until there are rows, so that some are lost if any are
            if rows:
                until_rows(experiment, name, rows[-1] + 1, child)
            time.sleep(rng.uniform(0, usual) * (0.05 if rows else 0.7))
            if not killed(child):
                break  # it was done before
            rows.append(count(experiment, name))
        if rows and not finished(experiment, name):
            wait(start(job["model"], experiment, experiment["killed"]))
        print(json.dumps({"experiment": name, "rows": rows}), flush=True)


def start(model: str, experiment: dict, results: str) -> int:
    """A child that measures; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        module = importlib.import_module(f"selfspec.study.{experiment['module']}")
        module.measure(model, results=results, **experiment["options"])
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def wait(child: int) -> None:
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"a child that nobody killed ended with {status}")


def until_rows(experiment: dict, name: str, least: int, child: int) -> None:
    """Wait until that many rows are on disk, or until the child has ended."""
    while count(experiment, name) < least:
        # looks without collecting: the kill after it collects
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.002)


def killed(child: int) -> bool:
    """Kill the child where it is; False if it had ended by itself."""
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def files(experiment: dict, name: str) -> list[Path]:
    return list(Path(experiment["killed"]).glob(f"*/*/{name}.csv"))


def count(experiment: dict, name: str) -> int:
    """Rows on disk."""
    found = files(experiment, name)
    return max(0, len(found[0].read_text().splitlines()) - 1) if found else 0


def finished(experiment: dict, name: str) -> bool:
    folder = Path(experiment["killed"])
    return bool(files(experiment, name)) and not list(
        folder.glob(f"*/*/.{name}.unfinished.json")
    )


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
