import random

import pytest

from sparring.core.types import Task
from sparring.games.negotiation import (
    FIVE,
    GOODS,
    SimpleNegotiation,
    Trade,
    covers,
    exchange,
    menu,
    parse,
    worth,
)

TWO = ("Wood", "Gold")


def task(first=(10, 10), second=(10, 10), first_values=(10, 30), second_values=(10, 30)):
    def pair(counts):
        return dict(zip(TWO, counts, strict=True))

    holdings = {"first": pair(first), "second": pair(second)}
    values = {"first": pair(first_values), "second": pair(second_values)}
    return Task(id="t", game="negotiation", data={"holdings": holdings, "values": values})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Accept", "accept"),
        ("[accept]", "accept"),
        (r"Good for me. \boxed{Accept}", "accept"),
        (r"\boxed{Deny}", "deny"),
        ("Offer: 2 Wood, 1 Ore -> 3 Wheat", Trade({"Wood": 2, "Ore": 1}, {"Wheat": 3})),
        ("[Offer: 2 wood and 1 ORE -> 3 wheat]", Trade({"Wood": 2, "Ore": 1}, {"Wheat": 3})),
        (r"\boxed{Offer: 1 Ore->1 Ore}", Trade({"Ore": 1}, {"Ore": 1})),
        ("Offer: 1 Wood, 2 Wood -> 1 Ore", Trade({"Wood": 3}, {"Ore": 1})),
        ("y", "accept"),
        ("n", "deny"),
        ("3", None),  # the menu has two goods only
        ("Offer: 2 Wood", None),
        ("Offer: 0 Wood -> 1 Ore", None),
        ("Offer: -1 Wood -> 1 Ore", None),
        ("Offer: 1.5 Wood -> 1 Ore", None),
        ("Offer: 1 Gold -> 1 Ore", None),  # no such good here
        ("Offer: 1 Wood -> 1 Ore -> 1 Wheat", None),
        ("Offer: 1 Wood ->", None),
        ("Offer: Wood -> Ore", None),
        ("I accept", None),
        (r"Accept \boxed{maybe}", None),
        ("", None),
    ],
)
def test_parsing(text, action):
    assert parse(text, FIVE) == action


def test_the_menu_of_the_terse_form():
    offers = menu(("Gold", "Wood"))
    assert offers == menu(TWO) and len(offers) == 10
    assert offers["3"] == Trade({"Wood": 3}, {"Gold": 1})
    assert offers["c"] == Trade({"Gold": 1}, {"Wood": 3})
    assert parse("3", TWO) == offers["3"] and parse("6", TWO) is None


def test_a_trade_moves_goods_and_loses_none():
    one, two = {"Wood": 5, "Gold": 1}, {"Wood": 2, "Gold": 4}
    after = exchange(one, two, Trade({"Wood": 3}, {"Gold": 2}))
    assert after == ({"Wood": 2, "Gold": 3}, {"Wood": 5, "Gold": 2})
    assert one == {"Wood": 5, "Gold": 1}
    assert worth(after[0], {"Wood": 10, "Gold": 30}) == 110
    assert covers(one, {"Wood": 5}) and not covers(one, {"Gold": 2})


def test_the_larger_gain_by_own_values_wins(play):
    game = SimpleNegotiation(goods=TWO, cap=2)
    board = task(first_values=(8, 36), second_values=(12, 24))
    voices = {"first": ["Offer: 3 Wood -> 1 Gold"], "second": [r"Fine. \boxed{Accept}"]}
    outcome, _ = play(game, voices, board)
    # The first gives 24 for 36, the second 24 for 36: both gain 12.
    assert outcome.facts["gains"] == {"first": 12, "second": 12}
    assert outcome.facts["end"] == "draw" and outcome.rewards == {"first": 0, "second": 0}
    voices["first"] = ["Offer: 2 Wood -> 1 Gold"]
    outcome, _ = play(game, voices, board)
    assert outcome.facts["gains"] == {"first": 20, "second": 0}
    assert outcome.rewards == {"first": 1, "second": -1}
    assert outcome.facts["end"] == "deal" and outcome.facts["winner"] == "first"
    assert outcome.facts["holdings"]["first"] == {"Wood": 8, "Gold": 11}
    assert outcome.facts["start"] == board.data["holdings"]
    assert board.data["holdings"]["first"] == {"Wood": 10, "Gold": 10}  # the task is untouched


