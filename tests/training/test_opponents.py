"""Who sits opposite: by the seed, in the share asked for; the league keeps the hard ones."""

from collections import Counter
from dataclasses import replace

import pytest

from sparring.core.scripted import PROGRAMS
from sparring.core.types import Episode, Task, derive
from sparring.evaluation.arena import Score, score
from sparring.evaluation.ratings import Result
from sparring.run.config import OpponentsConfig
from sparring.training.opponents import Opponents, against_league, league_weights
from sparring.training.selfplay import game_stats

SEATS = ("x", "o")


class Names:
    """The names of policies, without weights."""

    def __init__(self) -> None:
        self.kept = {"base", "main"}

    def add(self, name: str, source: str) -> None:
        assert source in self.kept and name not in self.kept
        self.kept.add(name)

    def remove(self, name: str) -> None:
        self.kept.remove(name)


def make(players: dict[str, str] | None = None, **options) -> Opponents:
    return Opponents(OpponentsConfig(**options), players or {})


def seatings(opponents: Opponents, n: int = 2000) -> list[dict[str, str]]:
    return [opponents.seating(SEATS, i, derive("seat", i)) for i in range(n)]


def test_against_oneself_every_seat_is_main():
    assert all(s == {"x": "main", "o": "main"} for s in seatings(make(kind="self", share=1.0), 50))


@pytest.mark.parametrize(("kind", "name"), [("random", "random"), ("frozen", "base")])
def test_the_share_is_kept_and_the_learner_changes_seats(kind, name):
    found = seatings(make(kind=kind, share=0.3))
    met = [s for s in found if name in s.values()]
    assert len(met) / len(found) == pytest.approx(0.3, abs=0.03)
    assert all(sorted(s.values()) == sorted(["main", name]) for s in met)
    as_x = sum(s["x"] == "main" for s in met) / len(met)
    assert as_x == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(("share", "met"), [(0.0, 0), (1.0, 100)])
def test_no_share_is_never_and_a_whole_one_always(share, met):
    found = seatings(make(kind="perfect", share=share), 100)
    assert sum("perfect" in s.values() for s in found) == met


def test_the_same_seed_seats_the_same():
    opponents = make(kind="league", share=0.7)
    opponents.league = ["main@0", "main@20", "main@40"]
    assert seatings(opponents) == seatings(opponents)
    moved = [opponents.seating(SEATS, i, derive("other", i)) for i in range(2000)]
    assert moved != seatings(opponents)


def test_players_of_the_recipe_keep_their_seats():
    found = seatings(make({"x": "alice", "o": "bob"}, kind="random", share=0.5), 400)
    kinds = Counter((s["x"], s["o"]) for s in found)
    assert set(kinds) == {("alice", "bob"), ("alice", "random"), ("random", "bob")}


def test_only_a_seat_that_learns_is_kept_from_the_opponents():
    opponents = make({"o": "base"}, kind="random", share=1.0)
    found = [opponents.seating(SEATS, i, i, frozenset("x")) for i in range(4)]
    assert found == [{"x": "main", "o": "random"}] * 4


def test_a_league_without_members_is_oneself():
    assert all(set(s.values()) == {"main"} for s in seatings(make(kind="league", share=1.0), 50))


def test_weights_by_hand():
    assert league_weights([0.05, 0.55, 1.0], 1.0) == pytest.approx([1.0, 0.5, 0.05])
    assert league_weights([0.05, 0.55, 1.0], 2.0) == pytest.approx([1.0, 0.25, 0.0025])
    assert league_weights([0.0, 0.5, 1.0], 0.0) == [1.0, 1.0, 1.0]


def test_opponents_that_beat_us_are_met_more_often():
    opponents = make(kind="league", share=1.0, hard=1.0)
    opponents.league = ["easy", "even", "hard"]
    opponents.scores = {"easy": 0.95, "even": 0.55, "hard": 0.05}
    met = Counter(next(p for p in s.values() if p != "main") for s in seatings(opponents))
    total = sum(met.values())
    expected = {"easy": 0.1 / 1.6, "even": 0.5 / 1.6, "hard": 1.0 / 1.6}
    assert {name: n / total for name, n in met.items()} == pytest.approx(expected, abs=0.04)


