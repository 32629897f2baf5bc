"""LoRA through mlx-lm's tuner: says nothing at first, learns, fuses, is read back."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import load_adapters

from selfspec.training import (
    Recipe,
    Settings,
    TrainingError,
    add_lora,
    fuse_lora,
    train,
)
from selfspec.training.lora import Adapters, save_adapters

IDS = mx.array([[3, 1, 4, 1, 5]])
ADAPTERS = Adapters(rank=4, scale=8.0)
RECIPE = Recipe(early_exit=True, rotation=2, max_dropout=0.1)


def moved(model):
    """Adapters begin at zero; here they are something."""
    for _, module in model.named_modules():
        if "lora_b" in module:
            module.lora_b = mx.random.normal(module.lora_b.shape) * 0.1
    return model


def test_nothing_is_said_differently_until_a_step_is_made(make_model):
    model = make_model()
    before = model(IDS)
    add_lora(model, ADAPTERS)
    assert mx.allclose(model(IDS), before, atol=1e-6)
    trained = dict(tree_flatten(model.trainable_parameters()))
    assert trained and all("lora" in name for name in trained)
    assert any(f"layers.{len(model.layers) - 1}." in name for name in trained)


def test_only_adapters_are_trained_and_they_learn(make_model, samples, tmp_path):
    model = add_lora(make_model(), ADAPTERS)
    frozen = model.model.embed_tokens.weight
    settings = Settings(steps=12, batch=4, warmup=2, learning_rate=2e-2)
    result = train(model, RECIPE, samples[:4], settings, tmp_path)
    assert mx.array_equal(model.model.embed_tokens.weight, frozen)
    lines = result.losses.read_text().splitlines()
    first, last = (float(lines[i].split(",")[2]) for i in (1, -1))
    assert last < first


@pytest.mark.parametrize("quantised", [False, True])
def test_fused_is_the_same_model_without_adapters(make_model, quantised):
    model = make_model(width=64)
    if quantised:
        nn.quantize(model, group_size=32, bits=8)
    moved(add_lora(model, ADAPTERS))
    before = model(IDS)
    fuse_lora(model)
    assert not any("lora_a" in m for _, m in model.named_modules())
    assert mx.allclose(model(IDS), before, atol=0.05 if quantised else 1e-5)


def test_there_must_be_something_to_fuse(make_model):
    with pytest.raises(TrainingError, match="no adapter to fuse. Way out"):
        fuse_lora(make_model())


def test_adapters_are_read_back_by_mlx_lm(make_model, tmp_path):
    model = moved(add_lora(make_model(), ADAPTERS))
    save_adapters(model, ADAPTERS, tmp_path / "adapters")
    again = load_adapters(make_model(), str(tmp_path / "adapters"))
    assert mx.allclose(again(IDS), model(IDS), atol=1e-6)


@pytest.mark.parametrize("values", [dict(rank=0), dict(scale=0), dict(dropout=1.0)])
def test_adapters_out_of_range_are_named(values):
    with pytest.raises(ValueError, match="rank must be 1 or more, scale above 0"):
        Adapters(**values)
