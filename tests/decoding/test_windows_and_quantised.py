"""Sliding windows and quantised caches: never wrong text, and said when it slows.

mlx-lm's own speculative loop goes silently wrong once a ring has wrapped.
"""

import functools

import families
import mlx.core as mx
import pytest
import reference
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import (
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from running import (
    assert_same_cache,
    cache_arrays,
    drafts_of,
    noisy_copy,
    replay,
    run,
)

from selfspec.decoding import ExitDraft, LookupDraft, ModelDraft, SkipDraft
from selfspec.decoding.caches import Caches, WindowCache

DRAFTS = [SkipDraft(attention={0, 3}, mlp={4}), ExitDraft(4)]
WINDOW = families.WINDOW


@pytest.fixture(scope="module")
def sliding():
    model = families.build("llama_sliding")
    prompt = families.prompt("llama_sliding", 5)
    return model, prompt, reference.greedy(model, prompt, 3 * WINDOW)


@functools.cache
def crossing(length):
    """Model, prompt and a text that crosses the window and then once more."""
    model = families.build("llama_sliding")
    prompt = families.prompt("llama_sliding", length)
    return model, prompt, reference.greedy(model, prompt, 2 * WINDOW + 8)


@pytest.mark.parametrize("draft", [*DRAFTS, LookupDraft(), "two models"], ids=str)
@pytest.mark.parametrize("window_cache", ["ring", "full"])
@pytest.mark.parametrize("length", range(1, WINDOW + 4, 3))
def test_window_crossed_at_every_place_of_a_round(draft, window_cache, length):
    """The window is crossed at each offset in a round, and then once more.

    mlx-lm 1423 and mlx-swift-lm 424: a full ring cannot be rolled back, and was not;
    mlx-lm 1914, transformers 48280: passes of several rows over a ring.
    """
    model, prompt, text = crossing(length)
    if draft == "two models":  # whose draft has windows too
        draft = ModelDraft(noisy_copy(model))
    for k in (2, 5):
        tokens, trace = run(
            model,
            prompt,
            len(text),
            draft=draft,
            num_draft_tokens=k,
            window_cache=window_cache,
        )
        assert tokens == text
        assert bool(trace.draft_stopped) == (window_cache == "ring")


def test_ring_never_drafts_what_it_could_not_take_back(sliding):
    model, prompt, text = sliding
    entries = make_prompt_cache(model)
    _, trace = run(model, prompt, 40, draft=DRAFTS[0], prompt_cache=entries)
    emitted = 0
    for r in trace.rounds:
        assert len(prompt) - 1 + emitted + r.rows < WINDOW
        emitted += 1 + r.accepted
    assert all(
        type(e) is (RotatingKVCache if i % 3 < 2 else KVCache)
        for i, e in enumerate(entries)
    )


def test_prompt_longer_than_the_window_decodes_plainly_from_the_start():
    model = families.build("llama_sliding")
    prompt = families.prompt("llama_sliding", WINDOW + 9)
    text = reference.greedy(model, prompt, 40)
    tokens, trace = run(model, prompt, 40, draft=DRAFTS[0])
    assert tokens == text and trace.rounds == []
    assert f"after {len(prompt)} tokens" in trace.draft_stopped
    tokens, trace = run(model, prompt, 40, draft=DRAFTS[0], window_cache="full")
    assert tokens == text and trace.drafted > 0


def test_full_window_cache_equals_a_replay_past_the_window(sliding):
    model, prompt, text = sliding
    entries = make_prompt_cache(model)
    options = {"draft": DRAFTS[0], "window_cache": "full", "prompt_cache": entries}
    tokens, _ = run(model, prompt, 30, **options)
    fresh = Caches(make_prompt_cache(model))
    fresh.widen()
    length = len(prompt) + 29
    replayed = replay(model, [*prompt, *text][:length], fresh.entries)
    assert_same_cache(entries, replayed, length)
    assert {type(e) for e in entries} == {WindowCache, KVCache}
    more, _ = run(model, tokens[-1:], 18, **options)  # a cache already widened
    assert tokens + more == text[:48]


def test_a_half_full_ring_is_widened_in_the_order_of_its_tokens():
    """mlx-vlm 1715: a reused prefix was cut out of the ring's buffer as it lay there."""
    model = families.build("llama_sliding")
    prompt = families.prompt("llama_sliding", 9)
    text = reference.greedy(model, prompt, 30)
    read, spoken = make_prompt_cache(model), make_prompt_cache(model)
    run(model, prompt[:6], 0, prompt_cache=read)
    run(model, prompt[6:8], 0, prompt_cache=read)
    run(model, prompt, 4, draft=DRAFTS[1], prompt_cache=spoken)  # and rolled back
    for entries, known in ((read, prompt), (spoken, [*prompt, *text[:4]])):
        ring = entries[0]
        assert ring.offset == len(known) - 1 < ring.keys.shape[2]
        options = {"prompt_cache": entries, "window_cache": "full"}
        tokens, trace = run(model, known[-1:], 24, draft=DRAFTS[0], **options)
        done = len(known) - len(prompt)
        assert tokens == text[done : done + 24] and trace.drafted > 0


def test_a_ring_that_is_read_into_by_several_rows_forgets_all_the_same():
    """mlx-lm 1914 says that it never does; it may hold the rows of one pass more."""
    model = families.build("llama_sliding")
    prompt = families.prompt("llama_sliding", 41)
    entries, rows, sizes = make_prompt_cache(model), 6, []
    rings = [e for e in entries if isinstance(e, RotatingKVCache)]
    tokens, _ = run(
        model,
        prompt,
        12,
        draft=DRAFTS[0],
        prompt_cache=entries,
        prefill_step_size=rows,
        prompt_progress_callback=lambda done, total: sizes.extend(
            e.keys.shape[2] for e in rings if done
        ),
    )
    assert tokens == reference.greedy(model, prompt, 12)
    assert max(sizes) == WINDOW + rows - 1
    assert {e.keys.shape[2] for e in rings} == {WINDOW}


def test_window_mask_is_the_rings():
    for offset in (0, 5, 15, 16, 40):
        full, ring = WindowCache(8), RotatingKVCache(8)
        full.offset = ring.offset = offset
        for rows in (1, 3, 9):
            mask = full.make_mask(rows)
            expected = [
                [j <= i and i - j < 8 for j in range(offset + rows)]
                for i in range(offset, offset + rows)
            ]
            if mask is None:
                assert rows == 1 and all(map(all, expected))
            elif isinstance(mask, str):
                assert mask == "causal" and offset + rows <= 8
            else:
                assert mask.tolist() == expected


def test_wrapped_cache_and_kept_first_tokens_cannot_be_widened():
    model = families.build("llama_sliding")
    entries = make_prompt_cache(model)
    prompt = families.prompt("llama_sliding", WINDOW + 9)
    tokens, _ = run(model, prompt, 20, prompt_cache=entries)
    options = {"draft": DRAFTS[0], "prompt_cache": entries}
    with pytest.raises(ValueError, match="wrapped its window of 16"):
        run(model, tokens[-1:], 5, window_cache="full", **options)
    more, trace = run(model, [7], 20, **options)  # goes on, plainly
    assert more == reference.greedy(model, [*prompt, *tokens, 7], 20)
    assert trace.draft_stopped
    plain = families.build("qwen3")
    with pytest.raises(ValueError, match="max_kv_size"):
        run(plain, [1], 5, draft=DRAFTS[0], max_kv_size=64, window_cache="full")


@pytest.mark.parametrize(("family", "window"), [("qwen3", 32), ("gemma3_text", WINDOW)])
def test_max_kv_size_is_a_ring_too(family, window):
    """mlx-lm 118: a Gemma 3 ignores it, and its own windows are rings all the same."""
    model = families.build(family)
    prompt = families.prompt(family, 6)
    steps = mlx_lm_generate_step(mx.array(prompt), model, max_tokens=60, max_kv_size=32)
    text = [t for t, _ in steps]
    tokens, trace = run(model, prompt, 60, draft=DRAFTS[0], max_kv_size=32)
    assert tokens == text
    assert f"{window}-token sliding window" in trace.draft_stopped
    assert trace.drafted > 0


def test_draft_models_own_window_stops_drafting_too():
    target = families.build("llama")
    prompt = families.prompt("llama", 5)
    text = reference.greedy(target, prompt, 60)
    draft = ModelDraft(noisy_copy(families.build("llama_sliding")))
    tokens, trace = run(target, prompt, 60, draft=draft)
    assert tokens == text
    assert "the draft model's sliding window is full" in trace.draft_stopped
    tokens, trace = run(target, prompt, 60, draft=draft, window_cache="full")
    assert tokens == text and not trace.draft_stopped


# Quantised keys and values


def quantised_text(model, prompt, length, **options):
    steps = mlx_lm_generate_step(
        mx.array(prompt), model, max_tokens=length, kv_group_size=32, **options
    )
    return [t for t, _ in steps]


@pytest.mark.parametrize("draft", DRAFTS, ids=str)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("start", [0, 25])
def test_quantised_cache_gives_mlx_lms_quantised_text(draft, bits, start):
    """And its cache, within a stated bound: a token's row is off by one step in all.

    A last-bit difference between passes of one row and of several can move a value to
    the next step of the quantiser's grid, and later layers see that step. Root mean
    square over a row that stays below one step; a rejected token's row is far above.
    """
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    options = {"kv_bits": bits, "quantized_kv_start": start}
    theirs, mine = make_prompt_cache(model), make_prompt_cache(model)
    text = quantised_text(model, prompt, 80, prompt_cache=theirs, **options)
    tokens, trace = run(
        model,
        prompt,
        80,
        draft=draft,
        kv_group_size=32,
        prompt_cache=mine,
        **options,
    )
    assert tokens == text
    assert trace.accepted > 10
    assert all(type(e) is QuantizedKVCache for e in mine)
    Caches(theirs).roll_back(len(prompt) + 79)  # mlx-lm reads the last token too
    length = len(prompt) + 79
    for entry, other in zip(mine, theirs, strict=True):
        assert entry.offset == other.offset == length
        for a, b in zip(
            cache_arrays(entry, length), cache_arrays(other, length), strict=True
        ):
            step = (b.max() - b.min()) / (2**bits - 1)
            off = mx.sqrt(mx.square(a - b).mean(axis=(0, 1, 3)))  # (length,)
            assert (off.max() / step).item() < 1


@pytest.mark.parametrize("draft", DRAFTS, ids=str)
def test_quantising_in_the_middle_of_a_text_is_not_straddled(draft):
    """mlx-lm quantises once 25 tokens are in; before and after, the same keys count."""
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    options = {"kv_bits": 8, "quantized_kv_start": 25}
    entries = make_prompt_cache(model)
    tokens, trace = run(
        model,
        prompt,
        40,
        draft=draft,
        num_draft_tokens=5,
        kv_group_size=32,
        prompt_cache=entries,
        **options,
    )
    assert tokens == quantised_text(model, prompt, 40, **options)
    assert all(type(e) is QuantizedKVCache for e in entries)
    lengths = [len(prompt) - 1]
    for r in trace.rounds:
        assert not lengths[-1] < 25 < lengths[-1] + r.rows
        lengths.append(lengths[-1] + 1 + r.accepted)
    assert lengths[-1] > 25


QUANTISABLE = [f for f in families.FAMILIES if not families.has_window(f)]
QUANTISABLE.remove("gemma2")  # mlx-lm's own attention cannot read such a cache


@pytest.mark.parametrize("family", QUANTISABLE)
def test_quantised_cache_under_every_kind_of_draft(family):
    """LM Studio 440, mlx-vlm 1956 and 2093: a crash, or kv_bits dropped in silence."""
    model, options = families.build(family), {"kv_bits": 8, "quantized_kv_start": 20}
    prompt = families.prompt(family, 10)
    text = quantised_text(model, prompt, 40, **options)
    drafts = drafts_of(model)
    if family != "llama":
        drafts = {name: drafts[name] for name in ("skip", "exit", "lookup")}
    for name, draft in drafts.items():
        entries = make_prompt_cache(model)
        tokens, trace = run(
            model,
            prompt,
            40,
            draft=draft,
            kv_group_size=32,
            prompt_cache=entries,
            **options,
        )
        assert tokens == text, name
        assert trace.drafted > 0
        assert all(type(e) is QuantizedKVCache for e in entries), name


def test_quantised_cache_after_a_prompt_of_one_token():
    model, options = families.build("llama"), {"kv_bits": 8, "quantized_kv_start": 0}
    text = quantised_text(model, [7], 40, **options)
    for name, draft in drafts_of(model).items():
        tokens, _ = run(model, [7], 40, draft=draft, kv_group_size=32, **options)
        assert tokens == text, name


def test_quantised_model_draft():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = quantised_text(model, prompt, 60, kv_bits=8, quantized_kv_start=0)
    tokens, trace = run(
        model,
        prompt,
        60,
        draft=ModelDraft(noisy_copy(model)),
        kv_bits=8,
        kv_group_size=32,
        quantized_kv_start=0,
    )
    assert tokens == text and trace.accepted > 0


def test_kv_bits_with_a_window_is_refused_before_the_first_token(sliding):
    for window_cache in ("ring", "full"):
        with pytest.raises(ValueError, match="kv_bits=8: llama has sliding-window"):
            run(*sliding[:2], 5, draft=DRAFTS[0], kv_bits=8, window_cache=window_cache)


# Rolling back


@pytest.mark.parametrize("extra", [0, 1, 7, 12, 30])
def test_roll_back_none_one_all_and_more_than_all(extra):
    """In place: transformers 47433 (none, or too many), 30312 (buffers made anew)."""
    model = families.build("llama")
    prompt = families.prompt("llama", 12)
    caches = Caches(replay(model, prompt))
    buffers = [(id(e.keys), id(e.values)) for e in caches.entries]
    caches.roll_back(max(0, 12 - extra))
    assert buffers == [(id(e.keys), id(e.values)) for e in caches.entries]
    kept = max(0, 12 - extra)
    assert {e.offset for e in caches.entries} == {kept} == {caches.length}
    caches.roll_back(kept)  # again changes nothing
    assert caches.length == kept
    logits = model(mx.array([prompt[kept:] + [3]]), cache=caches.entries)[0, -1]
    expected = reference.all_logits(model, [*prompt, 3])[-1]
    assert mx.abs(logits - expected).max().item() < 1e-3
