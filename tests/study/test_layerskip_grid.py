"""The grid of exits: derived from any depth, everything beside it there once."""

import pytest

from selfspec.decoding import DynamicExitDraft, ExitDraft, LookupDraft
from selfspec.study import layerskip_grid
from selfspec.study.errors import StudyError
from selfspec.study.layerskip_grid import SIZES, exit_layers, make_grid, resolve_size


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_layers", [2, 3, 6, 12, 16, 30, 80])
def test_every_depth_has_exits_within_it(num_layers, size):
    size = SIZES[size]
    layers = exit_layers(num_layers, size)
    assert layers and all(1 <= layer < num_layers for layer in layers)
    assert layerskip_grid.main_exit(num_layers, size) in layers
    grid = make_grid(num_layers, size)
    for case in grid.cases:
        if isinstance(case.draft, ExitDraft):
            assert 1 <= case.draft.exit_layer < num_layers
        if isinstance(case.draft, DynamicExitDraft):
            assert case.draft.exits[-1] < num_layers


def test_the_paper_size_has_every_exit_by_every_length():
    size = SIZES["paper"]
    assert exit_layers(24, size) == (2, 3, 4, 5, 6, 8, 12)
    grid = make_grid(24, size, {"small model": LookupDraft()})
    timed = {
        (case.label, case.num_draft_tokens)
        for case in grid.cases
        if not case.temperature
    }
    for layer in exit_layers(24, size):
        for length in size.lengths:
            assert (f"exit {layer}", length) in timed
    for length in size.beside:  # both halves of what keeping rows is worth
        assert ("exit 6, nothing kept", length) in timed
        assert ("exit 6", length) in timed
        assert ("small model", length) in timed
    assert ("exit 6", "auto") in timed
    sampled = [c for c in grid.cases if c.temperature]
    assert {c.temperature for c in sampled} == {0.6}
    assert [(c.label, c.num_draft_tokens) for c in sampled] == [
        (f"exit {layer}", k) for layer in exit_layers(24, size) for k in size.sampled
    ]
    kinds = {c.draft for c in grid.cases if isinstance(c.draft, DynamicExitDraft)}
    assert {bool(d.confidence) for d in kinds} == {True, False}


def test_rows_kept_and_nothing_kept_share_a_baseline():
    grid = make_grid(12, SIZES["default"])
    [group] = [g for g in grid.groups if any("nothing" in c.label for c in g)]
    kept = {c.num_draft_tokens for c in group if c.label == "exit 3"}
    again = {c.num_draft_tokens for c in group if c.label == "exit 3, nothing kept"}
    assert again and again <= kept


def test_the_baseline_is_the_faster_loop_and_ends_can_be_ignored():
    assert make_grid(12, SIZES["smoke"]).faster_baseline
    assert not make_grid(12, SIZES["smoke"], stop_at_eos=False).stop_at_eos


def test_overrides_and_refusals():
    assert resolve_size("smoke", num_prompts=3, repeats=None).num_prompts == 3
    with pytest.raises(StudyError, match="size must be one of smoke, default, paper"):
        resolve_size("huge")
    with pytest.raises(StudyError, match="one layer has no exit.*Way out"):
        exit_layers(1, SIZES["smoke"])