def test_no_trade_by_the_cap_scores_nothing(play):
    outcome, asked = play(
        SimpleNegotiation(goods=TWO, cap=3),
        {"first": ["Deny", "Offer: 1 Wood -> 1 Gold"], "second": ["Offer: 1 Wood -> 1 Gold"]},
        task(),
    )
    assert outcome.rewards == {"first": 0, "second": 0} and outcome.facts["end"] == "cap"
    assert outcome.facts["moves"][1] == {"seat": "second", "action": "Offer: 1 Wood -> 1 Gold"}
    assert len(asked) == 3 and "winner" not in outcome.facts


def test_a_counter_offer_denies_and_several_trades_are_possible(play):
    voices = {
        "first": ["Offer: 9 Wood -> 9 Gold", "Accept", "Accept"],
        "second": ["Offer: 1 Gold -> 4 Wood", "Offer: 1 Wood -> 1 Gold", "Deny"],
    }
    outcome, _ = play(SimpleNegotiation(goods=TWO, cap=6), voices, task())
    assert outcome.facts["trades"] == 2
    assert outcome.facts["holdings"]["first"] == {"Wood": 7, "Gold": 10}
    assert outcome.facts["gains"] == {"first": -30, "second": 30}
    assert outcome.facts["winner"] == "second"


@pytest.mark.parametrize(
    ("voices", "offender", "reason"),
    [
        ({"first": ["hello"]}, "first", "not an action"),
        ({"first": ["Accept"]}, "first", "no offer"),
        ({"first": ["Offer: 11 Wood -> 1 Gold"]}, "first", "more than it holds"),
        ({"first": ["Offer: 1 Wood -> 11 Gold"], "second": ["Accept"]}, "second", "can pay"),
        ({"first": ["Deny"], "second": ["Accept"]}, "second", "no offer"),
        (
            {"first": ["Offer: 1 Wood -> 1 Gold", "Accept"], "second": ["Deny"]},
            "first",  # one cannot accept one's own offer, denied or not
            "no offer",
        ),
    ],
)
def test_broken_rules_forfeit(play, voices, offender, reason):
    outcome, _ = play(SimpleNegotiation(goods=TWO), voices, task())
    other = {"first": "second", "second": "first"}[offender]
    assert outcome.rewards == {offender: -1.5, other: 0.5}
    assert outcome.facts["end"] == "invalid" and outcome.facts["invalid"] == offender
    assert reason in outcome.facts["reason"] and outcome.facts["trades"] == 0


def test_asking_for_more_than_the_other_holds_may_be_offered_and_denied(play):
    voices = {"first": ["Offer: 1 Wood -> 11 Gold"], "second": ["Deny"]}
    outcome, asked = play(SimpleNegotiation(goods=TWO, cap=2), voices, task())
    assert outcome.facts["end"] == "cap"
    assert "Accept" not in asked[1].view.actions  # for it cannot be paid


