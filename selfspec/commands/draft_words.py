"""Drafts in a few letters, as they are typed after --draft.

draft_of("skip:0.1", loaded)         # SkipDraft.middle(num_layers, 0.1)
draft_of("exit:15", loaded)          # ExitDraft(15)
draft_of("shortlist:4096", loaded)   # the whole model, the head for 4096 tokens
draft_of("none", loaded)             # None: plain decoding
"""

from typing import Any

from selfspec.study.errors import StudyError

FORMS = "none, lookup, skip:SHARE, exit:LAYER or shortlist:TOKENS"
KINDS = ("skip", "exit", "shortlist")
PLAIN = ("none", "lookup")


def check(words: str) -> str:
    """`words` if they have the form of a draft; whether it fits a model is seen later.

    Raises:
        StudyError: they have not.
    """
    kind, _, number = words.partition(":")
    if (words in PLAIN) or (kind in KINDS and _number(kind, number) is not None):
        return words
    raise StudyError(
        f"no draft is called {words!r}. Way out: {FORMS}, such as skip:0.1, exit:15 or "
        "shortlist:4096"
    )


def draft_of(words: str, loaded) -> Any:
    """The draft for a model, as `selfspec.stream_generate` takes it.

    Raises:
        StudyError: no such draft, or one that does not fit the model.
    """
    from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
    from selfspec.study.shortlist_tokens import most_frequent

    check(words)
    kind, _, number = words.partition(":")
    layers = loaded.source.num_layers
    try:
        match kind:
            case "none":
                return None
            case "lookup":
                return LookupDraft()
            case "skip":
                return SkipDraft.middle(layers, float(number))
            case "exit":
                if int(number) >= layers:
                    raise ValueError(f"exit_layer must be below {layers}, its layers")
                return ExitDraft(int(number))
        return ShortlistDraft(SkipDraft(), most_frequent(loaded, int(number)))
    except ValueError as error:
        raise StudyError(
            f"--draft {words} does not fit {loaded.source.name}: {error}. "
            "Way out: another number"
        ) from None


def _number(kind: str, text: str) -> float | None:
    try:
        return float(text) if kind == "skip" else int(text)
    except ValueError:
        return None
