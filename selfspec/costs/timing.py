"""What one decoding step, one verification pass and one draft step cost on this machine.

Measured interleaved: every repeat times a plain step, each verification width and each
draft once, so that slow drift of the machine cancels in the ratios. Knows seconds and
callables that map tokens to logits; knows nothing of names, prompts or studies.

    costs = measure(model, context=ids, rows=(3, 4, 6), drafts={"10%": draft})
    costs.verify_ratio[3], costs.cost_ratio["10%"]
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from selfspec import blas  # before mlx, which keeps the BLAS it finds

import mlx.core as mx  # isort: skip
import mlx.nn as nn
from mlx_lm.generate import generate_step, generation_stream
from mlx_lm.models.cache import make_prompt_cache, trim_prompt_cache

from selfspec import decoding
from selfspec.models import device

REPEATS = 7
STEPS = 4  # decoding steps timed together: as many as a round drafts, about


@dataclass(frozen=True)
class Costs:
    """Measured costs; ratios are in units of one plain decoding step.

    Attributes:
        step_seconds: seconds of one plain, pipelined decoding step.
        verify_ratio: v(m) for m rows through the whole model.
        cost_ratio: c of each draft, by the label it was given.
        context_length: tokens in the cache while measuring.
        blas_threads: BLAS threads in use (0 on a GPU).
    """

    step_seconds: float
    verify_ratio: dict[int, float]
    cost_ratio: dict[str, float]
    context_length: int
    blas_threads: int

    def to_json(self) -> dict[str, Any]:
        """A dict that JSON holds; widths become strings."""
        out = asdict(self)
        out["verify_ratio"] = {str(m): v for m, v in self.verify_ratio.items()}
        return out


def measure(
    model,
    *,
    context: Sequence[int],
    rows: Sequence[int] = (),
    drafts: Mapping[str, Any] | None = None,
    repeats: int = REPEATS,
) -> Costs:
    """Time plain steps, verification passes and draft steps after a real context.

    Args:
        model: the target; (1, T) token ids and a cache in, (1, T, V) logits out.
        context: token ids that fill the cache first; at least two.
        rows: verification widths m, each timed as one pass of m rows.
        drafts: label -> what drafts: a model with a cache of its own, or a draft of
            `selfspec.decoding`, which works on the target's.
        repeats: interleaved repeats; the median of the per-repeat ratios is kept.

    Raises:
        ValueError: fewer than two context tokens.
    """
    if len(context) < 2:
        raise ValueError(f"context needs at least 2 tokens, got {len(context)}")
    drafts = dict(drafts or {})
    target_cache = _filled_cache(model, context)
    draft_caches = {
        label: _filled_cache(draft, context)
        for label, draft in drafts.items()
        if isinstance(draft, nn.Module)
    }
    token = int(context[-1])
    steps, verify, cost = [], {m: [] for m in rows}, {label: [] for label in drafts}
    for repeat in range(repeats + 1):
        step = plain_step_seconds(model, target_cache, token)
        passes = {m: _pass_seconds(model, target_cache, context, m) for m in rows}
        chains = {
            label: _chain_seconds(draft, draft_caches[label], token)
            if label in draft_caches
            else _draft_seconds(model, target_cache, token, draft)
            for label, draft in drafts.items()
        }
        if repeat == 0:  # pages in weights and allocates buffers
            continue
        steps.append(step)
        for m, seconds in passes.items():
            verify[m].append(seconds / step)
        for label, seconds in chains.items():
            cost[label].append(seconds / step)
    return Costs(
        step_seconds=median(steps),
        verify_ratio={m: median(values) for m, values in verify.items()},
        cost_ratio={label: median(values) for label, values in cost.items()},
        context_length=len(context),
        blas_threads=blas.threads(),
    )


def choose_threads(model, *, context: Sequence[int], repeats: int = 3) -> int:
    """Set the BLAS thread count at which plain decoding is fastest, and return it.

    Plain decoding is the baseline of every ratio, so it gets the best setting and every
    other arm gets the same one. Without OpenBLAS nothing is set.
    """
    counts = thread_counts()
    if not _can_be_set():
        return counts[0]
    cache = _filled_cache(model, context)
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    for repeat in range(repeats + 1):
        for count in counts:
            blas.set_threads(count)
            step = plain_step_seconds(model, cache, int(context[-1]))
            if repeat:
                seconds[count].append(step)
    best = min(counts, key=lambda count: median(seconds[count]))
    blas.set_threads(best)
    return best


def thread_counts() -> list[int]:
    """BLAS thread counts to choose from: 1 to the cores, where they can be set.

    Elsewhere (a GPU, MLX on its own BLAS, macOS) only the one in use.
    """
    if not _can_be_set():
        return [blas.threads()]
    return list(range(1, max(1, _physical_cores()) + 1))


def _can_be_set() -> bool:
    return device.kind() == "cpu" and blas.info()["name"] not in (
        "reference",
        "Accelerate",
    )


def _physical_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return min(8, len(os.sched_getaffinity(0)))
    return min(8, os.cpu_count() or 1)


def _filled_cache(model, context: Sequence[int]) -> list:
    cache = make_prompt_cache(model)
    with mx.stream(generation_stream):
        model(mx.array(context[:-1])[None], cache=cache)
        mx.eval([c.state for c in cache])
    return cache


def plain_step_seconds(model, cache: list, token: int) -> float:
    """Seconds of one step of mlx-lm's own loop, its one-step-ahead queue included."""
    steps = generate_step(mx.array([token]), model, prompt_cache=cache, max_tokens=-1)
    next(steps)
    start = time.perf_counter()
    for _ in range(STEPS):
        next(steps)
    seconds = time.perf_counter() - start
    steps.close()
    mx.synchronize(generation_stream)
    trim_prompt_cache(cache, STEPS + 2)  # the tokens yielded and the one queued ahead
    return seconds / STEPS


def _pass_seconds(model, cache: list, context: Sequence[int], rows: int) -> float:
    tokens = mx.array([context[-1 - i % len(context)] for i in range(rows)])
    start = time.perf_counter()
    with mx.stream(generation_stream):
        logits = model(tokens[None], cache=cache)  # (1, m, V)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        mx.eval(mx.argmax(logprobs, axis=-1))
    seconds = time.perf_counter() - start
    trim_prompt_cache(cache, rows)
    return seconds


def _chain_seconds(draft, cache: list, token: int) -> float:
    """Seconds of one draft step, queued as a round queues them: read back once."""
    tokens = mx.array([token])
    start = time.perf_counter()
    with mx.stream(generation_stream):
        for _ in range(STEPS):
            logits = draft(tokens[None], cache=cache)[:, -1, :]
            logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            tokens = mx.argmax(logprobs, axis=-1)
            mx.async_eval(tokens)
        mx.eval(tokens)
    seconds = time.perf_counter() - start
    trim_prompt_cache(cache, STEPS)
    return seconds / STEPS


def _draft_seconds(model, cache: list, token: int, draft) -> float:
    """Seconds of one draft step of the engine: one round's drafting, waited for."""
    length = cache[0].offset
    trace = decoding.Trace()
    steps = decoding.generate_step(
        [token],
        model,
        draft=draft,
        num_draft_tokens=STEPS,
        prompt_cache=cache,
        max_tokens=-1,
        trace=trace,
        time_phases=True,
    )
    next(steps)
    steps.close()
    trim_prompt_cache(cache, cache[0].offset - length)
    return trace.rounds[0].seconds_drafting / trace.rounds[0].drafted
