"""The public face: `generate_step` for token ids, `stream_generate` for text.

Argument names and response fields are mlx-lm's wherever it has one. What differs:
`draft`, and `temperature` with its companions in the place of a `sampler`, because
acceptance needs both distributions (a `sampler` is still taken, by the match rule).

    for r in stream_generate(model, tokenizer, prompt, draft=draft, max_tokens=256):
        print(r.text, end="")
    print(r.trace.acceptance_rate)
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import (
    DEFAULT_QUANTIZED_KV_START,
    GenerationResponse,
    generation_stream,
    wired_limit,
)
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler
from mlx_lm.tokenizer_utils import TokenizerWrapper

from selfspec.decoding.arguments import (
    check_options,
    make_policy,
    make_rule,
    token_ids,
    whole,
)
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.decoding.policy import DraftPolicy
from selfspec.decoding.rounds import Decoder, Emitted
from selfspec.decoding.trace import Trace
from selfspec.models.blocks import name_of

NUM_DRAFT_TOKENS = 3
MAX_TOKENS = 256
PREFILL_STEP_SIZE = 2048


@dataclass
class Response(GenerationResponse):
    """mlx-lm's response, with the trace of the generation so far."""

    trace: Trace | None = None


def generate_step(
    prompt: mx.array | list[int],
    model: nn.Module,
    stream=generation_stream,
    *,
    draft=None,
    num_draft_tokens: int = NUM_DRAFT_TOKENS,
    max_tokens: int = MAX_TOKENS,
    temperature: float = 0.0,
    top_p: float = 0.0,
    min_p: float = 0.0,
    top_k: int = 0,
    seed: int | None = None,
    sampler: Callable[[mx.array], mx.array] | None = None,
    logits_processors: list[Callable] | None = None,
    greedy_draft: bool = False,
    min_confidence: float = 0.0,
    policy: DraftPolicy | None = None,
    max_kv_size: int | None = None,
    prompt_cache: list | None = None,
    prefill_step_size: int = PREFILL_STEP_SIZE,
    kv_bits: int | None = None,
    kv_group_size: int = 64,
    quantized_kv_start: int = DEFAULT_QUANTIZED_KV_START,
    window_cache: str = "ring",
    prompt_progress_callback: Callable[[int, int], None] | None = None,
    input_embeddings: mx.array | None = None,
    trace: Trace | None = None,
    time_phases: bool = False,
) -> Iterator[Emitted]:
    """Generate token ids, losslessly, faster where the draft pays.

    Args:
        prompt: token ids, at least one.
        model: any model of mlx-lm; it is the target.
        draft: a SkipDraft, ExitDraft, AdapterDraft, DynamicExitDraft, ModelDraft,
            LookupDraft, ShortlistDraft or FallbackDraft; None decodes plainly.
        num_draft_tokens: most tokens drafted a round; 0 decodes plainly.
        max_tokens: most tokens emitted; -1 for no limit.
        temperature: 0 is greedy; otherwise rejection sampling keeps the target's
            distribution. top_p, min_p, top_k as in mlx-lm.
        seed: makes sampled text reproducible.
        sampler, logits_processors: as in mlx-lm; either one turns to the match rule.
        greedy_draft: the draft takes its argmax even where the target samples.
        min_confidence: stop drafting before a token of lower draft probability; costs
            one synchronisation a draft step.
        policy: answers for draft and length each round, in the place of `draft` and
            `num_draft_tokens`.
        prompt_cache: updated in place. With a draft it ends holding the text but its
            last token, as after mlx-lm's speculative loop; without one, all of it, as
            may a wrapped window (see `trace.cached_tokens`). A ModelDraft's own entries
            may follow the target's, as in mlx-lm.
        window_cache: past a full sliding window, "ring" decodes plainly for the rest;
            "full" keeps every key and value and goes on drafting.
        input_embeddings: as in mlx-lm; only without a draft.
        trace: a Trace to fill.
        time_phases: wait for the device after drafting, to time it apart.

    Yields:
        (token, logprobs, from_draft), as mlx-lm's speculative_generate_step.

    Raises:
        ValueError: an argument out of range, before the first token.
        UnsupportedModelError: a model or cache that cannot draft, likewise.
    """
    if input_embeddings is not None:
        if draft is not None or policy is not None:
            raise ValueError(
                "input_embeddings cannot be drafted from. Way out: draft=None"
            )
        if seed is not None:
            mx.random.seed(seed)
        steps = mlx_lm_generate_step(
            mx.array(prompt, mx.uint32),
            model,
            stream,
            max_tokens=max_tokens,
            sampler=sampler
            or make_sampler(temperature, top_p=top_p, min_p=min_p, top_k=top_k),
            logits_processors=logits_processors,
            max_kv_size=max_kv_size,
            prompt_cache=prompt_cache,
            prefill_step_size=prefill_step_size,
            kv_bits=kv_bits,
            kv_group_size=kv_group_size,
            quantized_kv_start=quantized_kv_start,
            prompt_progress_callback=prompt_progress_callback,
            input_embeddings=input_embeddings,
        )
        return ((token, logprobs, False) for token, logprobs in steps)
    tokens = token_ids(prompt)
    max_tokens = whole("max_tokens", max_tokens, -1)
    check_options(
        window_cache=window_cache,
        min_confidence=min_confidence,
        prefill_step_size=prefill_step_size,
        max_kv_size=max_kv_size,
        quantized_kv_start=quantized_kv_start,
        prompt_progress_callback=prompt_progress_callback,
        policy=policy,
        trace=trace,
    )
    rule = make_rule(
        temperature, top_p, min_p, top_k, seed, sampler, logits_processors, greedy_draft
    )
    drafts = policy is not None or (draft is not None and num_draft_tokens != 0)
    policy = policy or make_policy(draft, num_draft_tokens)
    entries, draft_entries = _make_caches(model, prompt_cache, max_kv_size)
    caches = Caches(entries, kv_bits, kv_group_size, quantized_kv_start)
    target = Target(
        model, caches, prefill_step_size=prefill_step_size, window_cache=window_cache
    )
    caches.check_quantisable(model)
    if drafts:
        caches.check(name_of(model), len(model.layers))
        if window_cache == "full":
            caches.widen()
    first = policy.choose()
    decoder = Decoder(
        tokens,
        target,
        policy,
        rule,
        stream,
        first=first,
        drafts=drafts,
        trace=trace,
        min_confidence=min_confidence,
        draft_cache=draft_entries,
        progress=prompt_progress_callback,
        time_phases=time_phases,
    )
    if first.draft is not None:  # what does not fit the model is said now
        with mx.stream(stream):
            decoder.drafter(first.draft)
    steps = decoder.run(max_tokens)
    if draft_entries is not None:
        return _giving_back(steps, prompt_cache, entries, draft_entries)
    return steps


