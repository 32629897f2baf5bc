"""A model that does not fit is refused before it is loaded, with the estimate."""

import pytest
from mlx.utils import tree_flatten

import selfspec
from selfspec.models import ModelError, device, embedded, folder, memory


def in_memory(model) -> int:
    return sum(array.nbytes for _, array in tree_flatten(model.parameters()))


@pytest.mark.parametrize("bits", [None, 4, 8])
@pytest.mark.parametrize("kind", ["cpu", "metal"])
def test_the_estimate_is_what_the_weights_take(model_folder, monkeypatch, bits, kind):
    place = model_folder(bits=bits)
    monkeypatch.setattr(device, "kind", lambda: kind)
    asked = []
    monkeypatch.setattr(memory, "require", lambda size, *_, **__: asked.append(size))
    model = selfspec.load(place).model
    assert asked == [in_memory(model)]


def test_too_large_a_model_is_refused_before_it_is_read(model_folder, monkeypatch):
    place = model_folder("large")
    monkeypatch.setattr(device, "memory_limit", lambda: 1000)
    monkeypatch.setattr(folder, "load_model", None)  # would fail if it were reached
    with pytest.raises(ModelError) as caught:
        selfspec.load(place)
    text = str(caught.value)
    assert "large needs about" in text and "Way out: a smaller model" in text
    assert "\n" not in text and str(place.parent) not in text


@pytest.mark.parametrize(
    "limit, expanded, suggested",
    [
        (40e9, True, "Llama-3.1-8B"),
        (20e9, True, "Qwen3-4B"),
        (8e9, True, "smollm2-135m"),
        (8e9, False, "Llama-3.1-8B"),
        (3e9, False, "Qwen3-4B"),
    ],
)
def test_the_largest_known_model_that_fits_is_suggested(
    monkeypatch, limit, expanded, suggested
):
    monkeypatch.setattr(device, "memory_limit", lambda: int(limit))
    memory.require(limit / memory.ROOM - 1, "fits", expanded=expanded)
    with pytest.raises(ModelError) as caught:
        memory.require(1e12, "owner/huge", expanded=expanded)
    text = str(caught.value)
    assert f"owner/huge needs about {1.1e3:.3g} GB of memory" in text
    assert suggested in text and f"{limit / 1e9:.3g} GB can be had here" in text
    assert ("written out in float32" in text) is expanded
    assert ("fewer bits" in text) is not expanded


def test_a_gpu_and_a_container_lower_the_limit(monkeypatch, tmp_path):
    limit = device.memory_limit()
    assert 0 < limit
    container = tmp_path / "memory.max"
    container.write_text("max\n")
    monkeypatch.setattr(device, "CONTAINER", container)
    assert limit <= device.memory_limit()
    container.write_text("5000\n")
    assert device.memory_limit() == 5000
    container.write_text(str(2**60))
    monkeypatch.setattr(device, "kind", lambda: "metal")
    info = {"max_recommended_working_set_size": 7000}
    monkeypatch.setattr(device.mx, "device_info", lambda: info)
    assert device.memory_limit() == 7000


def test_what_is_suggested_instead_can_be_loaded_by_name():
    from selfspec.models.hub import is_hub_name

    for name, billions in memory.SMALLER:
        assert name in embedded.ALIASES or is_hub_name(name)
        assert billions > 0
    assert [b for _, b in memory.SMALLER] == sorted(
        (b for _, b in memory.SMALLER), reverse=True
    )
