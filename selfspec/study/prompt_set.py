"""The prompts a study runs on: real text, in four domains, with its source.

Acceptance is a property of text, so random tokens would measure nothing. The
committed set is in two halves that share no prompt: `calibration` for everything
that is chosen or fitted, `evaluation` for everything that is reported. A passage in
the `summary` domain is there to be copied from. This module does not know what a
model or a chat template is: a prompt's text is what the user would type.

    from selfspec.study.prompt_set import load_prompts, read_prompts
    prompts = load_prompts("evaluation", count=8)  # two of each domain
    prompts = read_prompts("my-prompts.txt")       # your own, one prompt a line
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

DOMAINS = ("chat", "code", "summary", "reasoning")
SETS = ("evaluation", "calibration")
OWN_DOMAIN = "own"  # what a reader's prompt is counted under when its file says nothing

_FOLDER = Path(__file__).parent / "prompts"


class PromptError(ValueError):
    """A prompt file or a choice of prompts that cannot be used, in one line."""


@dataclass(frozen=True)
class Prompt:
    """One prompt as the user would type it, without a chat template.

    Attributes:
        id: Short name, unique in its set: the `prompt` of a results row.
        domain: The kind of text it asks for; results are also given by domain.
        text: What is asked, passage included.
        source: "own", or "public domain: work, author, year".
    """

    id: str
    domain: str
    text: str
    source: str


def load_prompts(which: str = "evaluation", count: int | None = None) -> list[Prompt]:
    """The committed prompts of one half, or a balanced few of them.

    Args:
        which: "evaluation" (what is reported) or "calibration" (what is fitted).
        count: How many, taken by `spread`; None for all of them in file order.

    Raises:
        PromptError: `which` names no half, or `count` is not in it.
    """
    if which not in SETS:
        raise PromptError(f"no prompt set is called {which!r}: use {' or '.join(SETS)}")
    prompts = read_prompts(_FOLDER / f"{which}.jsonl")
    return prompts if count is None else spread(prompts, count, name=which)


def spread(
    prompts: Sequence[Prompt], count: int, name: str = "these prompts"
) -> list[Prompt]:
    """The first `count` prompts, taking one of each domain in turn.

    The same count always gives the same prompts, and a larger count begins with those
    of a smaller one. Domains come in the order in which they first appear; one that
    runs out is passed over.

    Raises:
        PromptError: `count` is no whole number from 1 to the number of prompts.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PromptError(
            f"the number of prompts must be a whole number from 1, got {count!r}"
        )
    if count > len(prompts):
        raise PromptError(
            f"{name} holds {len(prompts)} prompts, {count} were asked for: "
            f"use {len(prompts)} or fewer, or a file with more prompts"
        )
    turns: dict[str, int] = {}  # domain -> how many of its prompts came before
    ranked = []
    for prompt in prompts:
        turn = turns[prompt.domain] = turns.get(prompt.domain, -1) + 1
        ranked.append((turn, list(turns).index(prompt.domain), prompt))
    ranked.sort(key=lambda row: row[:2])
    return [prompt for _, _, prompt in ranked[:count]]


def read_prompts(path: str | Path) -> list[Prompt]:
    """The prompts of a file: JSON lines, or plain text with one prompt a line.

    A name that ends in `.jsonl` or `.json` holds one JSON object a line, of which only
    "text" is required; an id is then made from the line number, and domain and source
    are "own". Any other file is plain text. Empty lines are skipped.

    Raises:
        PromptError: The file is missing, empty, not UTF-8 or not as described, or two
            prompts share an id or a text (a repeated prompt is no second sample).
    """
    path = Path(path)
    lines = [
        (number, line.strip())
        for number, line in enumerate(_read_text(path).split("\n"), start=1)
        if line.strip()
    ]
    if not lines:
        raise PromptError(f"{path} holds no prompts: write one prompt a line")
    parse = _parse_json if path.suffix.lower() in (".jsonl", ".json") else _plain
    prompts: list[Prompt] = []
    seen: dict[tuple[str, str], int] = {}
    for number, line in lines:
        where = f"{path}, line {number}"
        prompt = parse(line, number, where)
        for key in ("id", "text"):
            value = getattr(prompt, key)
            first = seen.setdefault((key, value), number)
            if first != number:
                shown = f"id {value!r}" if key == "id" else "text"
                raise PromptError(
                    f"{where}: the same {shown} as line {first}; "
                    "change or remove one of the two"
                )
        prompts.append(prompt)
    return prompts


def _read_text(path: Path) -> str:
    try:
        # utf-8-sig: some editors begin a UTF-8 file with a byte order mark.
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise PromptError(f"there is no prompt file {path}") from None
    except IsADirectoryError:
        raise PromptError(f"{path} is a folder: name a prompt file") from None
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8"
        ) from None
    except OSError as error:
        raise PromptError(f"cannot read {path}: {error.strerror}") from None


def _plain(line: str, number: int, where: str) -> Prompt:
    return Prompt(_numbered(number), OWN_DOMAIN, line, "own")


def _parse_json(line: str, number: int, where: str) -> Prompt:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise PromptError(
            f"{where}: not JSON ({error.msg}, column {error.colno}); "
            "write one JSON object a line"
        ) from None
    if not isinstance(record, dict):
        raise PromptError(f'{where}: not an object; write {{"text": "..."}}')
    known = [field.name for field in fields(Prompt)]
    for key, value in record.items():
        if key not in known:
            raise PromptError(
                f"{where}: unknown key {key!r}; the keys are {', '.join(known)}"
            )
        if not isinstance(value, str) or not value.strip():
            raise PromptError(f'{where}: "{key}" must be a text that is not empty')
    if "text" not in record:
        raise PromptError(f'{where}: "text" is missing')
    record = {key: value.strip() for key, value in record.items()}
    defaults = {"id": _numbered(number), "domain": OWN_DOMAIN, "source": "own"}
    return Prompt(**(defaults | record))


def _numbered(number: int) -> str:
    return f"line-{number:02d}"
