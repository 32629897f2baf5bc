"""Lookup, shortlist, fallback and the choice of the draft length."""

import families
import mlx.core as mx
import mlx.nn as nn
import pytest
import reference
from running import run

from selfspec.decoding import (
    AutoLength,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    Round,
    ShortlistDraft,
    SkipDraft,
    frequent_tokens,
)
from selfspec.decoding.drafting import Target
from selfspec.decoding.lookup import LookupDrafter
from selfspec.decoding.shortlist import Shortlist


def lookup(tokens, limit=3, **options):
    return LookupDrafter(LookupDraft(**options), Target(None, None)).matched(
        tokens, limit
    )


def test_lookup_takes_the_longest_and_then_the_latest_match():
    assert lookup([1, 2, 3, 9, 1, 2, 3]) == [9, 1, 2]
    assert lookup([5, 7, 5, 8, 5]) == [8, 5]  # latest, not first
    assert lookup([1, 2, 7, 9, 2, 8, 1, 2]) == [7, 9, 2]  # two tokens beat one
    assert lookup([1, 2, 7, 9, 2, 8, 1, 2], max_ngram=1) == [8, 1, 2]
    assert lookup([1, 2, 3, 4]) == []
    assert lookup([4]) == []
    assert lookup([1, 2, 3, 1], min_ngram=2) == []
    assert lookup([4, 4, 4]) == [4]
    assert lookup([1, 2, 3, 9, 1, 2, 3], limit=1) == [9]


def brute_force(tokens, limit, max_ngram):
    for size in range(max_ngram, 0, -1):
        tail = tokens[-size:]
        for end in range(len(tokens) - 1, size - 1, -1):
            if size < len(tokens) and tokens[end - size : end] == tail:
                return tokens[end : end + limit]
    return []


def test_lookup_that_reads_on_agrees_with_a_search_from_scratch():
    tokens = [7 * i * i % 11 % 5 for i in range(60)]
    drafter = LookupDrafter(LookupDraft(), Target(None, None))
    for end in range(1, 60):
        assert drafter.matched(tokens[:end], 4) == brute_force(tokens[:end], 4, 3)


def test_lookup_text_that_repeats_is_accepted():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 60)
    again = [*prompt, *text, *prompt]  # the prompt stood before, its answer too
    expected = reference.greedy(model, again, 30)
    tokens, trace = run(model, again, 30, draft=LookupDraft())
    assert tokens == expected
    assert trace.drafted > 0


def test_frequent_tokens_rank_by_count_then_by_number():
    assert frequent_tokens([5, 5, 2, 2, 7], 5, 9) == (2, 5, 7, 0, 1)
    assert frequent_tokens([], 3, 9) == (0, 1, 2)
    with pytest.raises(ValueError, match="size must be from 1 to 9"):
        frequent_tokens([], 10, 9)


@pytest.mark.parametrize("family", ["llama", "gemma2", "cohere2", "granite", "phi3"])
def test_shortlist_scores_are_the_heads_own(family):
    """Soft-cap, logit scale and tied embedding stay the family's."""
    model = families.build(family)
    ids = mx.array([families.prompt(family, 9)])
    tokens = (3, 50, 4, 95)
    shortlist = Shortlist(tokens, model, families.VOCAB)
    logits = shortlist.applied_to(model)(ids)
    assert shortlist.ids.tolist() == sorted(tokens)
    assert logits.shape == (1, 9, 4)
    assert mx.abs(logits - model(ids)[..., shortlist.ids]).max().item() < 1e-4
    whole = shortlist.expand(logits, -mx.inf)
    assert whole.shape == (1, 9, families.VOCAB)
    assert mx.isinf(whole).sum().item() == 9 * (families.VOCAB - 4)
    assert shortlist.nbytes == 4 * families.HIDDEN * 4


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_shortlist_of_a_quantised_head(family):
    model = families.build(family)
    nn.quantize(model, group_size=32, bits=4)
    ids = mx.array([families.prompt(family, 9)])
    shortlist = Shortlist((1, 7, 90), model, families.VOCAB)
    logits = shortlist.applied_to(model)(ids)
    assert mx.abs(logits - model(ids)[..., shortlist.ids]).max().item() < 1e-4


@pytest.mark.parametrize(
    "draft",
    [SkipDraft(mlp={3}), SkipDraft(mlp={3}, reuse_prefix=True), ExitDraft(4)],
    ids=str,
)
def test_shortlist_drafts_only_its_tokens_on_any_draft(draft):
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 80)
    few = tuple(range(30))
    tokens, trace = run(model, prompt, 80, draft=ShortlistDraft(draft, few))
    assert tokens == text
    emitted = 0
    for r in trace.rounds:
        assert all(t in few for t in text[emitted : emitted + r.accepted])
        emitted += 1 + r.accepted
    assert trace.accepted > 0
    other = ShortlistDraft(ModelDraft(model), few)
    tokens, trace = run(model, prompt, 80, draft=other)
    assert tokens == text and trace.accepted > 0


