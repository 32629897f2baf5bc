"""A skip set told against a plain exit."""

import pytest

from selfspec.decoding import SkipDraft
from selfspec.study.layerskip_knapsack import keeping_rows, shape


@pytest.mark.parametrize(
    "attention, mlp, prefix, after",
    [
        ({3, 4, 5}, {3, 4, 5}, 3, 0),
        ({2, 3, 4, 5}, {3, 4, 5}, 2, 1),  # half of the next layer too
        ({1, 2}, {1, 2}, 1, 6),
        (set(), {0}, 0, 11),
        (set(), set(), 6, 0),
    ],
)
def test_a_prefix_is_whole_layers_and_nothing_after_them(attention, mlp, prefix, after):
    found = shape(SkipDraft(attention, mlp), 6)
    assert (found["kept_prefix"], found["kept_after"]) == (prefix, after)
    left_out = len(attention) + len(mlp)
    assert found["is_prefix"] is (after == 0 and left_out > 0)
    assert found["left_out"] + 2 * prefix + after == found["blocks"] == 12


def test_its_leading_layers_keep_their_rows():
    assert keeping_rows(SkipDraft({3}, {4})) == SkipDraft({3}, {4}, reuse_prefix=True)
