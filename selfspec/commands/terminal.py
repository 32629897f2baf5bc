"""What a terminal gets and a pipe does not: colours, and a line that stays below.

The text of a model is printed as it comes, so whatever in it would steer the terminal
is taken out first.

    screen = Screen(sys.stdout)
    with screen.status() as status:
        screen.write("Paris", from_draft=True)
        status("12 of 20 drafted tokens kept")
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GREEN, RESET = "\x1b[32m", "\x1b[0m"
# Control characters but for tab and line feed: they could move, hide or rename things.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_terminal(stream) -> bool:
    """Whether a person looks at it on a screen that understands control sequences."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


class Screen:
    """Writes a model's text to a stream, in colour where that is wanted."""

    def __init__(self, stream):
        self.stream = stream
        self.lively = is_terminal(stream)
        self.coloured = self.lively and not os.environ.get("NO_COLOR")

    def write(self, text: str, *, from_draft: bool = False) -> None:
        """Print a piece of text at once; what was drafted in green."""
        if self.lively:
            text = _STEERING.sub("\ufffd", text)
        if self.coloured and from_draft and text:
            text = f"{GREEN}{text}{RESET}"
        self.stream.write(text)
        self.stream.flush()

    @contextmanager
    def status(self) -> Iterator[Callable[[str], None]]:
        """A line at the bottom of the screen while the block runs; no-op elsewhere.

        The text scrolls above it: the terminal is told that it is a row shorter.
        """
        if not self.lively:
            yield lambda line: None
            return
        size = None

        def show(line: str) -> None:
            nonlocal size
            if (now := shutil.get_terminal_size()) != size:  # at first, or resized
                size = now
                self.stream.write(f"\x1b7\x1b[1;{size.lines - 1}r\x1b8")
            line = line[: size.columns - 1]
            self.stream.write(f"\x1b7\x1b[{size.lines};1H\x1b[2K{line}\x1b8")
            self.stream.flush()

        self.stream.write("\n\x1b[1A")  # the last row is free from here on
        show("")
        try:
            yield show
        finally:
            self.stream.write(f"\x1b7\x1b[r\x1b[{size.lines};1H\x1b[2K\x1b8")
            self.stream.flush()
