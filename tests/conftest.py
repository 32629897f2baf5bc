"""What tests share: the embedded model, loaded once for the whole run."""

import pytest

import selfspec


@pytest.fixture(scope="session")
def embedded():
    """The real default model; fetched into the user's cache folder if need be."""
    return selfspec.load("smollm2-135m")
