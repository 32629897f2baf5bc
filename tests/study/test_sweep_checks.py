"""What cannot be swept is told in one line, before anything is measured."""

from types import SimpleNamespace

import pytest

import selfspec
from selfspec import models
from selfspec.decoding import SkipDraft
from selfspec.study import naive_sweep, sweep_checks
from selfspec.study.errors import StudyError
from tests.decoding import families
from tests.tiny import save_tiny_model

LAYERS = ["sliding_attention", "full_attention"] * 3


def test_a_prompt_that_fills_a_sliding_window_is_named(tmp_path):
    """It went on to an IndexError where the draft's cost is measured."""
    folder = save_tiny_model(tmp_path / "narrow", sliding_window=64, layer_types=LAYERS)
    with pytest.raises(StudyError, match="narrow.*last 64 tokens.*Way out") as caught:
        naive_sweep.measure(str(folder), size="smoke", results=tmp_path / "results")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("results/*/*/*.csv"))


def test_what_fits_into_the_window_passes(tmp_path):
    folder = save_tiny_model(tmp_path / "wide", sliding_window=64, layer_types=LAYERS)
    loaded = selfspec.load(folder)
    sweep_checks.require_room(loaded, {"short": [1] * 43}, 20)
    with pytest.raises(StudyError, match="prompt long .*needs 64"):
        sweep_checks.require_room(loaded, {"short": [1], "long": [1] * 44}, 20)


def test_a_model_without_windows_has_room_for_everything(tmp_path):
    loaded = selfspec.load(save_tiny_model(tmp_path / "tiny"))
    sweep_checks.require_room(loaded, {"long": [1] * 10_000}, 64)


@pytest.mark.parametrize("family", families.REFUSED)
def test_families_that_the_engine_refuses_are_refused_by_name(family):
    """Recurrent caches ended in an AttributeError where costs are measured."""
    model = families.build(family)
    draft = SkipDraft.middle(families.num_layers(model), 0.3)
    with pytest.raises(models.UnsupportedModelError, match=f"{family}.*Way out"):
        sweep_checks.require_engine(SimpleNamespace(model=model), draft)
