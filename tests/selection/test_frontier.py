"""Looking up a frontier."""

from selfspec.selection.frontier import Candidate, Frontier, dearest_first

POINTS = [("a", 1.0, 0.9), ("b", 0.8, 0.95), ("c", 0.5, 0.4), ("d", 0.5, 0.6)]


def frontier():
    candidates = dearest_first(Candidate(n, c, 0, a) for n, c, a in POINTS)
    return Frontier("made", candidates, 0.0, 4)


def test_the_best_under_a_cost():
    found = frontier()
    assert found.best_under(0.8).draft == "b"
    assert found.best_under(0.79).draft == "d"
    assert found.best_under(0.1) is None


def test_of_equals_the_cheaper():
    made = [Candidate("dear", 0.9, 0, 0.5), Candidate("cheap", 0.2, 0, 0.5)]
    assert Frontier("made", tuple(made), 0.0, 2).best_under(1.0).draft == "cheap"


def test_pareto_drops_what_is_dearer_and_no_better():
    assert [c.draft for c in frontier().pareto()] == ["b", "d"]


def test_a_draft_that_comes_twice_is_there_once():
    assert len(dearest_first([Candidate("a", 1.0, 0, 0.9)] * 2)) == 1
