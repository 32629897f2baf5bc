"""The post's shorter list of layers: right where it may be, refused where it is not."""

import selfspec  # noqa: F401  (loads the BLAS before mlx)

# isort: split
import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models import cohere2, gemma3_text, gpt_oss, llama

from selfspec.decoding.drafts import SkipDraft
from selfspec.decoding.shorter_list import check_shorter_list, shorter_list_model
from selfspec.models.blocks import find_stack
from selfspec.models.errors import UnsupportedModelError

PERIOD = ["sliding_attention"] * 3 + ["full_attention"]


def small(module, **options):
    mx.random.seed(1)
    kind = module.__name__.split(".")[-1]
    config = {
        "model_type": kind,
        "hidden_size": 32,
        "num_hidden_layers": 8,
        "intermediate_size": 48,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 64,
        "rms_norm_eps": 1e-5,
        **options,
    }
    return module.Model(module.ModelArgs.from_dict(config))


def test_middle_is_the_posts_contiguous_run():
    # n_skip = max(1, round(n * f)), start = (n - n_skip) // 2
    assert SkipDraft.middle(30, 0.3).whole_layers == frozenset(range(10, 19))
    assert SkipDraft.middle(36, 0.1).whole_layers == frozenset(range(16, 20))
    assert SkipDraft.middle(4, 0.01).whole_layers == frozenset({1})


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, 0.999])
def test_middle_refuses_a_fraction_that_leaves_nothing(fraction):
    with pytest.raises(ValueError, match="skip_fraction"):
        SkipDraft.middle(8, fraction)


def test_shorter_list_shares_weights_and_leaves_the_model_alone():
    model = small(llama)
    before = list(model.layers)
    draft = shorter_list_model(model, SkipDraft.middle(8, 0.5))
    assert [id(x) for x in draft.layers] == [id(before[i]) for i in (0, 1, 6, 7)]
    assert [id(x) for x in model.layers] == [id(x) for x in before]
    assert draft.model.embed_tokens is model.model.embed_tokens


def test_shorter_list_drafts_losslessly_through_mlx_lm():
    model = small(llama)
    draft = shorter_list_model(model, SkipDraft.middle(8, 0.25))
    prompt = mx.array([3, 1, 4, 1, 5, 9, 2, 6])
    plain = [t for t, _ in generate_step(prompt, model, max_tokens=40)]
    fast = [
        t
        for t, *_ in speculative_generate_step(
            prompt, model, draft, max_tokens=40, num_draft_tokens=3
        )
    ]
    assert fast == plain


def test_shorter_list_refuses_half_layers_and_unknown_layers():
    model = small(llama)
    with pytest.raises(ValueError, match="attention and mlp differ"):
        shorter_list_model(model, SkipDraft(attention={1}))
    with pytest.raises(ValueError, match=r"\[8\]"):
        shorter_list_model(model, SkipDraft({8}, {8}))
    with pytest.raises(ValueError, match="all 8 layers"):
        shorter_list_model(model, SkipDraft(range(8), range(8)))


def test_check_accepts_a_family_without_positions():
    check_shorter_list(small(llama))
    check_shorter_list(small(llama), SkipDraft.middle(8, 0.5))


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (llama, {"layer_types": PERIOD * 2, "sliding_window": 8}),
        # windows longer than any logits check would reach
        (gemma3_text, {"sliding_window": 512, "sliding_window_pattern": 4}),
        (cohere2, {"sliding_window": 600, "sliding_window_pattern": 4}),
        (
            gpt_oss,
            {
                "sliding_window": 128,
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
            },
        ),
    ],
    ids=["llama-sliding", "gemma3_text", "cohere2", "gpt_oss"],
)
def test_check_refuses_families_that_remember_positions(module, options):
    with pytest.raises(UnsupportedModelError, match="shorter list.*Way out"):
        check_shorter_list(small(module, **options))


def test_check_judges_the_logits_too():
    """A layer whose output depends on its place in the list, with plain caches."""

    class Placed(llama.LlamaModel):
        def __call__(self, inputs, cache=None, input_embeddings=None):
            h = self.embed_tokens(inputs)
            for place, layer in enumerate(self.layers):
                h = layer(
                    h * (1 + place / 7), "causal", cache[place] if cache else None
                )
            return self.norm(h)

    model = small(llama)
    model.model.__class__ = Placed
    with pytest.raises(UnsupportedModelError, match="logits are off"):
        check_shorter_list(model)


def test_a_stack_that_is_not_plain_is_refused():
    model = small(llama)
    model.model.layers = [*model.model.layers, model.model.layers[0]]
    with pytest.raises(UnsupportedModelError, match="looped"):
        find_stack(model)
    model = small(llama)
    del model.model.layers[2]["mlp"]
    with pytest.raises(UnsupportedModelError, match="layer 2 is not one attention"):
        find_stack(model)
    with pytest.raises(UnsupportedModelError, match="not one plain list"):
        find_stack(small(llama).model.layers[0])
