"""`generate_step` and `stream_generate` in which `num_draft_tokens="auto"` just works.

Decoding knows no costs and costs decode nothing: here they meet. "auto" becomes a fresh
`DeclinePolicy` for every generation, with costs from the profile of this model on this
machine, which is measured at first use and kept: on disk for a model that
`selfspec.load` made, else as long as the model object lives. Everything else goes
through to `selfspec.decoding` as it is.

    for r in stream_generate(model, tokenizer, prompt, draft=draft,
                             num_draft_tokens="auto"):
        print(r.text, end="")
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.generate import generation_stream
from mlx_lm.models.cache import make_prompt_cache

from selfspec import decoding
from selfspec.costs.decline import DeclinePolicy
from selfspec.costs.draft_costs import costs_of_draft
from selfspec.costs.profile import CostProfile
from selfspec.costs.profiling import BUDGET, measure_profile
from selfspec.costs.store import NOTHING, profile_for, profile_key
from selfspec.decoding.binding import bind
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.decoding.drafts import KINDS
from selfspec.decoding.policy import Choice
from selfspec.decoding.rounds import Emitted
from selfspec.decoding.stream import MAX_TOKENS, NUM_DRAFT_TOKENS, Response, encode
from selfspec.decoding.trace import Round
from selfspec.models import device
from selfspec.models.blocks import name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.loading import source_of
from selfspec.models.remembered import Remembered

AUTO = "auto"

# model -> its profiles, by what they depend on
_profiles = Remembered()


def generate_step(
    prompt: mx.array | list[int],
    model: nn.Module,
    stream=generation_stream,
    *,
    num_draft_tokens: int | str = NUM_DRAFT_TOKENS,
    costs: dict[str, Any] | None = None,
    acceptance: float | None = None,
    **options,
) -> Iterator[Emitted]:
    """Generate token ids, losslessly, faster where the draft pays.

    Args:
        num_draft_tokens: most tokens drafted a round; 0 decodes plainly; "auto"
            chooses from measured costs and the acceptance seen, and may choose 0: it
            declines rather than lose. The first use with a model measures what a step
            costs on this machine, which takes about 20 seconds and is kept.
        costs: for "auto", costs of your own in the place of measured ones: arguments of
            `DeclinePolicy` (cost_ratio, verify_ratio, overhead_ratio, ...).
        acceptance: for "auto", the acceptance of a token known beforehand, to start
            from.
        options: the other arguments of `selfspec.decoding.generate_step`.

    Yields:
        (token, logprobs, from_draft), as mlx-lm's speculative_generate_step.

    Raises:
        ValueError: an argument out of range, before the first token.
        UnsupportedModelError: a model or cache that cannot draft, or whose costs cannot
            be measured, likewise.
    """
    options = _with_policy(prompt, model, num_draft_tokens, costs, acceptance, options)
    return decoding.generate_step(prompt, model, stream, **options)


def stream_generate(
    model: nn.Module,
    tokenizer,
    prompt: str | mx.array | list[int],
    max_tokens: int = MAX_TOKENS,
    stream=generation_stream,
    *,
    num_draft_tokens: int | str = NUM_DRAFT_TOKENS,
    costs: dict[str, Any] | None = None,
    acceptance: float | None = None,
    **options,
) -> Iterator[Response]:
    """Generate text; arguments are those of `generate_step`, responses are mlx-lm's.

    Yields:
        Response: mlx-lm's fields, and `trace`. The last one carries `finish_reason`.

    Raises:
        ValueError: max_tokens is 0, or an argument of `generate_step` is out of range.
        UnsupportedModelError: as `generate_step`.
    """
    if num_draft_tokens == AUTO:
        prompt = encode(tokenizer, prompt)
    options = _with_policy(prompt, model, num_draft_tokens, costs, acceptance, options)
    return decoding.stream_generate(
        model, tokenizer, prompt, max_tokens, stream, **options
    )


class AutoPolicy:
    """A DraftPolicy that is made when it is first asked.

    The engine asks it once every argument was checked, and before the first token.
    """

    def __init__(self, make: Callable[[], decoding.DraftPolicy]):
        self.make = make
        self.rule: decoding.DraftPolicy | None = None

    def choose(self) -> Choice:
        if self.rule is None:
            self.rule = self.make()
        return self.rule.choose()

    def record(self, finished: Round) -> None:
        self.rule.record(finished)


def _with_policy(
    prompt, model, num_draft_tokens, costs, acceptance, options: dict
) -> dict[str, Any]:
    """The options as `selfspec.decoding` takes them.

    Raises:
        ValueError: costs or an acceptance that nothing would look at.
    """
    if num_draft_tokens != AUTO or options.get("policy") is not None:
        if costs is not None or acceptance is not None:
            raise ValueError(
                'costs and acceptance are for num_draft_tokens="auto". Way out: leave '
                'them out, or ask for "auto" without a policy'
            )
        return {"num_draft_tokens": num_draft_tokens, **options}
    draft = options.get("draft")
    if not isinstance(draft, KINDS):  # None decodes plainly, anything else is refused
        return options

    def make() -> DeclinePolicy:
        known = costs
        if known is None:
            known = _measured_costs(draft, model, _context(prompt, options))
        more = {} if acceptance is None else {"acceptance": acceptance}
        try:
            return DeclinePolicy(draft, **known, **more)
        except TypeError as error:
            raise ValueError(
                f"costs are not those of DeclinePolicy: {error}. "
                "Way out: cost_ratio and verify_ratio, or no costs to have them measured"
            ) from None

    return {**options, "policy": AutoPolicy(make)}


def _context(prompt, options: dict) -> int:
    """Tokens in the cache when decoding begins."""
    entries = options.get("prompt_cache") or []
    length = len(prompt) if hasattr(prompt, "__len__") else 0
    return length + Caches(entries).length


def _measured_costs(draft, model, context: int) -> dict[str, Any]:
    """The draft's costs in plain steps; whatever of them is not known yet is measured.

    Raises:
        TypeError, ValueError: the draft does not fit the model.
        UnsupportedModelError: the model cannot draft, or cannot be measured.
    """

    def before(measuring: str) -> None:
        # A draft that does not fit is refused before seconds are spent on it.
        bind(draft, Target(model, Caches(make_prompt_cache(model))))
        _say(measuring)

    profile = _profile_of(model, before)
    return costs_of_draft(draft, model, profile, context, told=before)


def _profile_of(model, before: Callable[[str], None]) -> CostProfile:
    """The profile of a model on this machine, as its BLAS threads are set now.

    Args:
        before: called before measuring, with what will be measured.
    """
    source = source_of(model)
    key = profile_key(source.to_json() if source else _unknown(model))
    kept = _profiles.setdefault(model, dict)
    name = tuple(key.items())
    if name in kept:
        return kept[name]

    def measure() -> CostProfile:
        before(
            "measuring what a step costs on this machine, about "
            f"{BUDGET:.0f} seconds, once{'' if source else ' in this program'}"
        )
        try:
            return measure_profile(model)
        except (UnsupportedModelError, ValueError) as error:
            reason = str(error).split(" Way out:")[0].rstrip(".")
            raise UnsupportedModelError(
                'num_draft_tokens="auto" needs costs, and what a step costs cannot be '
                f"measured here ({reason}). "
                "Way out: a fixed num_draft_tokens, or costs="
            ) from None
        finally:
            device.clear_cache()

    def told(reason: str) -> None:
        if reason != NOTHING:
            _say(reason)

    kept[name] = profile_for(key, measure, told=told) if source else measure()
    return kept[name]


def _unknown(model) -> dict[str, str]:
    """What stands for the source of a model that something else loaded.

    Such a profile goes by the model object and is not stored; what may change in the
    object stands here.
    """
    size = sum(array.nbytes for _, array in tree_flatten(model.parameters()))
    return {
        "sha256": "",
        "architecture": name_of(model),
        "quantisation": f"{len(model.layers)} layers of {size} bytes",
    }


def _say(what: str) -> None:
    print(f"selfspec: {what}", file=sys.stderr, flush=True)


def _list_all_arguments(function) -> None:
    """Let help() list what `options` takes."""
    own = inspect.signature(function).parameters
    theirs = inspect.signature(decoding.generate_step).parameters
    merged = {**theirs, **own}
    named = [p for p in merged.values() if p.kind is p.KEYWORD_ONLY]
    first = [p for p in own.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    function.__signature__ = inspect.Signature([*first, *named])


_list_all_arguments(generate_step)
_list_all_arguments(stream_generate)
