"""Measuring a profile: whole passes with some blocks left out, told apart by a fit.

Blocks are timed inside the real forward, by what is missing when they are: passes with
every block, with attention only, with MLPs only, with nothing but embedding and head,
at several widths and contexts, beside plain steps. Long contexts are the short one's
keys and values repeated, which cost what real ones cost. Every repeat times every
probe and a plain step once, in shuffled order, and the fastest of the repeats counts:
other programs only ever add time, and under slow drift all probes have their fastest
moment together. Knows seconds and blocks, no names of models.

    profile = measure_profile(model)                    # some 20 seconds
    checks = check_profile(profile, model, context=ids, drafts={"30%": draft})
"""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from selfspec import blas  # before mlx, which keeps the BLAS it finds

import mlx.core as mx  # isort: skip
from mlx.utils import tree_flatten
from mlx_lm.generate import generation_stream
from mlx_lm.models.cache import make_prompt_cache

from selfspec import decoding
from selfspec.costs import timing
from selfspec.costs.block_fit import Sample, fit_blocks, running_blocks
from selfspec.costs.profile import DRAFTED, CostProfile
from selfspec.decoding.acceptance import Greedy
from selfspec.decoding.binding import bind
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.decoding.drafts import ShortlistDraft, SkipDraft
from selfspec.models.blocks import Stack, find_stack, name_of

BUDGET = 20.0  # seconds
REPEATS = 4  # at least; the first pages in and compiles, so it is hardly the fastest
REFERENCE = 256
CONTEXTS = (128, 1024, 2048)
WIDTHS = tuple(range(1, 17))
BLOCK_WIDTHS = (1, 2, 4, 8, 16)
SHORT = 8  # the short head of a probe scores the 8th part of the vocabulary


@dataclass(frozen=True)
class Probe:
    """One thing to time: a draft's steps (`queued` of them) or a pass over `rows`."""

    draft: Any
    context: int
    rows: int = 1
    queued: int = 0


PLAIN = Probe(None, 0)  # mlx-lm's own loop, the unit of every ratio


@dataclass(frozen=True)
class Check:
    """c of a draft as the profile predicts it and as the engine takes it."""

    label: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative, signed: 0.03 is 3 % too high."""
        return self.predicted / self.measured - 1


def measure_profile(
    model,
    *,
    context: Sequence[int] | None = None,
    reference: int = REFERENCE,
    contexts: Sequence[int] = CONTEXTS,
    budget: float = BUDGET,
    seed: int = 0,
) -> CostProfile:
    """Time a model's passes and fit its blocks; BLAS threads stay as they are.

    Args:
        model: the target, of any family that can leave blocks out.
        context: token ids to fill the cache with, repeated to each length; by default
            arbitrary ones (dense models cost the same whatever they read).
        reference: context length of steps and verification passes.
        contexts: further lengths at which attention is timed; those beyond the model's
            positions or a sliding window are left out.
        budget: seconds within which repeats beyond the first 4 must fit.

    Raises:
        UnsupportedModelError: the model's blocks cannot be told apart.
        ValueError: the model's window is too short to time anything.
    """
    started = time.perf_counter()
    bench = _Bench(model, context, reference, contexts)
    probes = bench.probes()
    repeats, rng, longest = [], random.Random(seed), 0.0
    while len(repeats) < REPEATS or time.perf_counter() - started + longest < budget:
        begun = time.perf_counter()
        repeats.append(bench.repeat(probes, rng))
        longest = max(longest, time.perf_counter() - begun)
    seconds = {probe: min(r[probe] for r in repeats) for probe in repeats[0]}
    step = seconds.pop(PLAIN)
    blocks, residuals = fit_blocks([bench.sample(p, s) for p, s in seconds.items()])
    attention, mlp = bench.kinds
    return CostProfile(
        step_seconds=step,
        context=bench.reference,
        pass_seconds={
            p.rows: s for p, s in seconds.items() if not p.queued and p.draft is None
        },
        attention=attention,
        mlp=mlp,
        blocks=blocks,
        vocab_size=bench.vocab_size,
        round_seconds=bench.round_seconds(),
        contexts=bench.contexts,
        residuals=residuals,
        repeats=len(repeats),
        blas_threads=blas.threads(),
        measured_seconds=time.perf_counter() - started,
    )


def check_profile(
    profile: CostProfile,
    model,
    *,
    context: Sequence[int],
    drafts: Mapping[str, Any],
    repeats: int = timing.REPEATS,
) -> list[Check]:
    """Time drafts in the engine itself and set them beside the profile's prediction."""
    found = timing.measure(model, context=context, drafts=drafts, repeats=repeats)
    return [
        Check(
            label,
            profile.cost_ratio(draft, len(context), num_draft_tokens=timing.STEPS),
            found.cost_ratio[label],
        )
        for label, draft in drafts.items()
    ]


