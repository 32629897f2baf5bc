"""What the tests of experiments share."""

import pytest

import selfspec
from tests.tiny import save_tiny_model


@pytest.fixture(scope="session")
def tiny_loaded(tmp_path_factory):
    """A tiny random model of 6 layers and 258 tokens, as `selfspec.load` gives it."""
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-study"))
