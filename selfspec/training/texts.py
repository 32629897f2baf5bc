"""Texts that a loaded model is taught on: the task's parses, or the reader's own JSONL.

Each is asked as the model's chat template asks, and learnt from the answer on, its end
included; a text without a question is learnt whole.

    samples = read_texts("mine.jsonl", tokenizer)
    learnt, held_out = split(samples, seed=0)            # a tenth is held out
    parses_for(tokenizer, task.train)                    # the task, for any tokenizer
"""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from selfspec.models import encode_text, render_prompt
from selfspec.training.batches import Sample
from selfspec.training.errors import TrainingError
from selfspec.training.parses import Example

HELD_OUT = 0.1  # share of the reader's texts, at least one
MOST_HELD_OUT = 100  # texts of the task
LONGEST = 512  # tokens of a text; what is beyond is left out
KEYS = ({"text"}, {"prompt", "completion"})


def parses_for(tokenizer, examples: Iterable[Example]) -> list[Sample]:
    """Examples of the task as this tokenizer's texts: asked, then answered."""
    return [answered(tokenizer, one.utterance, one.parse) for one in examples]


def answered(tokenizer, prompt: str, completion: str) -> Sample:
    """A question and its answer; learnt from the answer on."""
    asked = render_prompt(tokenizer, prompt)
    return Sample((*asked, *_ended(tokenizer, completion)), start=len(asked))


def read_texts(path: str | Path, tokenizer) -> list[Sample]:
    """The texts of a JSONL file: {"text": ...} or {"prompt": ..., "completion": ...}.

    A text of more than LONGEST tokens is cut there.

    Raises:
        TrainingError: a file or a line that cannot be used, named with its number.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(
            f"{path} cannot be read ({error}). Way out: a JSONL file in UTF-8"
        ) from None
    found = [
        _sample(line, f"{path}, line {number}", tokenizer)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if len(found) < 2:
        raise TrainingError(
            f"{path} holds {len(found)} texts, and one has to be held out. "
            "Way out: two or more, one a line"
        )
    return found


def split(samples: Sequence[Sample], *, seed: int) -> tuple[list[Sample], list[Sample]]:
    """(learnt, held out): a tenth is held out, at least one; the same for the same seed."""
    order = random.Random(f"{seed}/texts").sample(range(len(samples)), len(samples))
    count = max(1, round(HELD_OUT * len(samples)))
    return (
        [samples[i] for i in sorted(order[count:])],
        [samples[i] for i in sorted(order[:count])],
    )


def _sample(line: str, where: str, tokenizer) -> Sample:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise TrainingError(
            f"{where}: not JSON ({error.msg}). Way out: one JSON object a line"
        ) from None
    right = isinstance(record, dict) and set(record) in KEYS
    if not right or not all(isinstance(v, str) and v.strip() for v in record.values()):
        raise TrainingError(
            f'{where}: write {{"text": "..."}} or '
            '{"prompt": "...", "completion": "..."}, none of them empty'
        )
    if "text" in record:
        sample = Sample(_ended(tokenizer, record["text"]), start=1)
    else:
        sample = answered(tokenizer, record["prompt"], record["completion"])
    if sample.start >= LONGEST:
        raise TrainingError(
            f"{where}: the prompt alone has {sample.start} tokens. "
            f"Way out: fewer than {LONGEST}"
        )
    return Sample(sample.ids[:LONGEST], sample.start)


def _ended(tokenizer, text: str) -> tuple[int, ...]:
    """Token ids of a text and its end token; the lowest where there are several."""
    return (*encode_text(tokenizer, text), min(tokenizer.eos_token_ids))
