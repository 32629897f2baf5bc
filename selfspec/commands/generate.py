"""`selfspec generate`: try a draft on a prompt and see what it is worth.

selfspec generate --prompt "Write a haiku" --draft skip:0.1 --num-draft-tokens 2
"""

import sys
import time

from selfspec.commands import draft_words
from selfspec.commands.terminal import Screen

EVERY_SECONDS = 0.2  # between two looks at the line below


def add(commands, say) -> None:
    """Add the command to the parser; `say` prints a line to standard error."""
    generate = commands.add_parser(
        "generate",
        help="try a draft on a prompt: the text, what was drafted, how fast",
        description="Answer a prompt while a draft proposes tokens. The text is the one "
        "that the model gives without a draft. On a terminal, what the draft proposed "
        "and the model kept is green (not where NO_COLOR is set). At the end: the share "
        "of drafted tokens that was kept, and tokens per second.",
    )
    generate.add_argument(
        "--model",
        default="smollm2-135m",
        help="as of study (default: smollm2-135m, fetched for you)",
    )
    generate.add_argument(
        "--prompt", required=True, help="what to ask; - reads it from standard input"
    )
    generate.add_argument(
        "--draft",
        default="lookup",
        help=f"what drafts: {draft_words.FORMS} (default: lookup, which proposes what "
        "stood in the text before)",
    )
    generate.add_argument(
        "--num-draft-tokens",
        type=_length,
        metavar="N|auto",
        help="most tokens drafted a round (default: 3); auto measures this machine once "
        "and drafts only where that pays",
    )
    generate.add_argument(
        "--max-tokens", type=int, metavar="N", help="longest text (default: 256)"
    )
    generate.add_argument(
        "--temperature", type=float, default=0.0, help="0 is greedy (default: 0)"
    )
    generate.add_argument(
        "--seed", type=int, help="makes a sampled text the same again"
    )
    generate.set_defaults(
        run=lambda arguments: _generate(arguments, say),
        stopped="stopped; the same command begins the text again",
    )


def _length(text: str) -> int | str:
    return text if text == "auto" else int(text)


def _generate(arguments, say) -> int:
    from selfspec.study.errors import StudyError

    words = draft_words.check(arguments.draft)
    prompt = _prompt(arguments.prompt)
    import selfspec
    from selfspec import blas, models
    from selfspec.commands.loading import load

    if blas.problem():
        say(blas.problem())
    loaded = load(arguments.model, say)
    given = {
        "num_draft_tokens": arguments.num_draft_tokens,
        "max_tokens": arguments.max_tokens,
        "seed": arguments.seed,
    }
    draft = draft_words.draft_of(words, loaded)
    ids = models.render_prompt(loaded.tokenizer, prompt)
    shown = _Shown(words)
    try:
        shown.all(
            selfspec.stream_generate(
                loaded.model,
                loaded.tokenizer,
                ids,
                draft=draft,
                temperature=arguments.temperature,
                **{name: value for name, value in given.items() if value is not None},
            )
        )
    except ValueError as error:
        raise StudyError(str(error)) from None
    finally:
        if shown.last is not None:
            print(file=sys.stdout, flush=True)
            say(shown.summary())
    return 0


def _prompt(text: str) -> str:
    """The prompt as text that a tokenizer takes.

    Raises:
        StudyError: empty, or not UTF-8.
    """
    from selfspec.study.errors import StudyError

    try:
        if text == "-":
            text = sys.stdin.buffer.read().decode("utf-8-sig")
        text.encode()  # bytes of the command line that are no UTF-8 come as surrogates
    except UnicodeError:
        raise StudyError(
            "the prompt is not UTF-8 text. Way out: a terminal or a file in UTF-8"
        ) from None
    if not text.strip():
        raise StudyError('the prompt is empty. Way out: --prompt "some words"')
    return text


class _Shown:
    """Responses as they come, and what they amounted to."""

    def __init__(self, words: str):
        self.words, self.last = words, None
        if hasattr(sys.stdout, "reconfigure"):  # a terminal that cannot show a letter
            sys.stdout.reconfigure(errors="replace")
        self.screen = Screen(sys.stdout)

    def all(self, responses) -> None:
        """Print every response; the line below tells how it goes."""
        looked = 0.0
        with self.screen.status() as status:
            for response in responses:
                self.last = response
                self.screen.write(response.text, from_draft=response.from_draft)
                if time.monotonic() - looked > EVERY_SECONDS:
                    looked = time.monotonic()
                    status(self.summary())

    def summary(self) -> str:
        """One line: what was kept of what was drafted, and the speed."""
        trace = self.last.trace
        parts = []
        if self.words != "none":
            parts.append(f"{trace.accepted} of {trace.drafted} drafted tokens kept")
            if trace.drafted:
                parts[0] += f" (acceptance rate {trace.acceptance_rate:.2f})"
            else:
                parts[0] = "nothing was drafted"
        # the clock starts at the first token, so one token has no speed
        if self.last.generation_tokens > 1:
            parts.append(f"{self.last.generation_tps:.1f} tokens/s")
        parts.append(f"{self.last.generation_tokens} tokens")
        return f"{self.words}: " + ", ".join(parts)
