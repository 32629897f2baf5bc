"""What a caller may pass, checked before the first token: one clear line each.

The choices that follow from arguments alone are made here too: the acceptance rule and
the policy. Knows no model.

    tokens = token_ids(prompt)
    rule = make_rule(temperature=0.7, top_p=0.9)
"""

import math
import operator
from collections.abc import Callable

import mlx.core as mx
from mlx_lm.sample_utils import make_sampler

from selfspec.decoding.acceptance import Greedy, Rule, Speculative
from selfspec.decoding.match import Match
from selfspec.decoding.policy import DraftPolicy, FixedLength
from selfspec.decoding.trace import Trace


def token_ids(prompt) -> list[int]:
    """The prompt as a list: from a list, an array of MLX or NumPy, anything like them.

    Raises:
        ValueError: not one row of token ids, or none at all.
    """
    try:
        values = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
        tokens = [operator.index(value) for value in values]
    except TypeError:
        raise ValueError(
            "prompt must be one row of token ids (whole numbers). Way out: encode a "
            "text, take one row of a batch, or use stream_generate"
        ) from None
    if not tokens:
        raise ValueError("prompt must hold at least one token")
    if min(tokens) < 0 or max(tokens) >= 2**31:
        wrong = next(t for t in tokens if not 0 <= t < 2**31)
        raise ValueError(f"prompt holds {wrong}, which is no token id")
    return tokens


def whole(name: str, value, least: int, hint: str = "") -> int:
    """`value` as an int of at least `least`, whatever kind of whole number it is."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} must be {least} or more{hint}, got {value!r}")
    return number


def real(name: str, value, accepts: Callable[[float], bool], words: str) -> float:
    """`value` if it is a finite number that `accepts` likes."""
    try:
        good = math.isfinite(value) and accepts(value)
    except TypeError:
        good = False
    if not good:
        raise ValueError(f"{name} must be {words}, got {value!r}")
    return value


def check_callable(name: str, value) -> None:
    if value is not None and not callable(value):
        raise ValueError(f"{name} must be callable, got {value!r}")


def check_options(
    *,
    window_cache,
    min_confidence,
    prefill_step_size,
    max_kv_size,
    quantized_kv_start,
    prompt_progress_callback,
    policy,
    trace,
) -> None:
    """The arguments of `generate_step` that nothing else looks at.

    Raises:
        ValueError: naming the first that is out of range or of another kind.
    """
    if window_cache not in ("ring", "full"):
        raise ValueError(f'window_cache must be "ring" or "full", got {window_cache!r}')
    real("min_confidence", min_confidence, lambda x: 0 <= x < 1, "in [0, 1)")
    whole("prefill_step_size", prefill_step_size, 1)
    whole("quantized_kv_start", quantized_kv_start, 0)
    if max_kv_size is not None:  # mlx-lm's ring keeps the first 4
        whole("max_kv_size", max_kv_size, 5)
    check_callable("prompt_progress_callback", prompt_progress_callback)
    if policy is not None and not (
        hasattr(policy, "choose") and hasattr(policy, "record")
    ):
        raise ValueError(f"policy must have choose() and record(), got {policy!r}")
    if trace is not None and not isinstance(trace, Trace):
        raise ValueError(f"trace must be a Trace, got {trace!r}")


def make_rule(
    temperature: float = 0.0,
    top_p: float = 0.0,
    min_p: float = 0.0,
    top_k: int = 0,
    seed: int | None = None,
    sampler: Callable | None = None,
    logits_processors: list[Callable] | None = None,
    greedy_draft: bool = False,
) -> Rule:
    """The acceptance rule that these arguments ask for.

    Raises:
        ValueError: an argument out of range, or a sampler beside a temperature.
    """
    real("temperature", temperature, lambda x: x >= 0, "0 or more")
    for name, value in (("top_p", top_p), ("min_p", min_p)):
        real(name, value, lambda x: 0 <= x <= 1, "in [0, 1]")
    top_k = whole("top_k", top_k, 0)
    if seed is not None:
        seed = whole("seed", seed, 0)
    check_callable("sampler", sampler)
    if logits_processors is not None:
        if not isinstance(logits_processors, list | tuple):
            raise ValueError(
                f"logits_processors must be a list, got {logits_processors!r}"
            )
        for processor in logits_processors:
            check_callable("each of logits_processors", processor)
    if sampler is not None and temperature:
        raise ValueError(
            "sampler and temperature are both given. Way out: temperature (exact "
            "rejection sampling) or sampler (the match rule), not both"
        )
    if sampler is None and not logits_processors:
        if temperature == 0:
            return Greedy()
        return Speculative(temperature, top_p, min_p, top_k, seed, greedy_draft)
    if sampler is None:
        sampler = make_sampler(temperature, top_p=top_p, min_p=min_p, top_k=top_k)
        if seed is not None:
            mx.random.seed(seed)
    return Match(sampler, logits_processors)


def make_policy(draft, num_draft_tokens) -> DraftPolicy:
    """The policy that `draft` and `num_draft_tokens` ask for.

    Raises:
        ValueError: a length that is none, or "auto", which needs costs.
    """
    if draft is None:
        return FixedLength(None, 0)
    if num_draft_tokens == "auto":
        raise ValueError(
            'num_draft_tokens="auto" needs costs, of which selfspec.decoding knows '
            "nothing. Way out: selfspec.generate_step or "
            "selfspec.stream_generate, or policy="
        )
    length = whole("num_draft_tokens", num_draft_tokens, 0, ', or "auto"')
    return FixedLength(draft if length else None, length)
