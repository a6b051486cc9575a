import itertools
import math
import random

import pytest

from sparring.evaluate.exact import (
    best_response,
    exploitability,
    game_value,
    kuhn_policy,
    kuhn_prompts,
    mean_regret,
    mean_surplus,
    regret,
    regrets,
    surplus,
    value_gap,
)
from sparring.games.kuhn import INFOSETS, KuhnPoker, nash
from sparring.types import Episode, Task

UNIFORM = dict.fromkeys(INFOSETS, 0.5)


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


# An independent account of Kuhn poker: all 64 pure strategies of a seat against the policy,
# the six ways a hand can go written out.

FIRST = ("J", "Q", "K", "Jpb", "Qpb", "Kpb")
SECOND = ("Jp", "Qp", "Kp", "Jb", "Qb", "Kb")


def by_hand(first, second):
    total = 0.0
    for a, b in itertools.permutations("JQK", 2):
        sign = 1 if "JQK".index(a) > "JQK".index(b) else -1
        bet, raised, called = first[a], second[b + "p"], second[b + "b"]
        total += bet * (called * 2 * sign + (1 - called))
        total += (1 - bet) * (1 - raised) * sign
        total += (1 - bet) * raised * (first[a + "pb"] * 2 * sign - (1 - first[a + "pb"]))
    return total / 6


def pure(infosets):
    return [dict(zip(infosets, p, strict=True)) for p in itertools.product((0, 1), repeat=6)]


def brute_force(policy):
    first = max(by_hand(strategy, policy) for strategy in pure(FIRST))
    second = max(-by_hand(policy, strategy) for strategy in pure(SECOND))
    return first, second


def test_the_uniform_policy_is_exploitable_by_what_brute_force_finds():
    first, second = brute_force(UNIFORM)
    assert best_response(UNIFORM, 0) == pytest.approx(first, abs=1e-12)
    assert best_response(UNIFORM, 1) == pytest.approx(second, abs=1e-12)
    assert exploitability(UNIFORM) == pytest.approx(11 / 24, abs=1e-12)  # OpenSpiel: 0.458333
    assert game_value(UNIFORM) == pytest.approx(1 / 8, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_any_policy_agrees_with_brute_force(seed):
    rng = random.Random(seed)
    draw = rng.random if seed % 2 else lambda: float(rng.random() < 0.5)
    policy = {infoset: draw() for infoset in INFOSETS}
    assert game_value(policy) == pytest.approx(by_hand(policy, policy), abs=1e-12)
    assert exploitability(policy) == pytest.approx(sum(brute_force(policy)) / 2, abs=1e-12)
    assert exploitability(policy) > 0.005  # only an equilibrium has none


@pytest.mark.parametrize("alpha", [0, 0.1, 0.2, 1 / 3])
def test_every_equilibrium_has_none_and_the_value_of_the_game(alpha):
    policy = nash(alpha)
    assert set(policy) == set(INFOSETS) and len(INFOSETS) == 12
    assert exploitability(policy) == pytest.approx(0, abs=1e-12)
    assert value_gap(policy) == pytest.approx(0, abs=1e-12)
    assert best_response(policy, 0) == pytest.approx(-1 / 18)
    assert best_response(policy, 1) == pytest.approx(1 / 18)
    assert exploitability(policy | {"Q": 0.3}) > 0.001


def test_the_prompts_are_those_the_game_shows():
    terse = kuhn_prompts(KuhnPoker(style="terse"))
    assert list(terse) == list(INFOSETS) and terse["Qpb"] == ("Qpb", ("p", "b"))
    game = KuhnPoker(style="short")
    prompt, answers = kuhn_prompts(game)["Kb"]
    assert prompt == game.prompt("Kb") and answers == ("fold", "call")
    reasoned = kuhn_prompts(KuhnPoker(style="reason"))["Kb"][1]
    assert reasoned == (r"\boxed{fold}", r"\boxed{call}")
    assert len({prompt for prompt, _ in kuhn_prompts(game).values()}) == 12


def test_a_policy_is_renormalised_and_the_illegal_mass_reported():
    probabilities = {infoset: (0.2, 0.6) for infoset in INFOSETS} | {"J": (0.0, 0.0)}
    policy, illegal = kuhn_policy(probabilities)
    assert policy["J"] == 0.5 and policy["Q"] == pytest.approx(0.75)
    assert illegal == pytest.approx((1 + 11 * 0.2) / 12)
    with pytest.raises(KeyError):
        kuhn_policy({"J": (0.5, 0.5)})


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
