"""Items cost what the profile says, in whole microseconds; drafts are made of them."""

import made
import pytest

from selfspec.decoding.drafts import ShortlistDraft, SkipDraft
from selfspec.selection.items import draft_of, items_of, saved_microseconds

LISTS = {4: (0, 1, 2, 3)}


def test_an_item_saves_its_block_and_half_of_what_a_layer_costs():
    found = {i.name: i.microseconds for i in items_of(made.profile(2), 256)}
    # 0.5 ms + 256 * 0.4 us, and half of 0.05 ms
    assert found["attention 0"] == round(500 + 256 * 0.4 + 25)
    assert found["mlp 1"] == 1025


def test_attention_is_dearer_after_more_context_and_an_mlp_is_not():
    short, long = (
        {i.name: i.microseconds for i in items_of(made.profile(1), n)}
        for n in (128, 4096)
    )
    assert long["attention 0"] > short["attention 0"]
    assert long["mlp 0"] == short["mlp 0"]


def test_a_shortlist_saves_its_share_of_the_head():
    [*_, item] = items_of(made.profile(1), 256, shortlists=LISTS)
    assert item.name == "shortlist 4"
    assert item.microseconds == round(6000 * (1 - 4 / 258))


def test_whole_layers_save_what_the_profile_saves():
    profile = made.profile(4)
    items = items_of(profile, 256)
    draft = SkipDraft({1, 2}, {1, 2})
    without = profile.cost_ratio(SkipDraft(), 256) - profile.cost_ratio(draft, 256)
    wait = 2 * 0.03e-3 / 3  # of the first step, which no item knows
    assert saved_microseconds(items, draft) * 1e-6 == pytest.approx(
        without * profile.step(256) - wait, abs=3e-6
    )


def test_protected_layers_are_no_items():
    assert {i.index for i in items_of(made.profile(4), 256, protected={0, 3})} == {1, 2}


def test_drafts_are_made_of_items_and_found_again():
    items = items_of(made.profile(3), 256, shortlists=LISTS)
    draft = draft_of([items[0], items[3], items[-1]])
    assert draft == ShortlistDraft(SkipDraft({0}, {1}), LISTS[4])
    saved = sum(items[i].microseconds for i in (0, 3, -1))
    assert saved_microseconds(items, draft) == saved


def test_nonsense_is_refused():
    items = items_of(made.profile(2), 256, protected={1})
    with pytest.raises(ValueError, match="not among the items: mlp 1"):
        saved_microseconds(items, SkipDraft(mlp={1}))
    with pytest.raises(ValueError, match=r"protected layers \[7\]"):
        items_of(made.profile(2), 256, protected={7})
    with pytest.raises(ValueError, match="shortlist 4 has 3"):
        items_of(made.profile(2), 256, shortlists={4: (0, 1, 2)})
    two = items_of(made.profile(1), 256, shortlists={1: (0,), 2: (0, 1)})[-2:]
    with pytest.raises(ValueError, match="one shortlist at most"):
        draft_of(two)
