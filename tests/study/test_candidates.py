"""What a verdict tries: the best of every kind that fits, the promising ones timed."""

import pytest

from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.selection import Scorer, make_windows
from selfspec.study import candidates
from selfspec.study.candidates import Offer, Setting, offers, promising
from tests.costs import synthetic


@pytest.fixture(scope="module")
def setting(tiny_loaded):
    windows = make_windows(tiny_loaded.model, [[1, 2, 3, 4, 5, 6]], num_tokens=12)
    scorer = Scorer(tiny_loaded.model, windows)
    return Setting(tiny_loaded, synthetic.profile(), scorer)


def test_every_kind_offers_its_best(setting):
    found = {type(offer.draft): offer for offer in offers(setting)}
    assert set(found) == {LookupDraft, ShortlistDraft, SkipDraft, ExitDraft}
    assert found[LookupDraft].predicted != found[LookupDraft].predicted  # NaN
    others = [offer for kind, offer in found.items() if kind is not LookupDraft]
    assert all(0 < offer.predicted < 10 for offer in others)
    assert all(1 <= o.num_draft_tokens <= candidates.LONGEST for o in found.values())
    assert found[SkipDraft].draft != SkipDraft()


def test_the_code_of_an_offer_makes_its_draft(setting):
    import selfspec

    for offer in offers(setting):
        tokens = getattr(offer.draft, "tokens", ())
        made = eval(offer.code, {"selfspec": selfspec, "tokens": tokens})
        assert made == offer.draft, offer.label


def test_an_exit_is_chosen_by_what_it_is_expected_to_be_worth(setting):
    best = candidates.early_exit(setting)
    worths = {
        depth: candidates._worth(ExitDraft(depth), setting).speedup
        for depth in range(1, 6)
    }
    assert best.predicted == max(worths.values())
    assert worths[best.draft.exit_layer] == best.predicted


def offer(label, predicted):
    return Offer(label, None, 2, predicted, "")


def test_what_is_expected_to_lose_is_not_timed():
    nan = float("nan")
    offered = [
        offer("free", nan),
        *(offer(str(s), s) for s in (0.5, 1.2, 0.95, 1.1, 1)),
    ]
    assert [o.label for o in promising(offered)] == ["free", "1.2", "1.1"]
    assert [o.label for o in promising([offer("bad", 0.89), offer("free", nan)])] == [
        "free"
    ]