def test_the_conversation_goes_on_and_keeps_the_other_side_private(play):
    game = SimpleNegotiation(goods=TWO, cap=4)
    board = task(second=(17, 19), second_values=(11, 29))
    voices = {
        "first": ["Offer: 3 Wood -> 1 Gold", "Deny"],
        "second": ["Offer: 1 Gold -> 4 Wood", "Deny"],
    }
    _, asked = play(game, voices, board)
    assert [r.previous is None for r in asked] == [True, True, False, False]
    assert asked[2].previous.text == "Offer: 3 Wood -> 1 Gold"
    shown = [r.messages[-1]["content"] for r in asked]
    assert "offers 3 Wood for your 1 Gold" in shown[1]
    assert "offers 1 Gold for your 4 Wood" in shown[2]
    assert "negotiating" in shown[0] and "negotiating" not in shown[2]
    assert "17 Wood" not in shown[0] + shown[2] and "17 Wood at 11" in shown[1]
    assert asked[2].view.state["values"] == {"Wood": 10, "Gold": 30}
    assert asked[2].view.state["left"] == 2


def test_the_terse_form_is_a_handful_of_characters(play):
    voices = {"first": ["3", "n"], "second": ["c", "n"]}
    outcome, asked = play(SimpleNegotiation(style="terse"), voices, task())
    assert [r.messages[0]["content"] for r in asked] == ["10 30:-", "10 30:3", "c", "n"]
    assert asked[1].view.actions == (*"12345", *"abcde", "y", "n")
    assert {r.sampling.max_tokens for r in asked} == {1}
    assert outcome.facts["end"] == "cap"


def test_no_terse_offer_can_ever_exceed_the_holdings(play):
    def chance(request):
        seen.append(set("12345abcde") <= set(request.view.actions))
        return random.Random(request.seed).choice(request.view.actions)

    seen: list[bool] = []
    for cap in (4, 9):
        game = SimpleNegotiation(style="terse", cap=cap)
        for seed in range(100):
            outcome, _ = play(game, {"first": chance, "second": chance}, seed=seed)
            assert outcome.facts["end"] != "invalid"
    assert all(seen) and len(seen) == 100 * (4 + 9)


def test_tasks_are_drawn_within_a_fifth_of_the_average_values():
    game = SimpleNegotiation()
    seen: dict[str, set[int]] = {good: set() for good in FIVE}
    for seed in range(400):
        data = game.task(seed).data
        for seat in game.seats:
            assert all(5 <= count <= 25 for count in data["holdings"][seat].values())
            for good, worth_ in data["values"][seat].items():
                seen[good].add(worth_)
    ranges = {good: (min(values), max(values)) for good, values in seen.items()}
    assert ranges == {
        "Wheat": (5, 6), "Wood": (8, 12), "Sheep": (12, 18), "Brick": (20, 30), "Ore": (32, 40),
    }  # fmt: skip


@pytest.mark.parametrize("style", ["reason", "short", "terse"])
def test_the_scripted_player_beats_a_random_one_and_trades_with_itself(play, style):
    game = SimpleNegotiation(style=style)

    def scripted(request):
        return game.scripted(request.view, request.seed)

    def chance(request):
        return random.Random(request.seed).choice(request.view.actions)

    score, deals = 0.0, 0
    for seed in range(40):
        seats = ("first", "second") if seed % 2 else ("second", "first")
        outcome, _ = play(game, {seats[0]: scripted, seats[1]: chance}, seed=seed)
        assert outcome.facts["end"] != "invalid"
        score += outcome.rewards[seats[0]]
        outcome, _ = play(game, {"first": scripted, "second": scripted}, seed=seed)
        assert min(outcome.facts["gains"].values()) >= 0  # neither ever trades at a loss
        deals += outcome.facts["trades"] > 0
    assert score > 8 and deals > 4


def test_there_is_no_perfect_player_and_goods_are_checked():
    game = SimpleNegotiation()
    with pytest.raises(ValueError, match="perfect player"):
        game.perfect(None, 0)
    for goods in (("Wood",), ("Wood", "Wood"), ("Wood", "Silk")):
        with pytest.raises(ValueError, match="good"):
            SimpleNegotiation(goods=goods)
    with pytest.raises(ValueError, match="exactly two"):
        SimpleNegotiation(style="terse", goods=("Wood", "Ore", "Gold"))
    assert set(FIVE) < set(GOODS)
