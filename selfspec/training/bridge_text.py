"""The text a bridge is fitted on: the target's own, read as the target reads it.

Many prompts go on at the same time, because rows of a pass are cheap; while they do,
two places of the stack are listened to: the layer that the bridge begins after, and the
last one, whose distribution it shall learn. So no text is read twice. Knows token ids,
nothing of files.

    readings = write(stack, prompts, exit_layer=8, max_tokens=128, eos={2})
    readings[0].ids, readings[0].early        # (n + 1) tokens, (n, dim)
    questions = ask(stack, before, after, count=16, seed=3, eos={2})
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache, KVCache, make_prompt_cache

from selfspec.models.blocks import Stack
from selfspec.models.surgery import with_call

PAD = 0  # any token: padded places are masked
QUESTION = 48  # most tokens of a question that the model puts to itself


@dataclass(frozen=True)
class Reading:
    """A text and what two layers said while it was read.

    Attributes:
        ids: prompt and answer.
        start: where the answer begins.
        early, late: residual stream after the exit layer and after the last layer, not
            normed, (len(ids) - 1, dim): the last token has not been read.
    """

    ids: tuple[int, ...]
    start: int
    early: mx.array
    late: mx.array


def write(
    stack: Stack,
    prompts: Sequence[Sequence[int]],
    *,
    exit_layer: int,
    max_tokens: int,
    eos: Collection[int] = (),
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Reading]:
    """Let the target answer every prompt, all at once if its caches allow it.

    Args:
        prompts: token ids, one list a row, each at least one.
        max_tokens: most tokens of an answer; it ends after one of `eos`.
        temperature: 0 is greedy.
        seed: of sampled text.
    """
    entries = make_prompt_cache(stack.model)
    if any(type(entry) is not KVCache for entry in entries) and len(prompts) > 1:
        return [
            reading
            for place, prompt in enumerate(prompts)
            for reading in write(
                stack,
                [prompt],
                exit_layer=exit_layer,
                max_tokens=max_tokens,
                eos=eos,
                temperature=temperature,
                seed=seed + place,
            )
        ]
    longest = max(map(len, prompts))
    padding = [longest - len(p) for p in prompts]
    if len(prompts) > 1:
        entries = [BatchKVCache(list(padding)) for _ in entries]
    model, early, late = _listening(stack, exit_layer)
    ids = mx.array(
        [[PAD] * n + list(p) for n, p in zip(padding, prompts, strict=True)], mx.uint32
    )
    key = mx.random.key(seed)
    answers: list[list[int]] = [[] for _ in prompts]
    unfinished = set(range(len(prompts)))
    for _ in range(max_tokens):
        logits = model(ids, cache=entries)[:, -1].astype(mx.float32)  # (B, V)
        if temperature:
            key, own = mx.random.split(key)
            ids = mx.random.categorical(logits / temperature, key=own)[:, None]
        else:
            ids = mx.argmax(logits, axis=-1)[:, None]
        mx.eval(ids, early[-1], late[-1])
        for row, token in enumerate(ids[:, 0].tolist()):
            if row in unfinished:
                answers[row].append(token)
                if token in eos:
                    unfinished.discard(row)
        if not unfinished:
            break
    streams = [mx.concatenate(parts, axis=1) for parts in (early, late)]
    readings = []
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        begin, end = padding[row], longest + len(answer) - 1
        own = [stream[row, begin:end] for stream in streams]
        readings.append(Reading((*prompt, *answer), len(prompt), *own))
    mx.eval([(r.early, r.late) for r in readings])
    return readings


def ask(
    stack: Stack,
    before: Sequence[int],
    after: Sequence[int],
    *,
    count: int,
    seed: int,
    eos: Collection[int] = (),
    max_tokens: int = QUESTION,
) -> list[list[int]]:
    """Prompts that the model puts to itself: what it would say in the user's place.

    Args:
        before, after: token ids around a user's turn.
    """
    readings = write(
        stack,
        [list(before)] * count,
        exit_layer=1,
        max_tokens=max_tokens,
        eos=eos,
        temperature=1.0,
        seed=seed,
    )
    questions = []
    for reading in readings:
        said = [t for t in reading.ids[reading.start :] if t not in eos]
        questions.append([*before, *said, *after])
    return questions


def _listening(stack: Stack, exit_layer: int):
    """The model, and two lists into which its streams (B, T, dim) are put."""
    early: list[mx.array] = []
    late: list[mx.array] = []

    def keeping(layer, heard, last):
        def call(self, *args, **kwargs):
            heard.append(layer(*args, **kwargs))
            # the head is dear, and only the last row is asked for a token
            return heard[-1][:, -1:] if last else heard[-1]

        return with_call(layer, call)

    layers = list(stack.layers)
    layers[exit_layer - 1] = keeping(layers[exit_layer - 1], early, False)
    layers[-1] = keeping(layers[-1], late, True)
    return stack.with_layers(layers), early, late
