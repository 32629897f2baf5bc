"""Show how far a run is, from outside the process that measures.

The notebook measures in a kernel of its own, whose output is only seen at the end. It
notes its progress in the run's marker file (results.py); this file reads that once a
second: a bar with the time left on a terminal, else a line now and then.

    with watching(Path("results/apple-m3/qwen3-4b/.naive-sweep.unfinished.json")):
        run_the_notebook()

What cannot tell how far it is has a bar of the time that it usually takes.

    with expected("measuring what a step costs", 20):
        measure()
"""

import json
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

POLL_SECONDS = 1.0
LINE_SECONDS = 30.0
TICK_SECONDS = 0.5
PREPARING_SECONDS = 3.0  # after which a run without a pair yet says that it prepares


@contextmanager
def watching(marker: Path | None, *, stream=None, poll_seconds: float = POLL_SECONDS):
    """Follow `marker` until the block ends; None follows nothing.

    Args:
        marker: JSON with "done" and "total"; need not exist yet, may vanish.
        stream: where to show it, standard error if not given.
    """
    if marker is None:
        yield
        return
    stream = stream or sys.stderr
    # What an earlier run left is not this run's progress; going on with it rewrites it.
    stale = _text(marker)
    show = _Bar(stream) if stream.isatty() else _Lines(stream)
    stop = threading.Event()

    def follow():
        while not stop.wait(poll_seconds):
            if (text := _text(marker)) != stale:
                show.update(read_marker(text))
            else:
                show.prepare()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
        show.complete = True
    finally:
        stop.set()
        thread.join()
        show.close()


@contextmanager
def expected(what: str, seconds: float, *, stream=None):
    """Show a bar of `seconds` on a terminal while the block runs; else nothing.

    It stays just short of its end until the block has ended.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    stop, began = threading.Event(), time.monotonic()
    with tqdm(
        total=round(seconds),
        desc=what,
        file=stream,
        leave=False,
        bar_format="{desc}: {bar} {elapsed}<{remaining}",
    ) as bar:

        def follow():
            while not stop.wait(TICK_SECONDS):
                bar.n = min(bar.total - 0.5, time.monotonic() - began)
                bar.refresh()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def read_marker(text: str) -> tuple[int, int] | None:
    """(done, total) of an unfinished run; None when the file says nothing (yet)."""
    try:
        data = json.loads(text)
        return int(data["done"]), int(data["total"])
    except (ValueError, KeyError, TypeError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def time_left(seconds: float, done: int, total: int) -> str:
    """'about 3 min left' from what `done` steps took; '' before the first step."""
    if done <= 0 or total <= done:
        return ""
    left = seconds * (total - done) / done
    if left < 90:
        return f"about {max(1, round(left))} s left"
    return f"about {round(left / 60)} min left"


class _Bar:
    """A tqdm bar; it starts where a resumed run starts, so the rate is this run's own."""

    complete = False

    def __init__(self, stream):
        self.stream, self.bar, self.before = stream, None, None
        self.began = time.monotonic()

    def prepare(self):
        """Before the first pair: the model is loaded, costs and bounds are measured."""
        waited = time.monotonic() - self.began > PREPARING_SECONDS
        if waited and self.bar is None and self.before is None:
            self.before = tqdm(
                desc="preparing (model, costs, held-out prompts)",
                bar_format="{desc}: {elapsed}",
                file=self.stream,
                disable=False,
                leave=False,
            )
            self.before.start_t -= PREPARING_SECONDS
        if self.before is not None:
            self.before.refresh()

    def update(self, state):
        if state is None:
            return
        done, total = state
        self._prepared()
        if self.bar is None:
            self.bar = tqdm(
                total=total,
                initial=done,
                desc="measuring",
                unit=" pairs",
                file=self.stream,
                disable=False,  # the kernel's TQDM_DISABLE is not for this bar
            )
        self.bar.total = total
        self.bar.n = max(done, self.bar.n)
        self.bar.refresh()

    def _prepared(self):
        if self.before is not None:
            self.before.close()
            self.before = None

    def close(self):
        self._prepared()
        if self.bar is not None:
            if self.complete:  # the marker goes with the last pair, often unseen
                self.bar.n = self.bar.total
            self.bar.close()


class _Lines:
    """A line every half minute, for logs."""

    complete = False

    def __init__(self, stream):
        self.stream = stream
        self.began = self.last = None
        self.at_start = 0

    def prepare(self):
        pass  # a log needs no line for it

    def update(self, state):
        if state is None:
            return
        now = time.monotonic()
        done, total = state
        if self.began is None:
            self.began, self.at_start = now, done
        elif now - self.last < LINE_SECONDS or done == self.at_start:
            return
        self.last = now
        left = time_left(now - self.began, done - self.at_start, total - self.at_start)
        text = f"measured {done} of {total} pairs" + (f", {left}" if left else "")
        print(text, file=self.stream, flush=True)

    def close(self):
        pass
