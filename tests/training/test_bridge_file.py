"""A bridge on disk: the same draft again, and every wrong one refused in one line."""

import json

import mlx.core as mx
import pytest

import selfspec
from selfspec.decoding import AdapterDraft, Bridge, ShortlistDraft, generate_step
from selfspec.models.blocks import find_stack
from selfspec.training import card_of, load_bridge, save_bridge
from selfspec.training.errors import TrainingError
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-file"))


@pytest.fixture
def path(loaded, tmp_path):
    return saved(loaded, tmp_path)


def draft_of(loaded, kind="layer"):
    return AdapterDraft(2, Bridge.like(find_stack(loaded.model), kind))


def saved(loaded, folder, draft=None, source=None):
    path = folder / "bridge.safetensors"
    save_bridge(
        draft or draft_of(loaded),
        path,
        source or loaded.source,
        data={"tokens": 1000},
        acceptance=[0.51234, 0.4],
        settings={"loss": "kl"},
        curve=[{"step": 0}],
        date="2026-12-01",
    )
    return path


@pytest.mark.parametrize("kind", ["layer", "mlp"])
def test_what_was_saved_drafts_again(loaded, tmp_path, kind):
    draft = ShortlistDraft(draft_of(loaded, kind), range(100))
    path = saved(loaded, tmp_path, draft)
    card = card_of(path)
    assert card.acceptance == [0.5123, 0.4] and card.shortlist == 100
    assert card.model["sha256"] == loaded.source.sha256
    assert (card.exit_layer, card.kind) == (2, kind)
    again = selfspec.load_bridge(path, loaded)
    assert again.tokens == draft.tokens and again.draft.exit_layer == 2
    for name, array in draft.draft.bridge.weights.items():
        half = array.astype(mx.float16)
        assert mx.array_equal(again.draft.bridge.weights[name], half)
    texts = [
        [t for t, *_ in generate_step([3, 4, 5], loaded.model, draft=d, max_tokens=20)]
        for d in (None, again, load_bridge(path, loaded.model))
    ]
    assert texts[0] == texts[1] == texts[2]


def test_another_model_is_refused(loaded, path, tmp_path):
    other = selfspec.load(save_tiny_model(tmp_path / "tiny-other", seed=8))
    with pytest.raises(TrainingError) as told:
        load_bridge(path, other)
    assert "was fitted to tiny-file" in str(told.value)
    assert "Way out: selfspec fit --model tiny-other" in str(told.value)
    assert "\n" not in str(told.value)


def test_another_quantisation_is_refused(loaded, path):
    card = json.loads(path.with_suffix(".json").read_text())
    card["quantisation"] = "4-bit affine, groups of 64"
    path.with_suffix(".json").write_text(json.dumps(card))
    with pytest.raises(
        TrainingError, match="stored as 4-bit affine, .* not as float32"
    ):
        load_bridge(path, loaded)


def test_a_model_from_elsewhere_cannot_be_checked(path):
    import copy

    other = selfspec.decoding.Bridge  # anything that load did not make
    with pytest.raises(TrainingError, match="as selfspec.load gives it"):
        load_bridge(path, copy.copy(other))


@pytest.mark.parametrize("ending", [".safetensors", ".json"])
def test_a_missing_half_is_named(loaded, path, ending):
    path.with_suffix(ending).unlink()
    with pytest.raises(
        TrainingError, match=rf"there is no bridge{ending} in .*Way out"
    ):
        load_bridge(path, loaded)


@pytest.mark.parametrize("keep", [0, 30, -100])
def test_a_truncated_bridge_is_refused(loaded, path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        TrainingError, match="bridge.safetensors cannot be read"
    ) as told:
        load_bridge(path, loaded)
    assert "\n" not in str(told.value) and "Way out" in str(told.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"model": {}}'])
def test_a_card_that_is_none_is_refused(loaded, path, text):
    path.with_suffix(".json").write_text(text)
    with pytest.raises(TrainingError, match="bridge.json is no card of a bridge"):
        load_bridge(path, loaded)


def test_another_bridge_under_the_card_is_refused(loaded, path, tmp_path):
    (tmp_path / "other").mkdir()
    other = saved(loaded, tmp_path / "other", draft_of(loaded, "mlp"))
    path.write_bytes(other.read_bytes())
    with pytest.raises(TrainingError, match="not the arrays that its card tells of"):
        load_bridge(path, loaded)


def test_a_folder_that_cannot_be_written_is_one_line(loaded, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="cannot write bridge.safetensors"):
        saved(loaded, tmp_path / "file")
