"""The {result} role: one number from results, or a reason."""

import json

import pytest

from selfspec.study import values_role


@pytest.fixture
def values(tmp_path):
    path = tmp_path / "values.json"
    path.write_text(json.dumps({"s": 0.7512, "n": 3, "missing": None, "name": "M3"}))
    return path


@pytest.mark.parametrize(
    ("key", "spec", "shown"),
    [
        ("s", ".2f", "0.75"),
        ("n", "", "3"),
        ("name", "", "M3"),
        ("missing", ".2f", "not yet measured"),
    ],
)
def test_value_is_shown_in_its_format(values, key, spec, shown):
    assert values_role.lookup(values, key, spec) == shown


@pytest.mark.parametrize(
    ("key", "spec", "said"),
    [
        ("nothing", "", "no value named 'nothing'"),
        ("name", ".2f", "'.2f' does not fit name = 'M3'"),
        ("s", "q", "'q' does not fit"),
    ],
)
def test_what_cannot_be_shown_is_named(values, key, spec, said):
    with pytest.raises(ValueError, match=said):
        values_role.lookup(values, key, spec)


def test_missing_file_names_the_way_out(tmp_path):
    with pytest.raises(ValueError, match="run `selfspec book`"):
        values_role.lookup(tmp_path / "none.json", "s")
