import itertools
import math

import pytest

from sparring.core.types import Episode, Task
from sparring.games.negotiation import mean_surplus, surplus
from sparring.games.tictactoe import mean_regret, regret, regrets


def episode(moves, seating=None, invalid=None, rewards=None, void=None):
    facts = {"moves": moves} | ({"invalid": invalid} if invalid else {})
    seating = seating or {"x": "me", "o": "other"}
    return Episode(
        "e",
        "tictactoe",
        Task("t"),
        0,
        seating=seating,
        facts=facts,
        rewards=rewards or {},
        void=void,
    )


@pytest.mark.parametrize(
    ("board", "cell", "lost"),
    [
        (".........", 4, 0),
        ("X........", 4, 0),
        ("X........", 1, 1),  # a draw becomes a loss
        ("XX.OO....", 2, 0),  # wins
        ("XX.OO....", 5, 1),  # blocks instead of winning: a win becomes a draw
        ("XX.OO....", 8, 2),  # a win becomes a loss
        ("XX.OO....", None, 2.5),
        (".........", None, 1.5),
        ("XX.O.....", None, 0.5),  # lost anyway
    ],
)
def test_regret_is_the_value_given_away(board, cell, lost):
    assert regret(board, cell) == lost


def test_regret_per_move_counts_only_the_policy_asked_for():
    # A corner is answered beside it, which gives the draw away.
    game = episode([0, 1])
    assert regrets(game) == [0, 1]
    assert regrets(game, "me") == [0] and regrets(game, "other") == [1]
    forfeited = episode([0], invalid="o", rewards={"x": 0.5, "o": -1.5})
    assert regrets(forfeited, "other") == [1.5] and regrets(forfeited, "me") == [0]
    dearer = episode([], invalid="x", rewards={"x": -4.0, "o": 0.5})
    assert regrets(dearer) == [4]
    assert mean_regret([game, forfeited, episode([0, 1], void="crashed")]) == (0 + 1 + 0 + 1.5) / 4
    assert mean_regret([game, forfeited], "other") == 1.25
    assert math.isnan(mean_regret([], "me"))


def trade(one, two, gains, **values):
    return {
        "start": {"first": one, "second": two},
        "values": values,
        "gains": dict(zip(("first", "second"), gains, strict=True)),
    }


def test_surplus_against_every_good_with_whoever_wants_it_more():
    facts = trade(
        {"Wood": 10, "Gold": 5},
        {"Wood": 4, "Gold": 6},
        (20, -2),
        first={"Wood": 8, "Gold": 36},
        second={"Wood": 12, "Gold": 24},
    )
    # 10 Wood go over for 4 more each, 6 Gold come for 12 more each.
    assert surplus(facts) == {"gained": 18, "most": 112, "share": 18 / 112}
    best = 0
    for wood, gold in itertools.product(range(15), range(12)):  # what the first ends up with
        one = (wood - 10) * 8 + (gold - 5) * 36
        two = (10 - wood) * 12 + (5 - gold) * 24
        best = max(best, one + two)
    assert best == 112


def test_surplus_where_nothing_can_be_gained():
    same = {"Wood": 10}
    facts = trade({"Wood": 3}, {"Wood": 4}, (0, 0), first=same, second=same)
    assert surplus(facts)["share"] == 1
    done = Episode("e", "negotiation", Task("t"), 0, facts=facts)
    assert mean_surplus([done, Episode("v", "negotiation", Task("t"), 0, void="broke")]) == 1
    assert math.isnan(mean_surplus([]))
