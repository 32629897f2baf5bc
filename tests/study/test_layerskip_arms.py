"""Arms trained and scored end to end, tiny; interrupted, they go on."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from selfspec.study import arms_table, layerskip_arms
from selfspec.study.errors import StudyError
from selfspec.training import Settings, build, make_task

PLAN = [("baseline", 0), ("ld-ee", 0)]
SETTINGS = Settings(steps=6, batch=4, warmup=2, checkpoint_every=2)


@pytest.fixture(scope="module")
def task():
    return make_task(num_train=40, num_test=12)


def run(root, task, plan=PLAN, **changes):
    given = dict(settings=SETTINGS, task=task, layers=3, scored=6, visits=3)
    return layerskip_arms.train_arms(root, plan=plan, **{**given, **changes})


@pytest.fixture(scope="module")
def trained(task, tmp_path_factory):
    root = tmp_path_factory.mktemp("arms")
    run(root, task)
    return root


def test_every_arm_has_its_exits_at_every_visit_and_at_the_end(trained):
    arms = arms_table.load(trained)
    assert arms_table.names(arms) == ["baseline", "ld-ee"]
    assert arms.num_layers == 3
    counts = arms.exits.groupby(["arm", "seed", "step"]).size()
    assert counts.to_dict() == {
        (arm, 0, step): 3 for arm, _ in PLAN for step in (2, 4, 6)
    }
    assert set(arms.exits[arms.exits["step"] == 6]["texts"]) == {6}
    last = arms.exits[arms.exits["exit_layer"] == 3]
    assert (last["agreement"] == 1).all()
    assert (arms.training["seconds"] > 0).all() and len(arms.training) == 2
    by_arm = arms.training.set_index("arm")["layers_run"]
    assert by_arm["baseline"] == 1.0
    assert arms.about["steps"] == 6 and arms.about["commit"] is not None


def test_an_arm_that_is_done_is_not_trained_again(trained, task):
    told, before = [], (trained / _exits(trained)).read_text()
    run(trained, task, told=told.append)
    assert told == ["baseline, seed 0: there already", "ld-ee, seed 0: there already"]
    assert (trained / _exits(trained)).read_text() == before


def test_an_interrupted_arm_goes_on_and_ends_with_the_same_rows(
    trained, task, tmp_path
):
    class Stop(Exception):
        pass

    def stop(step, steps, loss):
        if step == 5:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path, task, PLAN[1:], progress=stop)
    seen = []
    run(tmp_path, task, PLAN[1:], progress=lambda step, *_: seen.append(step))
    assert seen == [5, 6]
    once = arms_table.load(trained).exits
    again = arms_table.load(tmp_path).exits
    once = once[once["arm"] == "ld-ee"].reset_index(drop=True)
    assert once.equals(again)


def test_arms_of_other_settings_are_not_mixed(trained, task):
    with pytest.raises(StudyError, match="another settings.*Way out"):
        run(trained, task, settings=Settings(steps=7, batch=4))
    with pytest.raises(StudyError, match="another scored"):
        run(trained, task, scored=5)


def test_an_unknown_arm_is_refused_before_anything_is_trained(tmp_path, task):
    with pytest.raises(StudyError, match="no arm 'le'. Way out: one of baseline, ld"):
        run(tmp_path, task, [("le", 0)])
    assert not list(tmp_path.iterdir())


def test_what_is_scored_are_the_weights_in_half_precision():
    model = build(30, layers=2, width=16)
    before = dict(tree_flatten(model.parameters()))
    layerskip_arms.halved(model)
    for name, array in tree_flatten(model.parameters()):
        assert array.dtype == mx.float32
        assert mx.array_equal(array, array.astype(mx.float16).astype(mx.float32))
        worst = mx.abs(array - before[name]).max().item()
        assert worst < 1e-2, name


def test_texts_are_held_out_and_scored_from_the_parse_on(task):
    texts = layerskip_arms.texts_of(task, 3)
    asked = task.prompt(task.test[2].utterance)
    assert texts[2].start == len(asked)
    assert list(texts[2].ids[: len(asked)]) == asked
    assert texts[2].ids[texts[2].start :] == task.answer(task.test[2])


def _exits(root):
    return arms_table.load(root).folder / arms_table.EXITS