def test_scores_follow_results_by_hand_and_ignore_strangers():
    opponents = make(kind="league")
    opponents.league = ["a"]
    opponents.learn_scores([("a", 1.0), ("stranger", 1.0), ("a", 0.0)], rate=0.1)
    assert opponents.scores == pytest.approx({"a": (0.5 * 0.9 + 0.1) * 0.9})


def test_the_league_grows_on_time_and_only_once():
    opponents, policies = make(kind="league", every=10), Names()
    for iteration in (0, 5, 10, 10, 19, 20):
        opponents.grow(policies, iteration)
    assert opponents.league == ["main@0", "main@10", "main@20"]
    assert policies.kept == {"base", "main", *opponents.league}


@pytest.mark.parametrize("kind", ["self", "frozen", "random"])
def test_who_has_no_league_grows_none(kind):
    opponents, policies = make(kind=kind, every=1), Names()
    opponents.grow(policies, 0)
    assert opponents.league == [] and policies.kept == {"base", "main"}


def test_a_full_league_lets_the_easiest_go_but_never_the_newest():
    opponents, policies = make(kind="league", every=1, size=2), Names()
    opponents.grow(policies, 1)
    opponents.grow(policies, 2)
    opponents.scores = {"main@1": 0.2, "main@2": 0.9}
    opponents.grow(policies, 3)
    assert opponents.league == ["main@1", "main@3"]
    assert policies.kept == {"base", "main", "main@1", "main@3"}
    assert opponents.scores == {"main@1": 0.2}
    opponents.scores["main@3"] = 0.3  # hard, but less so than the one before
    opponents.grow(policies, 4)
    assert opponents.league == ["main@1", "main@4"]


def test_a_league_comes_back_from_its_state(make_policies):
    """On real policies: names and scores return, and those who were not there go."""
    first = make(kind="league", every=1, size=4)
    policies = make_policies("lora")
    for iteration in (1, 2):
        first.grow(policies, iteration)
    first.learn_scores([("main@1", 0.0)])
    second, others = make(kind="league", every=1, size=4), make_policies("lora")
    second.grow(others, 7)
    second.load(first.state(), others)
    assert second.state() == first.state()
    assert others.names() == ["base", "main", "main@1", "main@2"]
    assert seatings(second, 100) == seatings(first, 100)


def test_a_league_of_rock_paper_scissors_is_met_by_its_nash_mixture():
    opponents = make(kind="league", share=1.0, mixture="nash")
    opponents.league = ["main@1", "main@2", "main@3", "main@4"]
    circle = [("main@1", "main@2"), ("main@2", "main@3"), ("main@3", "main@1")]
    opponents.results = [Result(*pair, 8, 0, 2) for pair in circle]
    opponents.results += [Result(f"main@{i}", "main@4", 10, 0, 0) for i in (1, 2, 3)]
    met = Counter(next(p for p in s.values() if p != "main") for s in seatings(opponents))
    assert set(met) == {"main@1", "main@2", "main@3"}  # the fourth loses to all, and is not met
    assert [n / 2000 for n in met.values()] == pytest.approx([1 / 3] * 3, abs=0.04)


def test_every_learned_policy_has_a_league_of_its_own():
    seats = {"x": "alice", "o": "bob"}
    opponents = Opponents(
        OpponentsConfig(kind="league", share=1.0, every=1, size=2, mixture="nash"),
        seats,
        ["alice", "bob"],
    )
    policies = Names()
    policies.kept |= {"alice", "bob"}
    for iteration in (1, 2):
        joined = opponents.grow(policies, iteration)
        assert joined == [f"alice@{iteration}", f"bob@{iteration}"]
    # Only members of the other league are opponents.
    assert opponents.to_play(joined) == [
        ("alice@2", "bob@1"), ("alice@2", "bob@2"), ("bob@2", "alice@1"),
    ]  # fmt: skip
    # Rows alice@1, alice@2; bob@2 takes more from both, so it is all that alice meets.
    opponents.results = [
        Result("alice@1", "bob@1", 9, 0, 1), Result("alice@1", "bob@2", 2, 0, 8),
        Result("alice@2", "bob@1", 8, 0, 2), Result("alice@2", "bob@2", 3, 0, 7),
    ]  # fmt: skip
    assert opponents.weights("bob") == pytest.approx([0, 1])
    assert opponents.weights("alice") == pytest.approx([0, 1])
    assert {tuple(s.values()) for s in seatings(opponents, 100)} == {
        ("alice", "bob@2"), ("alice@2", "bob"),
    }  # fmt: skip
    opponents.grow(policies, 3)
    assert len([n for n in opponents.league if n.startswith("alice@")]) == 2


