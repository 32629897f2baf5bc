"""A grid of drafts is refused in one line, before anything is measured."""

import json

import pytest

from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.errors import StudyError
from tests.study.drafts import SKIP, mixed_grid


def test_cases_come_in_reading_order_and_json_names_them():
    grid = mixed_grid()
    assert [case.name for case in grid.cases] == [
        "skip 50 %, 2",
        "skip 50 %, auto",
        "lookup, 4",
        "exit 3, 2",
    ]
    kept = json.loads(json.dumps(grid.to_json()))
    assert kept["groups"][0][1] == {
        "draft": "skip 50 %",
        "num_draft_tokens": "auto",
        "temperature": 0.0,
        "context": 0,
        "match": False,
    }
    assert kept["num_tokens"] == 20 and kept["stop_at_eos"] is True


@pytest.mark.parametrize(
    "change, rule",
    [
        ({"groups": ()}, "groups must hold cases"),
        ({"groups": ((),)}, "groups must hold cases"),
        ({"groups": ((Case("a", SKIP, 2),), (Case("a", SKIP, 2),))}, "there once"),
        ({"groups": ((Case("a", SKIP, 0),),)}, "num_draft_tokens must be 1 or more"),
        ({"groups": ((Case("a", SKIP, "many"),),)}, "num_draft_tokens must be 1"),
        ({"num_prompts": 0}, "num_prompts"),
        ({"num_tokens": 5}, "num_tokens must be at least twice"),
        ({"repeats": 0}, "repeats"),
        ({"calibration_prompts": 0}, "calibration_prompts"),
        ({"calibration_tokens": 1}, "calibration_tokens"),
    ],
)
def test_a_bad_grid_is_one_line(change, rule):
    values = dict(groups=((Case("a", SKIP, 2),),), num_prompts=2, num_tokens=16)
    with pytest.raises(StudyError, match=rule) as caught:
        DraftGrid(**{**values, **change})
    assert "\n" not in str(caught.value)
