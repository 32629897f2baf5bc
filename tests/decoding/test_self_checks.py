"""The self-test that gates an architecture, one wait a round, failures in the middle."""

import families
import mlx.core as mx
import mlx.nn as nn
import pytest
import reference
from mlx_lm.generate import generate_step as mlx_lm_generate_step
from mlx_lm.models.cache import make_prompt_cache
from running import run

from selfspec.decoding import (
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
    generate_step,
    self_test,
)
from selfspec.decoding.acceptance import Greedy
from selfspec.models.errors import UnsupportedModelError

SKIP = SkipDraft(attention={0, 2}, mlp={2, 4})


def test_a_norm_with_a_bias_after_a_block_is_found():
    """A block that adds zero would add the norm's bias."""
    model = families.build("gemma2")
    for layer in model.layers:
        layer.post_feedforward_layernorm = nn.LayerNorm(families.HIDDEN)
        layer.post_feedforward_layernorm.bias = mx.full((families.HIDDEN,), 0.5)
    model.args.rope_theta = 1e4 + 1  # another architecture than the one that passes
    with pytest.raises(UnsupportedModelError, match="gemma2: .*adds zero.*Way out"):
        self_test.check(model)


def test_a_layer_that_knows_its_place_in_the_stream_is_found():
    """State between layers, which leaving out and injecting would break."""
    model = families.build("llama")

    class Counting(type(model.model)):
        def __call__(self, inputs, cache=None, input_embeddings=None):
            h = first = self.embed_tokens(inputs)
            mask = "causal" if h.shape[1] > 1 else None
            for layer, c in zip(self.layers, cache or [None] * 6, strict=True):
                h = layer(h, mask, c) + 0.1 * first  # read again in every layer
            return self.norm(h)

    model.model.__class__ = Counting
    model.args.rope_theta = 1e4 + 2
    with pytest.raises(UnsupportedModelError, match="llama: .*Way out"):
        self_test.check(model)


def test_a_block_that_returns_two_things_is_refused():
    model = families.build("llama")

    class Pair(type(model.layers[0])):
        def __call__(self, x, mask=None, cache=None):
            out, _ = self.self_attn(self.input_layernorm(x), mask, cache), None
            return x + out + self.mlp(x), x

    for layer in model.layers:
        layer.__class__ = Pair
    model.args.rope_theta = 1e4 + 3
    with pytest.raises(UnsupportedModelError, match="llama"):
        self_test.check(model)


def test_the_self_test_runs_once_for_an_architecture(monkeypatch):
    model = families.build("qwen2")
    self_test.check(model)
    monkeypatch.setattr(
        self_test, "_findings", lambda *_: pytest.fail("it ran a second time")
    )
    self_test.check(families.build("qwen2", seed=4))


@pytest.mark.parametrize(
    "draft",
    [
        SKIP,
        ExitDraft(4),
        LookupDraft(),
        FallbackDraft(LookupDraft(), ShortlistDraft(SKIP, range(50))),
    ],
    ids=lambda d: type(d).__name__,
)
def test_one_wait_for_the_device_a_round(draft, monkeypatch):
    """Counted where Python waits: tolist, item and eval."""
    model = families.build("llama")
    run(model, [1, 2, 3], 5, draft=draft)  # the self-test waits too
    waits = []
    for name in ("tolist", "item"):
        original = getattr(mx.array, name)

        def counting(array, original=original, name=name):
            waits.append(name)
            return original(array)

        monkeypatch.setattr(mx.array, name, counting)
    monkeypatch.setattr(mx, "eval", lambda *a: waits.append("eval"))
    _, trace = run(model, [7], 40, draft=draft)  # nothing to prefill
    if waits[0] == "eval":  # a shortlist copies the head's rows, once
        waits.pop(0)
    assert waits == ["tolist"] * len(trace.rounds)
    assert len(trace.rounds) > 5


