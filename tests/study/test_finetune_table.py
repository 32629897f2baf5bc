"""A taught model read back: before beside after, in words, and refused when broken."""

import json

import pandas as pd
import pytest

from selfspec.study import finetune_table
from selfspec.study.results import ResultsError


def rows(layers=4):
    found = []
    for when, gain in (("before", 0), ("after", 1)):
        for layer in range(1, layers + 1):
            draft = layer in (1, 2)
            found.append(
                {
                    "when": when,
                    "step": 20 * gain,
                    "exit_layer": layer,
                    "texts": 8,
                    "exact": 0,
                    "positions": 100,
                    "surprise": 100 * (9 - layer - gain * (layer < 3)),
                    "agreed": 20 * layer + 5 * gain,
                    "right": 10,
                    "num_draft_tokens": 4 if draft else "",
                    "rounds": 20 if draft else "",
                    "drafted": 80 if draft else "",
                    "accepted": 8 + 32 * gain if draft else "",
                    "tokens": 40 if draft else "",
                }
            )
    return found


FACTS = {
    "machine": {"chip": "Testron 9000", "device": "cpu"},
    "configuration": {"source": {"name": "a_model"}, "method": "lora", "data": "task"},
    "settings": {"steps": 20, "batch": 4},
    "texts": {"train": 100, "scored": 8, "counted": 5},
    "training": {"seconds": 300.0},
}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "results" / "testron-cpu" / finetune_table.FOLDER
    folder.mkdir(parents=True)
    pd.DataFrame(rows()).to_csv(folder / "a-model.csv", index=False)
    (folder / "a-model.json").write_text(json.dumps(FACTS))
    return tmp_path


def test_before_stands_beside_after():
    table = finetune_table.compared(pd.DataFrame(rows())).set_index("exit_layer")
    assert table.loc[2, ["loss_before", "loss_after"]].tolist() == [7, 6]
    assert table.loc[3, ["loss_before", "loss_after"]].tolist() == [6, 6]
    assert table.loc[1, "acceptance_before"] == pytest.approx(0.1)
    assert table.loc[1, "acceptance_after"] == pytest.approx(0.5)
    assert table.loc[4, "agreement_after"] == pytest.approx(0.85)


def test_a_terminal_is_told_of_the_counted_exits_and_the_last():
    told = finetune_table.lines(finetune_table.compared(pd.DataFrame(rows())))
    assert told == [
        "exit 1 of 4: loss 8.000 -> 7.000 nats, accepted 10% -> 50% (of 4 a round)",
        "exit 2 of 4: loss 7.000 -> 6.000 nats, accepted 10% -> 50% (of 4 a round)",
        "exit 4 of 4: loss 5.000 -> 5.000 nats",
    ]


def test_the_page_says_what_was_done_and_where_the_loss_fell(root):
    text = finetune_table.fragment(root)
    assert "a\\_model on Testron 9000 (CPU): LoRA, 20 steps of 4 texts" in text
    assert "5 minutes" in text and "fell at 2 of 3 early exits" in text
    assert "| 1 of 4 | 8.00 | 7.00 | 20% | 25% | 10% | 50% |" in text
    assert "| 4 of 4 | 5.00 | 5.00 | 80% | 85% | - | - |" in text
    assert "<../results/testron-cpu/layerskip-finetune/a-model.csv>" in text


def test_nothing_taught_is_said_plainly(tmp_path):
    assert finetune_table.fragment(tmp_path) == finetune_table.NONE


@pytest.mark.parametrize("name", ["a-model.json", "a-model.csv"])
def test_a_broken_file_is_named(root, name):
    (path,) = root.rglob(name)
    path.write_text("{")
    with pytest.raises(ResultsError, match="a-model.csv"):
        finetune_table.load(root)
