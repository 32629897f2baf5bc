"""The support itself: the reference is right and its models make drafts hit and miss.

The judges are mlx-lm's own greedy decoding, a hand-written pass through the first
layers of a Llama, and the two ways in which the reference drafts. Nothing here
knows selfspec's engine.

    pytest tests/decoding/test_families.py
"""

import functools

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from selfspec import blas

NUM_TOKENS = 220
all_families = pytest.mark.parametrize("family", families.FAMILIES)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Matrices this small are multiplied fastest by one thread."""
    threads = blas.threads()
    blas.set_threads(1)
    yield
    blas.set_threads(max(threads, 1))


@functools.cache
def case(family: str, length: int = 10):
    """The model, a prompt and what mlx-lm writes after it."""
    model = families.build(family)
    prompt = families.prompt(family, length)
    steps = generate_step(mx.array(prompt), model, max_tokens=NUM_TOKENS)
    return model, prompt, [int(token) for token, _ in steps]


@all_families
def test_reference_writes_what_mlx_lm_writes(family):
    model, prompt, text = case(family)
    assert len(text) == NUM_TOKENS
    assert reference.choices(model, prompt, text) == text
    # one pass over the text stands for one a token: the slow way, past the window
    past_window = families.WINDOW + 4
    assert reference.greedy(model, prompt, past_window) == text[:past_window]
    assert reference.greedy_with_cache(model, prompt, 30) == text[:30]


@all_families
def test_text_is_varied_and_free_of_near_ties(family):
    model, prompt, text = case(family)
    assert reference.margin(model, prompt, text) > 1e-3
    assert len(set(text)) >= 20
    assert len(set(text[-60:])) >= 10


@all_families
def test_drafts_are_accepted_and_rejected_at_least_20_times(family):
    model, prompt, text = case(family)
    beyond_exit = range(4, families.num_layers(model))
    for skips in [({0, 3}, {2}), (beyond_exit, beyond_exit)]:
        for length in (NUM_TOKENS // 2, NUM_TOKENS):  # half is enough for most
            rounds = reference.trace_with_cache(
                model, *skips, prompt, length, k=2, text=text[:length]
            )
            assert [t for r in rounds for t in r.emitted] == text[:length]
            accepted = sum(r.accepted for r in rounds)
            rejecting = sum(r.accepted < len(r.drafted) for r in rounds)
            if min(accepted, rejecting) >= 20:
                break
        assert accepted >= 20 and rejecting >= 20


@all_families
def test_both_ways_of_drafting_agree(family):
    model, prompt, text = case(family)
    prompt, text = [*prompt, *text[:20]], text[20:32]  # the window is full already
    skips = {0, 3}, {2, 3}
    slow = reference.speculative_trace(model, *skips, prompt, 12, k=3, text=text)
    fast = reference.trace_with_cache(model, *skips, prompt, 12, k=3, text=text)
    assert slow == fast
    assert reference.choices(model, prompt, text) == text  # blocks are back in place


@all_families
def test_windows_are_where_the_family_says(family):
    model, _, _ = case(family)
    windows = [
        cache.max_size
        for cache in make_prompt_cache(model)
        if isinstance(cache, RotatingKVCache)
    ]
    assert bool(windows) == families.has_window(family)
    assert set(windows) <= {families.WINDOW}
    assert families.num_layers(model) == 6


def test_window_hides_what_is_older():
    model, prompt, text = case("llama_sliding")
    near = [prompt[0] + 1, *prompt[1:]]  # in no window after the text, but in full ones
    assert not mx.allclose(
        reference.all_logits(model, [*prompt, *text])[-1],
        reference.all_logits(model, [*near, *text])[-1],
    )
    blind = families.build(
        "llama_sliding",
        layer_types=[families.FULL] + [families.SLIDING] * 5,
    )
    with reference.leave_out(blind, {0}, (), num_past=0):
        assert mx.array_equal(
            reference.all_logits(blind, [*prompt, *text])[-1],
            reference.all_logits(blind, [*near, *text])[-1],
        )


def test_exit_draft_is_the_first_layers_and_the_head():
    model, prompt, _ = case("llama")
    hidden = model.model.embed_tokens(mx.array([prompt]))
    for layer in model.layers[:4]:
        hidden = layer(hidden, "causal")
    by_hand = model.lm_head(model.model.norm(hidden))[0, -1].argmax().item()
    assert reference.exit_proposals(model, 4, prompt, k=1) == [by_hand]


def test_draft_that_skips_nothing_is_always_accepted():
    model, prompt, text = case("llama")
    for rounds in [
        reference.speculative_trace(model, (), (), prompt, 11, k=3, text=text[:11]),
        reference.exit_trace(model, 6, prompt, 11, k=3, text=text[:11]),
    ]:
        assert [r.accepted for r in rounds] == [3, 3, 2]
        assert [len(r.drafted) for r in rounds] == [3, 3, 2]


def test_text_ends_at_the_first_end_of_sequence():
    model, prompt, text = case("llama")
    eos = text[6]
    first = text.index(eos)
    assert reference.greedy(model, prompt, 20, eos={eos}) == text[: first + 1]
    rounds = reference.exit_trace(model, 6, prompt, 20, k=3, eos={eos})
    assert [t for r in rounds for t in r.emitted] == text[: first + 1]


@pytest.mark.parametrize("family", families.REFUSED)
def test_refused_families_run_but_are_not_one_plain_cache_a_layer(family):
    model = families.build(family)
    caches = make_prompt_cache(model)
    logits = model(mx.array([families.prompt(family)]), cache=caches)
    assert mx.isfinite(logits).all().item()
    plain = [c for c in caches if isinstance(c, KVCache | RotatingKVCache)]
    assert len(plain) != families.num_layers(model)


def test_overrides_reach_the_model():
    assert families.num_layers(families.build("qwen3", num_hidden_layers=7)) == 7