def test_players_join_the_league_and_are_met_by_their_weights():
    both = ["random", "runs/a@5"]
    config = OpponentsConfig(kind="league", share=1.0, mixture="uniform", players=both)
    league = Opponents(config, {})
    league.league = ["main@1"]
    assert {p for s in seatings(league, 300) for p in s.values()} == {
        "main", "main@1", "random", "runs/a@5",
    }  # fmt: skip
    config = OpponentsConfig(kind="players", share=1.0, players=both, weights=[0.9, 0.1])
    fixed = Opponents(config, {})
    met = Counter(next(p for p in s.values() if p != "main") for s in seatings(fixed))
    assert met["random"] / 2000 == pytest.approx(0.9, abs=0.03)


def test_points_against_members_by_hand():
    def played(rewards, **seating):
        return Episode("1", "g", Task("1"), 0, seating=seating, rewards=rewards)

    episodes = [
        played({"x": 1.0, "o": -1.0}, x="main", o="main@2"),
        played({"x": 1.0, "o": -1.0}, x="main@2", o="main"),
        played({"x": 0.0, "o": 0.0}, x="main", o="random"),
        played({"x": 1.0, "o": -1.0}, x="main", o="main"),
    ]
    assert against_league(episodes, ["main@2", "random"]) == [
        ("main@2", 1.0), ("main@2", 0.0), ("random", 0.5),
    ]  # fmt: skip


def test_a_program_is_known_by_the_name_that_a_game_has_for_it():
    """Tic-tac-toe has a perfect player and no scripted one, and matching the other way round."""

    def played(program):
        return Episode(
            "1", "g", Task("1"), 0, seating={"x": "main", "o": program}, rewards={"x": 1, "o": -1}
        )

    games = [played("perfect"), played("scripted")]
    assert against_league(games, ["scripted"]) == [("scripted", 1.0)] * 2
    assert against_league(games, ["perfect"]) == [("perfect", 1.0)] * 2
    assert against_league(games, [*PROGRAMS]) == [("perfect", 1.0), ("scripted", 1.0)]
    assert against_league(games, ["random"]) == []


def test_seats_of_one_side_do_not_beat_each_other():
    """Two of three seats are the policy's own, and all that it earns is its own."""
    rewards = [{"x": 1.0, "y": 1.0, "o": -2.0}, {"x": 0.0, "y": 2.0, "o": 1.0}]
    games = [
        Episode("1", "g", Task("1"), 0, rewards=own, facts={"invalid": "y"}) for own in rewards
    ]
    assert score(games, [("x", "y")] * 2) == Score(2, 2, 0, 0, 2, reward=0.75)
    assert score(games, [("o",)] * 2) == Score(2, 0, 0, 2, 0, reward=-0.75)


def test_a_seat_that_was_not_asked_has_met_nobody():
    """In a game that is not zero-sum it may go without a reward."""
    seating = {"x": "main", "o": "main@2"}
    alone = Episode("1", "kuhn", Task("1"), 0, seating=seating, rewards={"x": 1.0})
    both = replace(alone, rewards={"x": 1.0, "o": 0.0})
    assert against_league([alone, both], ["main@2"]) == [("main@2", 1.0)]
    sides = [("x",), ("o",), ("o",), ("x",)]
    found = score([alone, alone, both, replace(both, void="judge")], sides)
    assert found == Score(games=1, wins=0, draws=0, losses=1, invalid=0, void=1, reward=-0.5)
    assert game_stats([both, alone]) == {"void": 0, "reward_x": 1.0, "reward_o": 0.0}
    assert game_stats([alone, both]) == {"void": 0, "reward_x": 1.0, "reward_o": 0.0}