@pytest.mark.parametrize("phase", ["accept", "draw", "verify"])
@pytest.mark.parametrize(
    "draft", [SKIP, ExitDraft(4), SkipDraft({4}, {3}, reuse_prefix=True)], ids=str
)
def test_an_interrupt_in_any_phase_leaves_a_right_cache(phase, draft, monkeypatch):
    """transformers PR 34240 left the model cut short; mlx-lm may roll back twice."""
    from selfspec.decoding import rounds

    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    text = reference.greedy(model, prompt, 60)
    entries = make_prompt_cache(model)
    steps = generate_step(prompt, model, draft=draft, prompt_cache=entries)
    tokens = [next(steps)[0] for _ in range(6)]
    owner = rounds.Decoder if phase == "verify" else Greedy
    original, calls = getattr(owner, phase), []

    def interrupted(*args):
        calls.append(phase)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(owner, phase, interrupted)
    with pytest.raises(KeyboardInterrupt):
        for token, _, _ in steps:
            tokens.append(token)
    monkeypatch.undo()
    assert {e.offset for e in entries} == {len(prompt) + len(tokens) - 1}
    more, _ = run(model, tokens[-1:], 20, draft=draft, prompt_cache=entries)
    assert tokens + more == text[: len(tokens) + 20]


@pytest.mark.parametrize("vocab_size", [60, 130])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_draft_model_with_a_head_of_another_size(vocab_size, temperature):
    """Qwen pads its heads differently by size; no token outside may be drafted."""
    model = families.build("llama")
    draft_model = families.build("llama", seed=1, vocab_size=vocab_size)
    tokens, trace = run(
        model,
        [5, 9],
        60,
        draft=ModelDraft(draft_model),
        temperature=temperature,
        seed=0,
    )
    assert len(tokens) == 60 and trace.drafted > 60
    if temperature == 0:
        assert tokens == reference.greedy(model, [5, 9], 60)


@pytest.mark.parametrize("family", ["mamba", "lfm2"])
def test_draft_model_that_cannot_be_rolled_back_is_refused(family):
    """mlx-lm takes it, never rolls it back, and acceptance decays in silence."""
    draft = ModelDraft(families.build(family))
    with pytest.raises(UnsupportedModelError, match="draft model .*rolled back"):
        run(families.build("llama"), [1, 2], 5, draft=draft)


def test_models_that_cannot_draft_still_decode_plainly():
    for family in families.REFUSED:
        model = families.build(family)
        expected = [
            t for t, _ in mlx_lm_generate_step(mx.array([3, 4]), model, max_tokens=20)
        ]
        assert run(model, [3, 4], 20)[0] == expected


def test_one_model_beside_another_corrupts_neither():
    """Two generations at once, token by token, on one architecture."""
    model, other = families.build("llama"), families.build("llama", seed=1)
    prompt = families.prompt("llama", 10)
    expected = [reference.greedy(m, prompt, 40) for m in (model, other, model)]
    streams = [
        generate_step(prompt, m, draft=d, max_tokens=40)
        for m, d in ((model, SKIP), (other, ExitDraft(4)), (model, ExitDraft(3)))
    ]
    texts = [[], [], []]
    for _ in range(40):
        for text, steps in zip(texts, streams, strict=True):
            text.append(next(steps)[0])
    assert texts == expected


def test_the_embedded_model_drafts_losslessly(embedded):
    """Real weights, float32: the text of mlx-lm's plain loop, by parts of itself."""
    model, tokenizer = embedded.model, embedded.tokenizer
    prompt = tokenizer.encode("List three rivers of Europe and the seas they reach:")
    steps = mlx_lm_generate_step(mx.array(prompt), model, max_tokens=24)
    text = [t for t, _ in steps]
    layers = embedded.source.num_layers
    for draft in (
        SkipDraft.middle(layers, 0.1),
        FallbackDraft(LookupDraft(), ShortlistDraft(SkipDraft(), range(16384))),
    ):
        tokens, trace = run(model, prompt, 24, draft=draft, num_draft_tokens=2)
        assert tokens == text
        assert trace.accepted > 0


def test_embeddings_as_input_are_mlx_lms():
    model = families.build("llama")
    prompt = families.prompt("llama", 10)
    embeddings = model.model.embed_tokens(mx.array(prompt))
    text = reference.greedy(model, prompt, 20)
    for ids in (prompt, []):
        assert run(model, ids, 20, input_embeddings=embeddings)[0] == text
    with pytest.raises(ValueError, match="input_embeddings"):
        run(model, prompt, 20, input_embeddings=embeddings, draft=SKIP)
