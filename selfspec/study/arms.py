"""The ways of decoding that the study times: each takes a prompt and returns `Decoded`.

Every arm stops at the same end-of-sequence ids and at the same number of tokens, and
reads the clock at yielded tokens, which MLX has computed by then. They are greedy unless
a temperature is given.

    plain(model, prompt, num_tokens=64, eos={2})
    shorter_list(model, draft_model, prompt, num_draft_tokens=3, num_tokens=64, eos={2})
    one_cache(model, draft, prompt, num_draft_tokens=3, num_tokens=64, eos={2})
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import (
    generate_step,
    generation_stream,
    speculative_generate_step,
)
from mlx_lm.sample_utils import make_sampler

from selfspec import decoding
from selfspec.models import device
from selfspec.study.paired import Decoded


def plain(
    model,
    prompt: Sequence[int],
    *,
    num_tokens: int,
    eos: Iterable[int] = (),
    temperature: float = 0.0,
    seed: int | None = None,
    prompt_cache: list | None = None,
) -> Decoded:
    """The baseline: mlx-lm's `generate_step`, which queues one step ahead.

    Args:
        temperature, seed: of mlx-lm's own sampler.
        prompt_cache: of what was read before the prompt; it is written to.
    """
    eos = frozenset(eos)
    tokens, stamps = [], []
    sampler = make_sampler(temperature) if temperature else None
    if seed is not None:
        mx.random.seed(seed)
    device.reset_peak_memory()
    start = time.perf_counter()
    steps = generate_step(
        mx.array(prompt),
        model,
        max_tokens=num_tokens,
        sampler=sampler,
        prompt_cache=prompt_cache,
    )
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
    """The post's mechanism: mlx-lm's two-model loop, the draft a shorter layer list."""
    emitted = _speculate(
        lambda: speculative_generate_step(
            mx.array(prompt),
            model,
            draft_model,
            num_draft_tokens=num_draft_tokens,
            max_tokens=num_tokens,
        ),
        eos,
    )
    rounds = rounds_of(emitted.from_draft, num_draft_tokens, num_tokens)
    return emitted.decoded(rounds)


def one_cache(
    model,
    draft,
    prompt: Sequence[int],
    *,
    num_draft_tokens: int = 0,
    policy=None,
    num_tokens: int,
    eos: Iterable[int] = (),
    temperature: float = 0.0,
    seed: int | None = None,
    match: bool = False,
    prompt_cache: list | None = None,
) -> Decoded:
    """This project's engine: `draft` works on the target's own cache.

    Args:
        draft: None decodes plainly.
        num_draft_tokens: the same in every round, where no policy chooses.
        policy: a DraftPolicy, fresh for this one generation, in its place.
        temperature, seed: as `decoding.generate_step` takes them.
        match: sample by mlx-lm's sampler, under the match rule.
        prompt_cache: of what was read before the prompt; it is written to.
    """
    trace = decoding.Trace()
    rounds: list[tuple[int, int]] = []
    plain: list[bool] = []
    chosen: dict[str, Any] = {}
    if policy is None:
        chosen["num_draft_tokens"] = num_draft_tokens
    if match:
        chosen["sampler"] = make_sampler(temperature)
    else:
        chosen["temperature"] = temperature
    emitted = _speculate(
        lambda: _noting_rounds(
            decoding.generate_step(
                mx.array(prompt),
                model,
                draft=draft,
                policy=policy,
                max_tokens=num_tokens,
                seed=seed,
                prompt_cache=prompt_cache,
                trace=trace,
                **chosen,
            ),
            trace,
            rounds,
            plain,
        ),
        eos,
    )
    return emitted.decoded(tuple(rounds), tuple(plain))


def _noting_rounds(steps: Iterator, trace, rounds: list, plain: list) -> Iterator:
    """Pass the tokens on and note (drafted, accepted) of every round as it comes.

    A step of plain decoding, which a policy may choose and which is all that is left
    past a full sliding window, is noted as (0, 0) and as plain; a round in which a
    lookup found nothing is (0, 0) too, but no plain step.
    """
    steps_taken, drafted = 0, 0
    with closing(steps):
        for step in steps:
            if trace.plain_tokens > steps_taken:
                steps_taken = trace.plain_tokens
                rounds.append((0, 0))
                plain.append(True)
            elif len(trace.rounds) > drafted:
                latest = trace.rounds[drafted]
                drafted += 1
                rounds.append((latest.drafted, latest.accepted))
                plain.append(False)
            yield step


@dataclass
class _Emitted:
    """Tokens of one speculative run with the times at which they were handed out."""

    tokens: list[int]
    stamps: list[float]
    from_draft: list[bool]
    start: float
    peak_bytes: int = 0

    def decoded(
        self, rounds: tuple[tuple[int, int], ...], plain: tuple[bool, ...] = ()
    ) -> Decoded:
        """The first token comes with the whole first round, so decoding is timed from
        the end of that round, over the tokens after it."""
        flags = self.from_draft
        first_round = flags.index(False) + 1 if False in flags else len(flags)
        return Decoded(
            tokens=tuple(self.tokens),
            prefill_seconds=self.stamps[0] - self.start,
            decode_seconds=self.stamps[-1] - self.stamps[first_round - 1],
            decode_tokens=len(self.tokens) - first_round,
            peak_bytes=self.peak_bytes,
            rounds=rounds,
            plain=plain,
        )


def _speculate(begin: Callable[[], Iterator], eos: Iterable[int]) -> _Emitted:
    eos = frozenset(eos)
    device.reset_peak_memory()
    out = _Emitted([], [], [], start=time.perf_counter())
    with closing(begin()) as steps:
        for token, _, from_draft in steps:
            out.stamps.append(time.perf_counter())
            out.tokens.append(int(token))
            out.from_draft.append(bool(from_draft))
            if out.tokens[-1] in eos:
                break
    mx.synchronize(generation_stream)
    out.peak_bytes = device.peak_memory()
    return out


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