def stream_generate(
    model: nn.Module,
    tokenizer,
    prompt: str | mx.array | list[int],
    max_tokens: int = MAX_TOKENS,
    stream=generation_stream,
    *,
    trace: Trace | None = None,
    **kwargs,
) -> Iterator[Response]:
    """Generate text; arguments are those of `generate_step`, responses are mlx-lm's.

    Yields:
        Response: mlx-lm's fields, and `trace`. The last one carries `finish_reason`.

    Raises:
        ValueError: max_tokens is 0, or an argument of `generate_step` is out of range.
    """
    if max_tokens == 0:
        raise ValueError("max_tokens must not be 0. Way out: -1 for no limit")
    if not isinstance(tokenizer, TokenizerWrapper):
        tokenizer = TokenizerWrapper(tokenizer)
    prompt = mx.array(encode(tokenizer, prompt))
    trace = Trace() if trace is None else trace
    steps = generate_step(
        prompt, model, stream, max_tokens=max_tokens, trace=trace, **kwargs
    )
    return _responses(steps, model, tokenizer, prompt.size, max_tokens, stream, trace)


def encode(tokenizer, prompt: str | mx.array | list[int]) -> mx.array | list[int]:
    """The token ids of a text, as mlx-lm encodes it; token ids stay as they are."""
    if not isinstance(prompt, str):
        return prompt
    bos = tokenizer.bos_token
    return tokenizer.encode(
        prompt, add_special_tokens=bos is None or not prompt.startswith(bos)
    )


def _responses(steps, model, tokenizer, prompt_tokens, max_tokens, stream, trace):
    detokenizer = tokenizer.detokenizer
    clock = time.perf_counter
    with wired_limit(model, [stream]):
        started, count, prompt_tps = clock(), 0, 0.0

        def response(step, finish_reason=None):
            token, logprobs, from_draft = step
            seconds = clock() - started
            return Response(
                text=detokenizer.last_segment,
                token=token,
                logprobs=logprobs,
                from_draft=from_draft,
                prompt_tokens=prompt_tokens,
                prompt_tps=prompt_tps,
                generation_tokens=count,
                generation_tps=count / seconds if seconds else 0.0,
                peak_memory=mx.get_peak_memory() / 1e9,
                finish_reason=finish_reason,
                trace=trace,
            )

        finish_reason = "length"
        try:
            for step in steps:
                count += 1
                if count == 1:
                    prompt_tps = prompt_tokens / (clock() - started)
                    started = clock()
                if step[0] in tokenizer.eos_token_ids:
                    finish_reason = "stop"
                    break
                detokenizer.add_token(step[0])
                if count == max_tokens:
                    break
                yield response(step)
        finally:
            steps.close()  # rolls the cache back now, not when it is collected
        detokenizer.finalize()
        yield response(step, finish_reason)


def _make_caches(model, prompt_cache, max_kv_size) -> tuple[list, list | None]:
    """The target's caches, and a draft model's if the caller keeps them behind."""
    fresh = make_prompt_cache(model, max_kv_size=max_kv_size)
    if prompt_cache is None:
        return fresh, None
    if len(prompt_cache) < len(fresh):
        raise ValueError(
            f"prompt_cache has {len(prompt_cache)} entries, the model needs "
            f"{len(fresh)}. Way out: mlx_lm's make_prompt_cache(model)"
        )
    if len(prompt_cache) == len(fresh):
        return prompt_cache, None
    return prompt_cache[: len(fresh)], prompt_cache[len(fresh) :]


def _giving_back(steps, prompt_cache, entries, draft_entries):
    """The steps; afterwards the caller's list holds what became of its entries."""
    try:
        yield from steps
    finally:
        steps.close()
        prompt_cache[:] = [*entries, *draft_entries]
