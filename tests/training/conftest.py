"""A small model, a handful of texts and settings that take no time."""

import pytest

from selfspec.training import Settings, build, make_task

LAYERS, WIDTH = 4, 16


@pytest.fixture(scope="session")
def task():
    return make_task(0, num_train=24, num_test=12)


@pytest.fixture(scope="session")
def samples(task):
    return [task.encode(example) for example in task.train]


@pytest.fixture
def make_model(task):
    def make(seed=0, **options):
        options = {"layers": LAYERS, "width": WIDTH, **options}
        return build(len(task.vocabulary), seed=seed, **options)

    return make


@pytest.fixture
def settings():
    return Settings(steps=6, batch=4, warmup=2, checkpoint_every=2, learning_rate=1e-3)
