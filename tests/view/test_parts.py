"""The parts that compute, with numbers."""

import math

import pytest
from fake_run import episode

from sparring.core.formatting import duration, esc, humanise, number, signed
from sparring.core.types import Episode, Task
from sparring.view.curves import smooth, thin, tick_names, ticks, y_range
from sparring.view.markup import opponent_name
from sparring.view.metrics import charts, place
from sparring.view.replays import ending, frames, pick
from sparring.view.results import headlines, not_lost, shares


@pytest.mark.parametrize(
    ("value", "percent", "said"),
    [
        (0.974, True, "97.4 %"),
        (0.58, True, "58 %"),
        (0, False, "0"),
        (-0.05555, False, "−0.0556"),
        (0.5, False, "0.5"),
        (15360, False, "15,360"),
        (1234.5, False, "1,234"),
        (3e-4, False, "3e−4"),
        (100.0, False, "100"),
        (math.nan, False, "–"),
    ],
)
def test_numbers_read_as_a_person_writes_them(value: float, percent: bool, said: str) -> None:
    assert number(value, percent) == said


def test_words() -> None:
    assert duration(3.21) == "3.2 s"
    assert duration(252) == "4 min 12 s"
    assert duration(7200) == "2 h"
    assert humanise("avg_batch_reward") == "Avg batch reward"
    assert opponent_name("main@040") == "its self of iteration 40"
    assert signed(2.0) == "+2"
    assert esc("<b a=\"'&") == "&lt;b a=&quot;&#x27;&amp;"


def test_ticks_are_round_and_told_apart() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(-0.03, 0.21) == [0, 0.05, 0.1, 0.15, 0.2]
    assert ticks(5, 5) == [5]
    assert tick_names([0, 0.25, 0.5]) == ["0", "0.25", "0.50"]
    assert tick_names([0, 0.5, 1], percent=True) == ["0 %", "50 %", "100 %"]
    assert tick_names([2.4e-7, 2.45e-7]) == ["2.40e−7", "2.45e−7"]
    assert tick_names([0, 1000, 2000]) == ["0", "1,000", "2,000"]


def test_axes_hold_their_values() -> None:
    assert y_range([0.2, 0.9], percent=True, whole=True) == (0, 1)
    assert y_range([0, 0], percent=False, whole=False) == (0, 1)
    low, high = y_range([9, 10], percent=False, whole=False)
    assert 8 < low < 9 and 10 < high < 11
    low, high = y_range([-2, -2], percent=False, whole=False)
    assert low < -2 and high >= 0


def test_a_thinned_and_a_smoothed_curve_keep_its_mean_and_ends() -> None:
    points = [(i, float(i % 5)) for i in range(1000)]
    short = thin(points, 100)
    assert len(short) == 100
    assert sum(y for _, y in short) / 100 == pytest.approx(2)
    even = smooth([(i, 2.0 * i) for i in range(90)])
    assert even == [(i, pytest.approx(2.0 * i)) for i in range(90)]


def test_every_key_has_a_place_and_crowded_charts_are_split() -> None:
    keys = [f"verdicts/kind_{n}" for n in range(14)] + ["strange", "a/b/c", "learn/bob/loss"]
    found = charts(keys)
    drawn = [key for group in found.values() for chart in group for key, _ in chart.curves]
    assert sorted(drawn) == sorted(keys)
    assert [len(chart.curves) for chart in found["Verdicts"]] == [6, 6, 2]
    assert place("learn/bob/loss").label == "bob"
    assert place("optim/learning_rate").percent is False
    assert place("judge_wait_s").section == "Time and speed"


def test_shares_are_read_from_counts_and_from_fractions() -> None:
    counts = {"games": 4, "wins": 1, "draws": 2, "losses": 1, "invalid": 0}
    fractions = {"games": 4, "wins": 0.25, "draws": 0.5, "losses": 0.25, "invalid": 0.0}
    assert shares(counts) == shares(fractions)
    assert not_lost(shares(counts)) == 0.75
    assert shares({"games": 1, "wins": 1, "draws": 0, "losses": 0})["wins"] == 1
    assert shares({"games": 0, "wins": 0, "draws": 0, "losses": 0}) == {}
    assert shares("nonsense") == {}


def test_headlines_come_from_the_curves_where_there_is_no_table() -> None:
    data = {
        "eval/kuhn/exploitability": [(0, 0.4), (10, 0.05)],
        "eval/tictactoe/random/not_lost": [(0, 0.9), (10, 0.6)],
        "learn/loss": [(0, 1.0)],
    }
    (one, two), compared = headlines({}, data)
    assert compared == "From the first measurement to the last."
    assert (one.before, one.after, one.better) == (0.9, 0.6, False)
    assert (two.before, two.after, two.better) == (0.4, 0.05, True)


def test_tictactoe_remarks_are_exact() -> None:
    # X takes a corner, O an edge, which loses; X then throws the win away.
    game = Episode(
        "e", "tictactoe", Task("0", data={"opening": [0]}), 0, seating={"x": "a", "o": "b"}
    )
    game.facts = {"moves": [0, 1, 2], "end": "invalid", "invalid": "o", "reason": "no <cell>"}
    game.turns = episode("tictactoe", ("main", "main"), 1).turns[:3]
    drawn = frames(game)
    assert [frame.label for frame in drawn] == ["Start", "1", "2", "3"]
    assert drawn[1].note == "Gives away a draw: now a loss"
    assert drawn[2].note == "Gives away a win: now a draw"
    assert drawn[3].note == "Forfeits: no <cell>"
    assert "pale" in drawn[0].scene
    assert ending(game) == ("O forfeits: no <cell>", "foul")


def test_a_played_negotiation_is_replayed_to_the_holdings_on_record() -> None:
    for seed in range(20):
        game = episode("negotiation", ("random", "main"), seed)
        drawn = frames(game)
        assert len(drawn) == len(game.turns) + 1
        if game.facts["trades"]:
            gain = game.facts["gains"]["first"]
            assert f'colspan="2">{signed(gain) if gain else "0"}</td>' in drawn[-1].scene
            break
    else:
        pytest.fail("nobody traded in twenty games")


def test_a_kuhn_hand_ends_with_its_pot() -> None:
    game = episode("kuhn", ("random", "main"), 3)
    drawn = frames(game)
    assert len(drawn) == len(game.turns) + 1
    assert f"Pot {2 + game.facts['history'].count('b')}" in drawn[-1].scene
    assert "takes the pot" in drawn[-1].note


def test_a_void_or_odd_game_is_not_drawn() -> None:
    game = episode("kuhn", ("random", "main"), 3)
    game.facts = {"cards": "ZZ", "history": 4}
    assert frames(game) == []
    game.void = "the judge broke"
    assert frames(game) == []
    assert ending(game) == ("Void: the judge broke", "void")


def test_the_games_picked_differ() -> None:
    games = [episode("tictactoe", ("main", "random"), seed) for seed in range(12)]
    games += [episode("kuhn", ("main", "random"), seed) for seed in range(12)]
    chosen = pick(games, 4)
    assert {game.game for game in chosen} == {"tictactoe", "kuhn"}
    assert len({(g.game, g.facts["end"], g.facts.get("winner")) for g in chosen}) == len(chosen)
    assert pick([], 4) == []
