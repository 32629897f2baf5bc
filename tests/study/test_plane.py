"""The signature figure: every configuration of one machine, by method, and no rule."""

import book_project
import matplotlib.pyplot as plt
import numpy as np
import pytest

from selfspec.study import methods, plane, reference
from selfspec.study.run_records import collect, latest

HERE = dict(machine="apple-m3-16gb-metal", model="x")
CPU = "testron-9000-8-cores-16gb-cpu"


def records(root):
    return latest(collect(root))


@pytest.fixture
def measured(tmp_path):
    both = ("two caches", "one cache")
    book_project.add_results(tmp_path, **HERE, mechanisms=both, size="paper")
    book_project.add_draft_results(tmp_path, "machine", **HERE)
    book_project.add_draft_results(tmp_path, "auto", **HERE)
    book_project.add_results(tmp_path, machine=CPU, model="x")
    return tmp_path


def test_every_fixed_configuration_of_the_machine_is_a_point(measured):
    shown = plane.shown(records(measured))
    assert {(r.machine, r.experiment) for r in shown} == {
        (HERE["machine"], "naive-sweep"),
        (HERE["machine"], "machine"),
    }
    found = plane.points(shown)
    assert len(found) == 2 * 2 + 2
    assert methods.order(found["method"]) == [
        "skip, two caches",
        "skip, one cache",
        "exit",
    ]
    # the runs of drafts skip on one cache too: the same method, the same mark
    assert (found["method"] == "skip, one cache").sum() == 3


def test_the_figure_draws_each_point_and_names_each_method(measured):
    found = plane.points(plane.shown(records(measured)))
    post = reference.post(reference.find_root())
    figure = plane.draw(found, post)
    drawn = [
        tuple(np.round(point, 6))
        for c in figure.axes[0].collections
        if c.get_label() in set(found["method"])
        for point in np.asarray(c.get_offsets())
    ]
    plt.close(figure)
    expected = zip(found["cost_ratio"], found["acceptance_rate"], strict=True)
    assert sorted(drawn) == sorted((round(x, 6), round(y, 6)) for x, y in expected)
    assert "By method: skip, two caches 2, skip, one cache 3, exit 1." in (
        plane.describe(found)
    )


def test_a_draft_that_proposed_nothing_has_no_place_in_it(tmp_path):
    book_project.add_draft_results(
        tmp_path, "machine", **HERE, cases=(("lookup", 4), ("skip 10 %", 2))
    )
    shown = plane.shown(records(tmp_path))
    table = shown[0].table
    table.loc[table["draft"] == "lookup", "acceptance_rate"] = float("nan")
    assert list(plane.points(shown)["method"]) == ["skip, one cache"]


def test_a_larger_run_elsewhere_takes_the_figure_with_it(measured):
    book_project.add_draft_results(
        measured, "machine", machine=CPU, model="x", size="paper", date="2027-01-01"
    )
    shown = plane.shown(records(measured))
    assert {record.machine for record in shown} == {CPU}


@pytest.mark.parametrize("experiment", [None, "auto"])
def test_nothing_but_a_rule_leaves_the_plane_empty(tmp_path, experiment):
    if experiment:
        book_project.add_draft_results(tmp_path, experiment, **HERE)
    shown = plane.shown(records(tmp_path))
    assert shown == []
    found = plane.points(shown)
    figure = plane.draw(found, reference.post(reference.find_root()))
    plt.close(figure)
    assert "no configuration of this study is measured yet" in plane.describe(found)
