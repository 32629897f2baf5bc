"""What the tests of costs share."""

import pytest
from hypothesis import settings

import selfspec
from tests.tiny import save_tiny_model

# A test that is slow on a busy machine is not wrong.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return selfspec.load(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny")).model
