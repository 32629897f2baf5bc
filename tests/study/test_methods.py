"""Which method a label names, whatever experiment it comes from."""

import pytest

from selfspec.study import methods


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("skip 30 %", "skip, one cache"),
        ("skip attention of 12 to 17", "skip, one cache"),
        ("skip 30 % (middle)", "skip, one cache"),
        ("skip 30 % (greedy)", "skip, chosen"),
        ("skip 30 % (hidden-states), after 1024 tokens", "skip, chosen"),
        ("shortlist and skip 30 % (greedy)", "shortlist"),
        ("knapsack, 12 blocks left out", "skip, chosen"),
        ("exit 15", "exit"),
        ("exit 15, nothing kept", "exit"),
        ("dynamic, exits 1 to 4, confidence 0.8", "exit, dynamic"),
        ("shortlist 16384 on skip 10 %", "shortlist"),
        ("lookup", "lookup"),
        ("small model", "small model"),
    ],
)
def test_a_label_names_its_method(label, expected):
    assert methods.name(label) == expected


def test_an_exit_of_a_taught_model_is_another_method():
    assert methods.name("exit 3", taught=True) == "exit, taught"


def test_methods_come_in_the_order_of_the_book():
    assert methods.order(["telepathy", "lookup", "exit", "lookup"]) == [
        "exit",
        "lookup",
        "telepathy",
    ]
