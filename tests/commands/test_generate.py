"""`selfspec generate`: the model's own text, what was drafted in it, one line at the end."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest

from selfspec import cli
from selfspec.commands.generate import add
from selfspec.commands.terminal import GREEN, Screen
from selfspec.decoding.stream import MAX_TOKENS, NUM_DRAFT_TOKENS


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def generate(command, tiny_folder):
    def run(*words, prompt="Say ab ab ab."):
        return command("generate", "--model", tiny_folder, "--prompt", prompt, *words)

    return run


@pytest.mark.parametrize("draft", ["lookup", "skip:0.5", "exit:3", "shortlist:100"])
def test_text_is_the_same_with_and_without_a_draft(generate, draft):
    code, plain, _ = generate("--draft", "none", "--max-tokens", "24")
    assert code == 0 and plain.strip()
    code, text, errors = generate("--draft", draft, "--max-tokens", "24")
    assert (code, text) == (0, plain)
    assert re.search(
        rf"{draft}: (\d+ of \d+ drafted tokens kept \(acceptance rate [01]\.\d\d\)"
        r"|nothing was drafted), [\d.]+ tokens/s, 24 tokens",
        errors.splitlines()[-1],
    )


def test_counts_are_sums_of_the_rounds(generate):
    """A head for all 258 tokens is the whole one, so every token is kept."""
    _, _, errors = generate("--draft", "shortlist:258", "--max-tokens", "12")
    kept, drafted = map(int, re.search(r"(\d+) of (\d+) drafted", errors).groups())
    assert kept == drafted == 9  # three rounds of three, each with a bonus token


@pytest.mark.parametrize(
    "words, prompt, says",
    [
        (
            ["--draft", "magic"],
            "hi",
            "no draft is called 'magic'. Way out: none, lookup",
        ),
        (["--draft", "skip:many"], "hi", "no draft is called 'skip:many'"),
        (["--draft", "skip:1.5"], "hi", "--draft skip:1.5 does not fit tiny-commands"),
        (["--draft", "exit:6"], "hi", "exit_layer must be below 6"),
        (["--draft", "shortlist:999"], "hi", "--draft shortlist:999 does not fit"),
        (["--num-draft-tokens", "-1"], "hi", "num_draft_tokens must be 0 or more"),
        (["--temperature", "-1"], "hi", "temperature must be"),
        ([], " ", "the prompt is empty. Way out"),
        ([], "\udcff", "the prompt is not UTF-8 text. Way out"),
    ],
)
def test_a_mistake_is_one_line(generate, words, prompt, says):
    code, out, errors = generate(*words, prompt=prompt)
    assert code == cli.EXIT_ERROR and not out.strip()
    assert says in errors.splitlines()[-1] and "Traceback" not in errors


def test_prompt_may_come_from_standard_input(generate, monkeypatch):
    class Input:
        buffer = io.BytesIO("Zwölf Boxkämpfer".encode("latin-1"))

    monkeypatch.setattr(sys, "stdin", Input)
    code, _, errors = generate(prompt="-")
    assert code == cli.EXIT_ERROR and "not UTF-8" in errors
    Input.buffer = io.BytesIO("Zwölf Boxkämpfer".encode())
    assert generate("--max-tokens", "4", prompt="-")[0] == 0


def test_help_names_the_librarys_defaults():
    import argparse

    commands = argparse.ArgumentParser().add_subparsers()
    add(commands, print)
    text = " ".join(commands.choices["generate"].format_help().split())
    assert f"drafted a round (default: {NUM_DRAFT_TOKENS})" in text
    assert f"longest text (default: {MAX_TOKENS})" in text


def test_only_a_terminal_gets_colours_and_only_where_they_are_wanted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def written(stream):
        screen = Screen(stream)
        screen.write("kept", from_draft=True)
        screen.write("own")
        return stream.getvalue()

    assert written(Terminal()) == f"{GREEN}kept\x1b[0mown"
    assert written(io.StringIO()) == "keptown"
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(Terminal()) == "keptown"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert written(Terminal()) == "keptown"


def test_a_models_text_cannot_steer_the_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    Screen(stream).write("a\x1b]0;title\x07b\tc\n")
    assert stream.getvalue() == "a\ufffd]0;title\ufffdb\tc\n"


def test_line_below_fits_the_screen_and_leaves_it_as_it_was(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "10")
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Screen(stream).status() as status:
        status("x" * 50)
        raise KeyboardInterrupt
    assert "x" * 19 in stream.getvalue() and "x" * 20 not in stream.getvalue()
    assert "\x1b[1;9r" in stream.getvalue()  # text scrolls in the rows above
    assert stream.getvalue().endswith("\x1b7\x1b[r\x1b[10;1H\x1b[2K\x1b8")


def test_on_a_real_terminal_the_line_is_live(tiny_folder):
    ours, theirs = pty.openpty()
    words = ["generate", "--model", tiny_folder, "--prompt", "ab ab", "--max-tokens"]
    done = subprocess.Popen(
        [sys.executable, "-m", "selfspec", *words, "12", "--draft", "skip:0.5"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm"} | {"NO_COLOR": ""},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end was closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    assert done.wait() == 0 and b"drafted tokens kept" in done.stderr.read()
    assert b"skip:0.5: " in seen and seen.count(b"\x1b[r") == 1


def test_ctrl_c_counts_what_was_generated_and_says_how_to_go_on(generate, monkeypatch):
    import selfspec

    real = selfspec.stream_generate

    def stops(*words, **options):
        for number, response in enumerate(real(*words, **options)):
            if number == 5:
                raise KeyboardInterrupt
            yield response

    monkeypatch.setitem(vars(selfspec), "stream_generate", stops)
    code, out, errors = generate()
    assert code == cli.EXIT_INTERRUPTED and out.strip()
    assert "tokens/s" in errors.splitlines()[-2]
    assert errors.splitlines()[-1] == (
        "selfspec: stopped; the same command begins the text again"
    )


def test_a_reader_who_has_seen_enough_is_no_error(tiny_folder):
    words = f"generate --model {tiny_folder} --prompt ab --max-tokens 400"
    done = subprocess.run(
        f"{sys.executable} -m selfspec {words} | head -c 1",
        shell=True,
        capture_output=True,
    )
    assert b"Traceback" not in done.stderr and b"Broken" not in done.stderr
