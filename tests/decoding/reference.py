"""The judge: greedy and speculative decoding, slow and obvious, without a cache.

Every step runs mlx-lm's own forward pass over the whole text, so there is no cache
to roll back, no offset and no ring to get wrong. A draft is the same pass in which
the left-out blocks add zero on the draft's own rows: causality keeps the rows before
them exactly the full model's, and these are the keys and values that a draft on the
target's own cache attends to. Nothing here knows selfspec, text or sampling.

    text = reference.greedy(model, prompt, 200)
    drafted = reference.draft_proposals(model, {1, 2}, {2}, prompt, k=3)
    rounds = reference.speculative_trace(model, {1, 2}, {2}, prompt, 200, k=3)
"""

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

MLP_NAMES = ("mlp", "block_sparse_moe")


def all_logits(model: nn.Module, tokens: Sequence[int]) -> mx.array:
    """Logits after each token, from one pass without a cache: (T, V)."""
    return model(mx.array([list(tokens)]))[0]


def greedy(
    model: nn.Module,
    prompt: Sequence[int],
    max_tokens: int,
    eos: Collection[int] = (),
) -> list[int]:
    """The most likely token, again and again; the whole text is run for each."""
    text = []
    while len(text) < max_tokens:
        text.append(all_logits(model, [*prompt, *text])[-1].argmax().item())
        if text[-1] in eos:
            break
    return text


def greedy_with_cache(
    model: nn.Module, prompt: Sequence[int], max_tokens: int
) -> list[int]:
    """A second opinion: one row at a time through mlx-lm's own cache."""
    cache = make_prompt_cache(model)
    for token in prompt:
        logits = model(mx.array([[token]]), cache=cache)
    text = []
    while len(text) < max_tokens:
        text.append(logits[0, -1].argmax().item())
        logits = model(mx.array([[text[-1]]]), cache=cache)
    return text


def choices(model: nn.Module, prompt: Sequence[int], text: Sequence[int]) -> list[int]:
    """The target's choice in place of each token of `text`, given those before it.

    One pass instead of one a token: `text` is greedy exactly where it equals them.
    """
    return greedy_logits(model, prompt, text).argmax(axis=-1).tolist()


def greedy_logits(
    model: nn.Module, prompt: Sequence[int], text: Sequence[int]
) -> mx.array:
    """The logits from which each token of `text` is chosen: (len(text), V)."""
    return all_logits(model, [*prompt, *text])[len(prompt) - 1 : -1]


def margin(model: nn.Module, prompt: Sequence[int], text: Sequence[int]) -> float:
    """The smallest lead of the best logit over the second while writing `text`."""
    best_two = mx.sort(greedy_logits(model, prompt, text), axis=-1)[
        :, -2:
    ]  # (len(text), 2)
    return (best_two[:, 1] - best_two[:, 0]).min().item()


# Drafts: the full model up to the last verified token, a reduced one from there on


class PastOnly(nn.Module):
    """A block that runs as ever, but adds zero on every row from `num_past` on."""

    def __init__(self, block: nn.Module, num_past: int):
        super().__init__()
        self.block = block
        self.num_past = num_past

    def __call__(self, x: mx.array, *args, **kwargs) -> mx.array:
        B, T, H = x.shape
        is_past = mx.arange(T)[None, :, None] < self.num_past
        return mx.where(is_past, self.block(x, *args, **kwargs), 0)

    def __getattr__(self, name: str):
        # Some models ask the attention for its kind, such as `is_local`.
        if name in self:
            return self[name]
        if "block" not in self:
            raise AttributeError(name)
        return getattr(self["block"], name)


@contextmanager
def leave_out(
    model: nn.Module,
    skip_attention: Collection[int],
    skip_mlp: Collection[int],
    num_past: int,
) -> Iterator[None]:
    """Within it, these blocks add zero from row `num_past` on."""
    replaced = []
    for index, layer in enumerate(model.layers):
        if index in skip_attention:
            replaced.append((layer, "self_attn", layer.self_attn))
        if index in skip_mlp:
            name = next(name for name in MLP_NAMES if name in layer)
            replaced.append((layer, name, layer[name]))
    try:
        for layer, name, block in replaced:
            setattr(layer, name, PastOnly(block, num_past))
        yield
    finally:
        for layer, name, block in replaced:
            setattr(layer, name, block)


def draft_proposals(
    model: nn.Module,
    skip_attention: Collection[int],
    skip_mlp: Collection[int],
    context: Sequence[int],
    k: int,
) -> list[int]:
    """What a draft that leaves these blocks out proposes after `context`.

    The last token of `context` is the draft's first row: a decoder holds keys and
    values of the tokens before it only, and the draft is the first to read it.
    """
    with leave_out(model, skip_attention, skip_mlp, num_past=len(context) - 1):
        return greedy(model, context, k)