def test_fallback_asks_the_second_only_where_the_first_has_nothing():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 120)
    draft = FallbackDraft(LookupDraft(max_ngram=3, min_ngram=2), SkipDraft(mlp={3}))
    tokens, trace = run(model, prompt, 120, draft=draft)
    assert tokens == text
    emitted = 0
    for r in trace.rounds[:-1]:
        so_far = [*prompt, *text[:emitted]]
        found = lookup(so_far, 3, min_ngram=2)
        assert r.draft_source == ("LookupDraft" if found else "SkipDraft")
        emitted += 1 + r.accepted
    assert {r.draft_source for r in trace.rounds} == {"LookupDraft", "SkipDraft"}


# The length

FLAT = {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0, 5: 1.0}


def test_auto_length_picks_the_best_of_the_identity():
    """Against the closed form, at the profiled acceptance."""
    for acceptance in (0.3, 0.6, 0.8, 0.9, 0.97):
        for cost in (0.4, 0.6, 0.8):
            policy = AutoLength(
                None, cost_ratio=cost, verify_ratio=FLAT, acceptance=acceptance
            )
            speedups = [1.0] + [
                (1 - acceptance ** (k + 1)) / (1 - acceptance) / (cost * k + 1)
                for k in range(1, 5)
            ]
            best = speedups.index(max(speedups))
            assert policy.choose().num_draft_tokens == best
            for k, expected in enumerate(speedups):
                assert policy.expected_speedup(k) == pytest.approx(expected)


def test_auto_length_interpolates_verify_costs():
    policy = AutoLength(None, cost_ratio=0, verify_ratio={2: 1.2, 4: 2.0, 6: 2.4})
    costs = [policy._verify_ratio(m) for m in (1, 2, 3, 4, 5, 6, 12)]
    assert costs == pytest.approx([1, 1.2, 1.6, 2.0, 2.2, 2.4, 3.6])


def test_auto_length_follows_the_acceptance_it_sees():
    policy = AutoLength(None, cost_ratio=0.6, verify_ratio=FLAT, acceptance=0.95)
    assert policy.choose().num_draft_tokens > 0
    for _ in range(60):
        policy.record(Round(drafted=3, accepted=0, rows=4))
    assert policy.acceptance < 0.4
    assert policy.choose().num_draft_tokens == 0
    for _ in range(60):
        policy.record(Round(drafted=3, accepted=3, rows=4))
    assert policy.choose().num_draft_tokens > 0


def test_auto_length_probes_at_bounded_cost():
    policy = AutoLength(
        None, cost_ratio=0.9, verify_ratio=FLAT, acceptance=0.2, probe_budget=0.02
    )
    lengths = []
    for _ in range(2000):
        lengths.append(policy.choose().num_draft_tokens)
        if lengths[-1]:
            policy.record(Round(drafted=1, accepted=0, rows=2))
    probes = sum(lengths)
    assert probes > 10, "it never looks again"
    assert set(lengths) == {0, 1}
    assert probes * policy.cost_ratio <= 0.02 * len(lengths) * 1.01


def test_auto_declines_rather_than_loses_and_stays_lossless():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 150)
    dear = {"cost_ratio": 0.95, "verify_ratio": {2: 1.3, 4: 1.8}, "acceptance": 0.5}
    tokens, trace = run(
        model,
        prompt,
        150,
        draft=SkipDraft(attention={2}, mlp={3}),
        num_draft_tokens="auto",
        costs=dear,
    )
    assert tokens == text
    assert trace.plain_tokens > 140
    cheap = {"cost_ratio": 0.2, "verify_ratio": FLAT, "acceptance": 0.8}
    tokens, trace = run(
        model,
        prompt,
        150,
        draft=SkipDraft(),
        num_draft_tokens="auto",
        costs=cheap,
    )
    assert tokens == text
    assert trace.plain_tokens == 0 and trace.tokens_per_round > 3


@pytest.mark.parametrize(
    "options",
    [
        {"acceptance": 2},
        {"cost_ratio": -1},
        {"verify_ratio": {}},
        {"verify_ratio": {2: 0.0}},
        {"probe_budget": 0},
    ],
)
def test_auto_length_refuses_costs_that_cannot_be(options):
    with pytest.raises(ValueError):
        AutoLength(None, **{"cost_ratio": 0.5, "verify_ratio": FLAT, **options})
