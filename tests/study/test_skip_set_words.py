"""Skip sets in words."""

import pytest

from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.study.skip_set_words import in_words, spans


def test_sets_in_words():
    assert in_words(SkipDraft()) == "nothing"
    assert in_words(SkipDraft({1, 2, 3}, {3, 7})) == "layer 3; attention 1-2; MLP 7"
    assert in_words(ShortlistDraft(SkipDraft(), range(5))) == "shortlist 5"
    assert in_words(ShortlistDraft(SkipDraft(mlp={4}), (1,))) == "MLP 4; shortlist 1"
    assert in_words(ExitDraft(8)) == "layers from 8"
    with pytest.raises(TypeError):
        in_words(LookupDraft())


def test_spans():
    assert spans([]) == ""
    assert spans({5, 1, 2, 3}) == "1-3, 5"