def draft_proposals_with_cache(
    model: nn.Module,
    skip_attention: Collection[int],
    skip_mlp: Collection[int],
    cache: list,
    last_token: int,
    k: int,
) -> list[int]:
    """The same through a copy of the full model's cache, one row at a time: faster.

    `cache` is mlx-lm's own, after the context without its `last_token`. A left-out
    block still runs, so its cache keeps step with the others; its output is zeroed.
    """
    cache = copy.deepcopy(cache)
    drafted = []
    with leave_out(model, skip_attention, skip_mlp, num_past=0):
        for _ in range(k):
            token = [last_token, *drafted][-1]
            logits = model(mx.array([[token]]), cache=cache)
            drafted.append(logits[0, -1].argmax().item())
    return drafted


def exit_proposals(
    model: nn.Module, exit_layer: int, context: Sequence[int], k: int
) -> list[int]:
    """What a draft of the first `exit_layer` layers and the head proposes.

    A layer whose two blocks add zero hands on what it was given, so leaving out
    every block beyond the exit is leaving at the exit.
    """
    beyond = range(exit_layer, len(model.layers))
    return draft_proposals(model, beyond, beyond, context, k)


# Rounds: draft, compare with what the target writes, keep what agrees


@dataclass(frozen=True)
class Round:
    """One round: the drafted tokens, how many of them were kept, what was emitted."""

    drafted: list[int]
    accepted: int
    emitted: list[int]  # the accepted ones, then the target's own next token


def rounds_of(
    text: Sequence[int],
    propose: Callable[[list[int], int], list[int]],
    prompt: Sequence[int],
    max_tokens: int,
    k: int,
) -> list[Round]:
    """The rounds in which a decoder with the draft `propose` writes `text`.

    `text` is what the target writes alone, cut after an end-of-sequence token. A
    round drafts `k` tokens, fewer where `max_tokens` leaves room for fewer: one
    place is the target's own token's. An accepted end-of-sequence token ends the
    text, so nothing follows it in its round, and no later draft counts as accepted.
    """
    rounds = []
    written = 0
    while written < len(text):
        context = [*prompt, *text[:written]]
        num_drafted = min(k, max_tokens - written - 1)
        drafted = propose(context, num_drafted)
        accepted = 0
        for token, wanted in zip(drafted, text[written:], strict=False):
            if token != wanted:
                break
            accepted += 1
        emitted = list(text[written : written + accepted + 1])
        rounds.append(Round(drafted, accepted, emitted))
        written += len(emitted)
    return rounds


def speculative_trace(
    model: nn.Module,
    skip_attention: Collection[int],
    skip_mlp: Collection[int],
    prompt: Sequence[int],
    max_tokens: int,
    k: int,
    eos: Collection[int] = (),
    text: Sequence[int] | None = None,
) -> list[Round]:
    """The rounds of a draft that leaves these blocks out.

    Args:
        text: what `greedy` wrote with the same arguments, if it is at hand.
    """

    def propose(context: list[int], num_drafted: int) -> list[int]:
        return draft_proposals(model, skip_attention, skip_mlp, context, num_drafted)

    text = greedy(model, prompt, max_tokens, eos) if text is None else text
    return rounds_of(text, propose, prompt, max_tokens, k)


def exit_trace(
    model: nn.Module,
    exit_layer: int,
    prompt: Sequence[int],
    max_tokens: int,
    k: int,
    eos: Collection[int] = (),
    text: Sequence[int] | None = None,
) -> list[Round]:
    """The rounds of a draft that leaves after `exit_layer` layers."""
    beyond = range(exit_layer, len(model.layers))
    return speculative_trace(
        model, beyond, beyond, prompt, max_tokens, k, eos, text=text
    )


def trace_with_cache(
    model: nn.Module,
    skip_attention: Collection[int],
    skip_mlp: Collection[int],
    prompt: Sequence[int],
    max_tokens: int,
    k: int,
    text: Sequence[int],
) -> list[Round]:
    """`speculative_trace` of a known `text` through mlx-lm's cache, several times faster.

    The full model reads the text one row at a time into a cache that is never rolled
    back; each round's draft works on a copy of it.
    """
    cache = make_prompt_cache(model)
    processed = 0

    def propose(context: list[int], num_drafted: int) -> list[int]:
        nonlocal processed
        for token in context[processed:-1]:
            mx.eval(model(mx.array([[token]]), cache=cache))
            processed += 1
        return draft_proposals_with_cache(
            model, skip_attention, skip_mlp, cache, context[-1], num_drafted
        )

    return rounds_of(text, propose, prompt, max_tokens, k)
