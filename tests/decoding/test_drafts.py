"""Lookup, shortlist, fallback."""

import families
import mlx.core as mx
import mlx.nn as nn
import pytest
import reference
from running import run

from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
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
