"""The ways of decoding that the study times: each takes a prompt and returns `Decoded`.

Every arm is greedy, stops at the same end-of-sequence ids and at the same number of
tokens, and reads the clock at yielded tokens, which MLX has computed by then.

    plain(model, prompt, num_tokens=64, eos={2})
    shorter_list(model, draft_model, prompt, num_draft_tokens=3, num_tokens=64, eos={2})
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing

import mlx.core as mx
from mlx_lm.generate import (
    generate_step,
    generation_stream,
    speculative_generate_step,
)

from selfspec.models import device
from selfspec.study.paired import Decoded


def plain(
    model, prompt: Sequence[int], *, num_tokens: int, eos: Iterable[int] = ()
) -> Decoded:
    """The baseline: mlx-lm's `generate_step`, which queues one step ahead."""
    eos = frozenset(eos)
    tokens, stamps = [], []
    device.reset_peak_memory()
    start = time.perf_counter()
    steps = generate_step(mx.array(prompt), model, max_tokens=num_tokens)
    with closing(steps):
        for token, _ in steps:
            stamps.append(time.perf_counter())
            tokens.append(int(token))
            if tokens[-1] in eos:
                break
    mx.synchronize(generation_stream)  # the step queued ahead must not outlive the arm
    return Decoded(
        tokens=tuple(tokens),
        prefill_seconds=stamps[0] - start,
        decode_seconds=stamps[-1] - stamps[0],
        decode_tokens=len(tokens) - 1,
        peak_bytes=device.peak_memory(),
    )


def shorter_list(
    model,
    draft_model,
    prompt: Sequence[int],
    *,
    num_draft_tokens: int,
    num_tokens: int,
    eos: Iterable[int] = (),
) -> Decoded:
    """The post's mechanism: mlx-lm's two-model loop, the draft a shorter layer list.

    Its first token comes with the whole first round, so decoding is timed from the end
    of that round over the tokens after it.
    """
    eos = frozenset(eos)
    tokens, stamps, drafted_flags = [], [], []
    device.reset_peak_memory()
    start = time.perf_counter()
    steps = speculative_generate_step(
        mx.array(prompt),
        model,
        draft_model,
        num_draft_tokens=num_draft_tokens,
        max_tokens=num_tokens,
    )
    with closing(steps):
        for token, _, from_draft in steps:
            stamps.append(time.perf_counter())
            tokens.append(int(token))
            drafted_flags.append(bool(from_draft))
            if tokens[-1] in eos:
                break
    mx.synchronize(generation_stream)
    rounds = rounds_of(drafted_flags, num_draft_tokens, num_tokens)
    first_round = (
        drafted_flags.index(False) + 1 if False in drafted_flags else len(tokens)
    )
    return Decoded(
        tokens=tuple(tokens),
        prefill_seconds=stamps[0] - start,
        decode_seconds=stamps[-1] - stamps[first_round - 1],
        decode_tokens=len(tokens) - first_round,
        peak_bytes=device.peak_memory(),
        rounds=rounds,
    )


def rounds_of(
    from_draft: Sequence[bool], num_draft_tokens: int, num_tokens: int
) -> tuple[tuple[int, int], ...]:
    """(drafted, accepted) of each round, recovered from mlx-lm's from_draft flags.

    A round ends with a token that is not from the draft (or with the text); it drafts
    `num_draft_tokens`, or what is left of `num_tokens`. A round that a stop token cut
    short counts what it had drafted.
    """
    rounds, emitted, accepted = [], 0, 0
    for index, flag in enumerate(from_draft):
        accepted += flag
        if not flag or index == len(from_draft) - 1:
            rounds.append((min(num_draft_tokens, num_tokens - emitted), accepted))
            emitted, accepted = index + 1, 0
    return tuple(rounds)
