"""Progress of a run, read from its marker file."""

import io
import json
import threading

import pytest

from selfspec.study import progress


class Screen(io.StringIO):
    """A stream that says it is a terminal, and can be waited for."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self):
        return self.terminal

    def write(self, text):
        result = super().write(text)
        self.written.set()
        return result


def follow(marker, screen, *states):
    """What is shown while `states` go through the marker one after the other."""
    with progress.watching(marker, stream=screen, poll_seconds=0.01):
        for state in states:
            screen.written.clear()
            marker.write_text(json.dumps(state))
            screen.written.wait(10 if screen.terminal else 0.3)
    return screen.getvalue()


def test_terminal_gets_a_bar_with_the_time_left(tmp_path):
    screen = Screen(terminal=True)
    shown = follow(
        tmp_path / "m", screen, {"done": 2, "total": 8}, {"done": 4, "total": 8}
    )
    assert "measuring" in shown and "4/8" in shown
    assert "<" in shown  # tqdm's elapsed<left


def test_bar_is_full_after_success_and_only_then(tmp_path):
    shown = follow(tmp_path / "m", Screen(terminal=True), {"done": 3, "total": 8})
    assert "8/8" in shown
    screen = Screen(terminal=True)
    marker = tmp_path / "n"
    with pytest.raises(KeyboardInterrupt):
        with progress.watching(marker, stream=screen, poll_seconds=0.01):
            marker.write_text('{"done": 3, "total": 8}')
            screen.written.wait(10)
            raise KeyboardInterrupt
    assert "8/8" not in screen.getvalue() and "3/8" in screen.getvalue()


def test_what_an_earlier_run_left_is_not_shown(tmp_path):
    marker = tmp_path / "m"
    marker.write_text('{"done": 10, "total": 192}')
    shown = follow(marker, Screen(terminal=True), {"done": 1, "total": 8})
    assert "192" not in shown and "1/8" in shown


def test_log_gets_few_whole_lines(tmp_path):
    states = [{"done": done, "total": 8} for done in range(1, 4)]
    shown = follow(tmp_path / "m", Screen(terminal=False), *states)
    assert shown == "measured 1 of 8 pairs\n"  # the next line is due in half a minute


def test_bar_is_drawn_even_where_the_kernels_bars_are_off(tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    screen = Screen(terminal=True)
    assert "1/2" in follow(tmp_path / "m", screen, {"done": 1, "total": 2})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"done": 1}', '{"done": "x", "total": 2}']
)
def test_half_written_marker_says_nothing(text):
    assert progress.read_marker(text) is None


@pytest.mark.parametrize(
    ("seconds", "done", "total", "text"),
    [
        (10, 1, 3, "about 20 s left"),
        (60, 1, 6, "about 5 min left"),
        (10, 0, 3, ""),
        (10, 3, 3, ""),
    ],
)
def test_time_left(seconds, done, total, text):
    assert progress.time_left(seconds, done, total) == text


def test_a_run_without_a_pair_yet_says_that_it_prepares(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "PREPARING_SECONDS", 0.0)
    screen = Screen(terminal=True)
    with progress.watching(tmp_path / "m", stream=screen, poll_seconds=0.01):
        screen.written.wait(10)
        (tmp_path / "m").write_text('{"done": 3, "total": 8}')
        while "3/8" not in screen.getvalue():
            screen.written.clear()
            assert screen.written.wait(10)
    shown = screen.getvalue()
    assert shown.index("preparing") < shown.index("3/8")


def test_what_cannot_count_has_a_bar_of_its_usual_time(monkeypatch):
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.01)
    screen = Screen(terminal=True)
    with pytest.raises(KeyboardInterrupt), progress.expected("fit", 9, stream=screen):
        screen.written.clear()
        assert screen.written.wait(10)
        raise KeyboardInterrupt
    assert "fit: " in screen.getvalue() and "<" in screen.getvalue()
    log = Screen(terminal=False)
    with progress.expected("fit", 9, stream=log):
        pass
    assert log.getvalue() == ""
