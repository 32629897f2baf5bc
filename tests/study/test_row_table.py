"""Rows of any experiment come back from disk as they were written."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfspec.study.results import ResultsError, Run
from selfspec.study.row_table import load_rows, read_rounds, typed, write_rounds


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), max_size=30))
def test_rounds_survive_their_cell(rounds):
    assert read_rounds(write_rounds(rounds)) == tuple(rounds)


def test_numbers_are_numbers_and_a_rules_length_stays_a_word():
    rows = pd.DataFrame(
        {
            "draft": ["skip 10 %", "lookup"],
            "num_draft_tokens": ["auto", "2"],
            "speedup": ["0.5", ""],
            "order": ["a > b", "b > a"],
        }
    )
    found = typed(rows)
    assert list(found["num_draft_tokens"]) == ["auto", 2]
    assert found["speedup"].iloc[0] == 0.5 and pd.isna(found["speedup"].iloc[1])
    assert list(found["draft"]) == ["skip 10 %", "lookup"]
    fixed = typed(rows.assign(num_draft_tokens=["2", "3"]))
    assert pd.api.types.is_integer_dtype(fixed["num_draft_tokens"])


def test_a_length_that_is_none_is_refused_with_its_file(tmp_path):
    with Run.open(
        tmp_path, "auto", ("num_draft_tokens",), "f", total=1, provenance={}
    ) as run:
        run.append({"num_draft_tokens": "many"})
    with pytest.raises(ResultsError, match="auto.csv.*many.*Way out"):
        load_rows(tmp_path / "auto.csv", run.id)


def test_rows_of_another_run_are_not_read(tmp_path):
    for fingerprint in ("one", "two"):
        with Run.open(
            tmp_path, "auto", ("speedup",), fingerprint, total=1, provenance={}
        ) as run:
            run.append({"speedup": 1.0})
            run.finish({})
    assert len(load_rows(tmp_path / "auto.csv", run.id)) == 1
    assert load_rows(tmp_path / "auto.csv", "nobody").empty
