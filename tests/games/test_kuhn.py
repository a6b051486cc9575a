import random

import pytest

from sparring.core.answers import named
from sparring.core.types import Task
from sparring.games.kuhn import INFOSETS, KuhnPoker, nash, payoff


def deal(cards):
    return Task(id=cards, game="kuhn", data={"cards": cards})


@pytest.mark.parametrize(
    ("cards", "history", "chips"),
    [
        ("KJ", "pp", 1),
        ("JQ", "pp", -1),
        ("JK", "bp", 1),  # the second player folds the king
        ("KJ", "pbp", -1),  # the first player folds the king
        ("QJ", "bb", 2),
        ("QK", "bb", -2),
        ("KQ", "pbb", 2),
        ("JQ", "pbb", -2),
        ("JQ", "", None),
        ("JQ", "p", None),
        ("JQ", "b", None),
        ("JQ", "pb", None),
    ],
)
def test_payoffs(cards, history, chips):
    assert payoff(cards, history) == chips


@pytest.mark.parametrize(
    ("text", "history", "action"),
    [
        ("check", "", "p"),
        ("BET", "p", "b"),
        (r"I bluff: \boxed{bet}", "", "b"),
        (r"\boxed{\text{Call}}", "pb", "b"),
        (r"\boxed{bet} … \boxed{check}", "p", "p"),
        ("fold", "b", "p"),
        ("p", "b", None),  # the letters are another style's
        ("fold", "", None),  # nothing to fold to
        ("check", "b", None),
        ("bet", "pb", None),
        ("I bet", "", None),
        ("", "", None),
    ],
)
def test_parsing(text, history, action):
    number = named(text, KuhnPoker(style="short").actions("J" + history))
    assert (None if number is None else "pb"[number]) == action


@pytest.mark.parametrize("style", ["reason", "short", "terse"])
def test_hands_from_deal_to_chips(play, style):
    game = KuhnPoker(style=style)
    terse = style == "terse"
    check, bet, fold, call = "pbpb" if terse else ("check", "bet", "fold", "call")
    outcome, asked = play(game, {"first": [check, call], "second": [bet]}, deal("JK"))
    assert outcome.rewards == {"first": -2, "second": 2}
    assert outcome.facts == {
        "end": "showdown", "winner": "second", "cards": "JK", "history": "pbb",
    }  # fmt: skip
    assert [r.view.state for r in asked] == ["J", "Kp", "Jpb"]
    assert asked[2].view.actions == (fold, call)
    outcome, _ = play(game, {"first": [bet], "second": [fold]}, deal("JK"))
    assert outcome.rewards == {"first": 1, "second": -1} and outcome.facts["end"] == "fold"
    outcome, _ = play(game, {"first": [check], "second": [check]}, deal("KQ"))
    assert outcome.rewards == {"first": 1, "second": -1} and outcome.facts["end"] == "showdown"


def test_no_prompt_shows_the_other_card(play):
    names = {"J": "Jack", "Q": "Queen", "K": "King"}
    for style in ("reason", "short"):
        for infoset in INFOSETS:
            shown = KuhnPoker(style=style).prompt(infoset).split("Your card:")[1]
            assert [n for n in names.values() if n in shown] == [names[infoset[0]]]
    prompts = {KuhnPoker(style="terse").prompt(infoset) for infoset in INFOSETS}
    assert prompts == set(INFOSETS) and len(prompts) == 12


def test_an_illegal_action_forfeits(play):
    outcome, asked = play(KuhnPoker(), {"first": ["bet"], "second": ["check"]}, deal("JK"))
    assert outcome.rewards == {"first": 0.5, "second": -1.5}
    assert outcome.facts["invalid"] == "second" and outcome.facts["history"] == "b"
    assert len(asked) == 2


def test_seeds_deal_all_six_hands_about_equally():
    counts: dict[str, int] = {}
    for seed in range(1200):
        cards = KuhnPoker().task(seed).data["cards"]
        counts[cards] = counts.get(cards, 0) + 1
    assert len(counts) == 6 and all(150 < count < 250 for count in counts.values())


@pytest.mark.parametrize("style", ["short", "terse"])
def test_the_perfect_player_follows_the_equilibrium(style):
    game = KuhnPoker(style=style)
    for infoset, bet in nash().items():
        view = game.view(infoset)
        said = [game.perfect(view, seed) for seed in range(600)]
        assert set(said) <= set(view.actions)
        assert said.count(view.actions[1]) / 600 == pytest.approx(bet, abs=0.06)


def test_perfect_against_random_wins_chips(play):
    game = KuhnPoker(style="terse")

    def perfect(request):
        return game.perfect(request.view, request.seed)

    def chance(request):
        return random.Random(request.seed).choice(request.view.actions)

    chips = 0.0
    for seed in range(2000):
        seats = ("first", "second") if seed % 2 else ("second", "first")
        outcome, _ = play(game, {seats[0]: perfect, seats[1]: chance}, seed=seed)
        assert sum(outcome.rewards.values()) == 0
        chips += outcome.rewards[seats[0]]
    assert chips / 2000 == pytest.approx(1 / 6, abs=0.1)  # 1/6 exactly, in either seat


def test_nash_refuses_an_alpha_that_is_none():
    with pytest.raises(ValueError, match="alpha"):
        nash(0.5)
