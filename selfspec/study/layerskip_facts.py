"""What is found out of a model with exits, beside the timed pairs: kept as facts.

How every exit scores, how fast it is alone, from which layer each token stays, how much
of a step is dispatch, and what memory each way takes. Dicts that JSON holds; the words
for them are layerskip_page.py's.

    facts = {"exits": exits(model, texts), "alone": alone(model, layers, prompts, ...)}
"""

import random
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from statistics import mean, median
from typing import Any

import mlx.core as mx

from selfspec import costs
from selfspec.decoding import (
    ExitDraft,
    ModelDraft,
    SkipDraft,
    check_shorter_list,
    shorter_list_model,
)
from selfspec.models.errors import UnsupportedModelError
from selfspec.study import arms, exit_scores
from selfspec.study.exit_scores import Text
from selfspec.study.statistics import median_ratio

SMALL_WIDTH = 16  # of the same graph with next to no arithmetic in it
DISPATCH_CONTEXT = 24
DISPATCH_ROUNDS = 3


def exits(model, texts: Sequence[Text]) -> list[dict[str, Any]]:
    """One line an exit layer, 1 to L: the sums of `exit_scores.score_exits`."""
    return [score.to_json() for score in exit_scores.score_exits(model, texts)]


def depths(model, texts: Sequence[Text], words, shown: int = 3) -> dict[str, Any]:
    """From which layer the best token stays, for each scored token.

    Args:
        words: maps a token id to what is written for it.
        shown: texts of which every token is kept.

    Returns:
        mean (over all tokens), counts (tokens by depth, from 1), layers, and examples.
    """
    found = [exit_scores.prediction_depths(model, text) for text in texts]
    every = [depth for text in found for depth in text]
    num_layers = len(model.layers)
    return {
        "mean": mean(every),
        "counts": [every.count(layer) for layer in range(1, num_layers + 1)],
        "layers": num_layers,
        "examples": [
            {"tokens": [words(i) for i in text.ids[text.start :]], "depths": depth}
            for text, depth in list(zip(texts, found, strict=True))[:shown]
        ],
    }


def alone(
    model,
    layers: Sequence[int],
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    eos: frozenset[int] = frozenset(),
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Early exit without verification: how fast it is, pair by pair. Its text is its own.

    Returns:
        exit_layer, speedup, low, high, prompts; or exit_layer and refused, where the
        first layers do not run without the others.
    """
    lines = []
    for layer in layers:
        beyond = frozenset(range(layer, len(model.layers)))
        draft = SkipDraft(beyond, beyond)
        try:
            check_shorter_list(model, draft)
        except UnsupportedModelError as error:
            lines.append({"exit_layer": layer, "refused": str(error)})
            continue
        short = shorter_list_model(model, draft)
        rng = random.Random(f"{seed}/{layer}")
        ratios = []
        for place, ids in enumerate([prompts[0], *prompts]):
            ways = {"whole": model, "short": short}
            order = rng.sample(sorted(ways), k=2)
            seconds = {
                name: arms.plain(
                    ways[name], ids, num_tokens=num_tokens, eos=eos
                ).seconds_per_token
                for name in order
            }
            ratio = seconds["whole"] / seconds["short"]
            if place and ratio == ratio:  # the first warms up
                ratios.append(ratio)
        if ratios:
            found = median_ratio(ratios)
            lines.append(
                {
                    "exit_layer": layer,
                    "speedup": found.value,
                    "low": _number(found.low),
                    "high": _number(found.high),
                    "prompts": found.count,
                }
            )
    return lines


def dispatch(model) -> dict[str, Any] | None:
    """How much of a plain step is launching its operations, arithmetic apart.

    The same class with as many layers and heads but 16 wide builds the same graph with
    next to nothing to compute. None for a class that cannot be made so.

    Returns:
        seconds (of a step of that model), step_seconds, and share.
    """
    small = _same_graph(model)
    if small is None:
        return None
    context = [1 + i % 2 for i in range(DISPATCH_CONTEXT)]
    seconds: dict[str, list[float]] = {"small": [], "whole": []}
    for _ in range(DISPATCH_ROUNDS):
        for name, one in (("small", small), ("whole", model)):
            seconds[name].append(costs.measure(one, context=context).step_seconds)
    small_step, step = median(seconds["small"]), median(seconds["whole"])
    return {"seconds": small_step, "step_seconds": step, "share": small_step / step}


def _same_graph(model):
    args = getattr(model, "args", None)
    wanted = {"hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"}
    if not is_dataclass(args) or not wanted <= {field.name for field in fields(args)}:
        return None
    width = max(SMALL_WIDTH, 2 * args.num_attention_heads)
    changes = {"hidden_size": width, "intermediate_size": width, "vocab_size": 64}
    if getattr(args, "head_dim", None):
        changes["head_dim"] = max(2, width // args.num_attention_heads)
    try:
        small = type(model)(replace(args, **changes))
        small.set_dtype(mx.float32)
        mx.eval(small.parameters(), small(mx.array([[1, 2]])))
    except Exception:  # whatever a family cannot do, it is only not measured
        return None
    return small


def memory(
    model, prompt: Sequence[int], *, exit_layer: int, num_tokens: int, other=None
) -> dict[str, int]:
    """Peak bytes of one text by each way, weights included.

    Args:
        other: returns a draft model; called after the ways that do without it, so that
            its weights are no part of theirs.
    """
    common = {"num_tokens": num_tokens}
    found = {
        "plain": arms.plain(model, prompt, **common).peak_bytes,
        "exit": _drafting(model, prompt, ExitDraft(exit_layer), **common),
    }
    if other is not None:
        draft = ModelDraft(other())
        found["two models"] = _drafting(model, prompt, draft, **common)
    return found


def _drafting(model, prompt, draft, *, num_tokens: int) -> int:
    arm = arms.one_cache(
        model, draft, prompt, num_draft_tokens=2, num_tokens=num_tokens
    )
    return arm.peak_bytes


def _number(value: float) -> float | None:
    return value if value == value else None
