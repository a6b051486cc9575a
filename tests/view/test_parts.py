"""The parts that compute, with numbers."""

import math

import pytest
from fake_run import episode

from sparring.core.formatting import duration, esc, humanise, likelihood, number, signed
from sparring.core.types import Episode, Task
from sparring.evaluation.significance import ends_differ, means_differ, shares_differ
from sparring.view.curves import key_charts, layout, thin
from sparring.view.markup import opponent_name
from sparring.view.metrics import chart_spec, charts
from sparring.view.part import table
from sparring.view.replays import ending, frames, pick
from sparring.view.results import headlines, not_lost, shares, ticks


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
    assert likelihood(0.0) == "probability 100 %"
    assert likelihood(-6.9) == "probability 0.1 %"
    assert likelihood(-900.0) == "logprob −900"  # whose share no float holds
    assert esc("<b a=\"'&") == "&lt;b a=&quot;&#x27;&amp;"


def test_ticks_are_round_and_told_apart() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(-0.03, 0.21) == [0, 0.05, 0.1, 0.15, 0.2]
    assert ticks(5, 5) == [5]


def test_a_thinned_curve_keeps_its_mean() -> None:
    points = [(i, float(i % 5)) for i in range(1000)]
    short = thin(points, 100)
    assert len(short) == 100
    assert sum(y for _, y in short) / 100 == pytest.approx(2)


def test_the_charts_that_say_most_come_first_and_constants_do_not() -> None:
    moving = [(i, i / 100) for i in range(50)]
    keys = ("time/total_s", "learn/entropy", "rate/invalid", "eval/score", "learn/lr")
    data = {key: moving for key in keys} | {
        "eval/kuhn/exploitability": [(i, 1.0) for i in range(9)]
    }
    sections = layout(data)
    first = [sections[at]["charts"][n]["curves"][0]["key"] for at, n in key_charts(sections)]
    assert first == ["eval/score", "rate/invalid", "learn/entropy", "learn/lr", "time/total_s"]


def test_seats_keep_their_colour_on_every_chart() -> None:
    both = {
        f"{kind}/kuhn/{seat}": [(0, 1.0)]
        for kind in ("baseline", "reward")
        for seat in ("second", "first")
    }
    for chart in layout(both)[0]["charts"]:
        assert [(c["label"], c["colour"]) for c in chart["curves"]] == [
            ("First", "seat-0"), ("Second", "seat-1")]  # fmt: skip


def test_a_change_is_called_better_only_beyond_chance() -> None:
    assert shares_differ(0.4, 0.6, (500, 500)) and not shares_differ(0.4, 0.6, (20, 20))
    assert means_differ(1.5, 0.0, 200, span=2.5) and not means_differ(1.5, 1.3, 200, span=2.5)
    noise = [(i, float(i % 3)) for i in range(60)]
    assert not ends_differ(noise) and ends_differ([(i, y + i) for i, y in noise])
    few = {"games": 4, "wins": 2, "draws": 0, "losses": 2}
    more = {"games": 4, "wins": 3, "draws": 0, "losses": 1}
    ((head,), _) = headlines({"kuhn": {"random": more}, "untrained": {"kuhn": {"random": few}}}, {})
    assert (head.before, head.after, head.better) == (0.5, 0.75, None)


@pytest.mark.parametrize(
    ("key", "before", "after", "better"),
    [
        ("exploitability", 0.4, 0.1, True),  # read off every reply's probability
        ("exploitability", 1.50001, 1.49999, None),  # nobody sees the change
        ("regret", 1.5, 0.75, None),  # over the moves of eight games
    ],
)
def test_only_what_is_exact_needs_no_games(
    key: str, before: float, after: float, better: bool | None
) -> None:
    def result(value: float) -> dict[str, object]:
        games = {"games": 8, "wins": 0, "draws": 0, "losses": 8, "invalid": 8}
        return {"random": games, "exact": {key: value}, "method": "exact, from probabilities"}

    heads, _ = headlines({"kuhn": result(after), "untrained": {"kuhn": result(before)}}, {})
    assert next(head.better for head in heads if head.after == after) is better


def test_a_table_puts_numbers_and_their_heads_to_the_right() -> None:
    made = table(("Stage", "Passed", "What"), [("1", "3 of 4", "a"), ("2", "–", "b")])
    assert made.count('<th class="num">Passed</th>') == 1 and '<td class="num">3 of 4</td>' in made
    assert "<th>What</th>" in made and "<td>b</td>" in made and "<th>1</th>" in made


def test_every_key_has_a_place_and_crowded_charts_are_split() -> None:
    keys = [f"verdicts/kind_{n}" for n in range(14)] + ["strange", "a/b/c", "learn/bob/loss"]
    found = charts(keys)
    drawn = [key for group in found.values() for chart in group for key, _ in chart.curves]
    assert sorted(drawn) == sorted(keys)
    assert [len(chart.curves) for chart in found["Verdicts"]] == [6, 6, 2]
    assert chart_spec("learn/bob/loss").label == "bob"
    assert chart_spec("optim/learning_rate").percent is False
    assert chart_spec("judge_wait_s").section == "Time and speed"


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
    assert (one.before, one.after, one.better) == (0.9, 0.6, None)  # two points show no trend
    assert (two.before, two.after, two.better) == (0.4, 0.05, None)
    data["eval/kuhn/exploitability"] = [(i, 0.4 - i / 100) for i in range(30)]
    assert headlines({}, data)[0][1].better is True


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
