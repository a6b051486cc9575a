import pytest

from sparring.evaluate.ratings import ladder


def test_the_stronger_stand_higher_and_every_game_counts():
    results = []
    for _ in range(15):
        results += [("new", "old", 1), ("old", "older", 1), ("older", "new", 0)]
    rungs = ladder(results)
    assert [rung.name for rung in rungs] == ["new", "old", "older"]
    assert [rung.games for rung in rungs] == [30, 30, 30]
    assert rungs[0].ordinal == pytest.approx(rungs[0].mu - 3 * rungs[0].sigma)
    assert all(rung.sigma < 25 / 3 for rung in rungs)


def test_who_is_named_first_does_not_matter():
    forth = ladder([("a", "b", 1), ("a", "b", 0.5)])
    back = ladder([("b", "a", 0), ("b", "a", 0.5)])
    assert [tuple(rung) for rung in forth] == [tuple(rung) for rung in back]


def test_draws_keep_equals_equal():
    one, two = ladder([("b", "a", 0.5)] * 10)
    assert (one.name, two.name) == ("a", "b") and one.mu == pytest.approx(two.mu) == 25


def test_odd_results():
    assert ladder([]) == []
    assert ladder([("a", "a", 1)]) == []
    with pytest.raises(ValueError, match="score"):
        ladder([("a", "b", 2)])
