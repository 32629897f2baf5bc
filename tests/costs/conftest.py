"""What the tests of costs share."""

import pytest

import selfspec
from tests.tiny import save_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny")).model