class _Bench:
    """A model with caches of several lengths, and the probes that run on them."""

    def __init__(self, model, context, reference, contexts):
        self.model = model
        self.stack = find_stack(model)
        self.vocab_size = model(mx.array([[0]])).shape[-1]  # never run
        filler = [int(t) for t in context] if context else _filler(self.vocab_size)
        limit = longest_context(model)
        self.reference = min(reference, limit)
        if self.reference < 2:
            raise ValueError(
                f"{name_of(model)}: a window of {limit} tokens is too short to profile"
            )
        lengths = {self.reference, *(n for n in contexts if n <= limit)}
        self.contexts = tuple(sorted(lengths))
        self.targets = _targets(model, self.stack, filler, self.contexts)
        self.kinds = _kinds(self.stack, self.targets[self.reference].caches)
        self.rule = Greedy()
        self.drafters: dict[tuple[int, Any], Any] = {}

    def only(self, kind: str) -> SkipDraft:
        """Nothing but the blocks of one kind."""
        return SkipDraft(
            *(
                frozenset(i for i, k in enumerate(kinds) if k != kind)
                for kinds in self.kinds
            )
        )

    def probes(self) -> list[Probe]:
        layers, at = range(self.stack.num_layers), self.reference
        nothing = SkipDraft(frozenset(layers), frozenset(layers))
        short = ShortlistDraft(nothing, range(max(1, self.vocab_size // SHORT)))
        half = SkipDraft(frozenset(layers[::2]), frozenset(layers[::2]))
        attention, mlp = (list(dict.fromkeys(kinds)) for kinds in self.kinds)
        singles = [self.only(kind) for kind in (*attention, *mlp)]
        steps = [SkipDraft(), half, nothing, short, *singles]
        probes = [Probe(draft, at, queued=DRAFTED) for draft in steps]
        probes.append(Probe(SkipDraft(), at, queued=1))
        probes += [Probe(None, at, rows) for rows in WIDTHS]
        probes += [
            Probe(draft, at, rows)
            for draft in (nothing, short, *singles)
            for rows in BLOCK_WIDTHS
        ]
        far = [self.only(kind) for kind in attention]
        for length in set(self.contexts) - {at}:
            probes += [Probe(draft, length, queued=DRAFTED) for draft in far]
        if self.contexts[-1] > at:
            widths = BLOCK_WIDTHS[2::2]
            probes += [Probe(d, self.contexts[-1], m) for d in far for m in widths]
        return list(dict.fromkeys(probes))

    def repeat(self, probes, rng) -> dict[Probe, float]:
        """Seconds of every probe, and of a plain step, once each."""
        order = [PLAIN, *probes]
        rng.shuffle(order)
        return {probe: self.seconds(probe) for probe in order}

    def plain(self) -> float:
        caches = self.targets[self.reference].caches
        return timing.plain_step_seconds(self.model, caches.entries, 1)

    def drafter(self, probe: Probe):
        key = probe.context, probe.draft
        if key not in self.drafters:
            target = self.targets[probe.context]
            self.drafters[key] = bind(probe.draft or SkipDraft(), target)
        return self.drafters[key]

    def seconds(self, probe: Probe) -> float:
        """Seconds of one step or pass, as the engine's round runs it."""
        if probe is PLAIN:
            return self.plain()
        target = self.targets[probe.context]
        drafter, tokens = self.drafter(probe), [1]
        ids = mx.array([1 + i % 2 for i in range(probe.rows)], mx.uint32)
        start = time.perf_counter()
        with mx.stream(generation_stream):
            if probe.queued:
                mx.eval(drafter.propose(tokens, probe.queued, self.rule).tokens)
            else:
                if probe.draft is None:
                    logits = target.logits(ids)
                else:
                    drafter.start(tokens)
                    logits = drafter.model(ids[None], cache=drafter.entries)[0]
                verdict = self.rule.accept(ids[1:], None, logits, None)
                mx.eval(verdict.accepted, verdict.token)
        seconds = time.perf_counter() - start
        target.caches.roll_back(probe.context)
        return seconds / max(1, probe.queued)

    def sample(self, probe: Probe, seconds: float) -> Sample:
        draft, head = probe.draft or SkipDraft(), 1.0
        if isinstance(draft, ShortlistDraft):
            head = len(draft.tokens) / self.vocab_size
            draft = draft.draft
        running = running_blocks(self.kinds, (draft.attention, draft.mlp), head)
        waits = 1 / max(1, probe.queued)
        return Sample(running, probe.rows, probe.context, seconds, waits)

    def round_seconds(self) -> float:
        """What a round spends besides drafting and verifying."""
        layers, trace = frozenset(range(self.stack.num_layers)), decoding.Trace()
        steps = decoding.generate_step(
            [1, 2],
            self.model,
            draft=SkipDraft(layers, layers),  # its steps cost least
            num_draft_tokens=1,
            max_tokens=6,
            trace=trace,
        )
        for _ in steps:
            pass
        return median(r.seconds_rest for r in trace.rounds)


def _filler(vocab_size: int) -> list[int]:
    return [(37 * i + 11) % vocab_size for i in range(128)]


def longest_context(model) -> int:
    """Positions that the model has, less the rows that a probe writes."""
    args = getattr(model, "args", None)
    positions = getattr(args, "max_position_embeddings", None)
    limit = positions if isinstance(positions, int) else max(CONTEXTS)
    room = Caches(make_prompt_cache(model)).room()
    return min(limit, room) - max(WIDTHS)


def _targets(model, stack: Stack, filler, lengths) -> dict[int, Target]:
    """The model with its cache at each length."""
    read = min(len(filler), min(lengths))
    with mx.stream(generation_stream):
        first = make_prompt_cache(model)
        Caches(first).check(name_of(model), stack.num_layers)
        model(mx.array(filler[:read], mx.uint32)[None], cache=first)
        mx.eval([entry.state for entry in first])
        targets = {}
        for length in lengths:
            entries = make_prompt_cache(model)
            for entry, source in zip(entries, first, strict=True):
                entry.keys, entry.values = (
                    mx.tile(x[..., :read, :], (1, 1, -(-length // read), 1))[
                        ..., :length, :
                    ]
                    for x in (source.keys, source.values)
                )
                entry.offset = length
                if hasattr(entry, "_idx"):  # where a ring writes next
                    entry._idx = length
            mx.eval([entry.state for entry in entries])
            targets[length] = Target(model, Caches(entries), stack, base=length)
    return targets


def _kinds(stack: Stack, caches: Caches) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A name for each layer's attention and MLP, the same for blocks that cost the same.

    Blocks of one class, with weights of the same shapes and the same kind of cache.
    """

    def names(part, blocks, extra):
        signatures = [
            (
                type(block).__name__,
                tuple((n, a.shape, str(a.dtype)) for n, a in tree_flatten(block)),
                more,
            )
            for block, more in zip(blocks, extra, strict=True)
        ]
        distinct = list(dict.fromkeys(signatures))
        labels = [part if i == 0 else f"{part} {i + 1}" for i in range(len(distinct))]
        return tuple(labels[distinct.index(s)] for s in signatures)

    every = range(stack.num_layers)
    windows = [
        (type(entry).__name__, getattr(entry, "max_size", 0))
        for entry in caches.entries
    ]
    attention = names("attention", map(stack.attention_of, every), windows)
    return attention, names("mlp", map(stack.mlp_of, every), [None] * len(every))
