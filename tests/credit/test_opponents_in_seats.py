"""What an opponent earned in a seat is no measure of what a learner can expect there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sparring.core.collect import Job
from sparring.core.types import Episode, Task, Turn
from sparring.credit.group_relative import GroupRelative
from sparring.credit.prompt_baseline import PromptBaseline
from sparring.credit.role_baseline import RoleBaseline
from sparring.run.config import CollectConfig, Config, OpponentsConfig
from sparring.run.games import make_games
from sparring.training.curriculum import Curriculum
from sparring.training.jobs import DifficultyGate, make_jobs
from sparring.training.opponents import Opponents


def game(x: str, o: str, rewards: dict[str, float], silent: str = "") -> Episode:
    """One turn for each seat that is not silent; only `main` learns."""
    seating = {"x": x, "o": o}
    turns = [
        Turn(seat, policy, "", "", 0, [ord(seat)], [3], [-1.0], trainable=policy == "main")
        for seat, policy in seating.items()
        if seat != silent
    ]
    return Episode("e", "g", Task("t"), 0, seating=seating, turns=turns, rewards=rewards)


@pytest.mark.parametrize("opponent", ["random", "base", "main@20"])
def test_only_seats_that_learners_hold_move_a_baseline(opponent: str) -> None:
    episodes = [
        game("main", opponent, {"x": 1.0, "o": -1.0}),
        game(opponent, "main", {"x": 1.0, "o": -1.0}),
        game("main", opponent, {"x": 0.0, "o": 0.0}),
    ]
    credit = RoleBaseline(0.5)
    found = credit.advantages(episodes)
    assert credit.baselines == {"g/x": 0.25, "g/o": -0.5}  # x: 0 → ½ → ¼ ; o: 0 → −½
    assert [found[0][0], found[1][1], found[2][0]] == [1.0, -1.0, -0.5]


def test_a_learner_that_was_never_asked_still_moves_its_own() -> None:
    credit = RoleBaseline(0.5)
    credit.advantages([game("main", "main", {"x": -1.5, "o": 0.5}, silent="o")])
    assert credit.baselines == {"g/x": -0.75, "g/o": 0.25}
    other = RoleBaseline(0.5)
    other.advantages([game("main", "random", {"x": -1.5, "o": 0.5}, silent="o")])
    assert other.baselines == {"g/x": -0.75}


def test_prompts_that_only_opponents_saw_are_not_remembered() -> None:
    credit = PromptBaseline(0.5)
    credit.advantages([game("main", "random", {"x": 1.0, "o": -1.0})])
    assert set(credit.roles.baselines) == {"g/x"}
    assert len(credit.prompts) == 1 and next(iter(credit.prompts)).startswith("g/x/")


def test_a_group_compares_only_games_against_the_same_opponents_in_the_same_seats() -> None:
    """Against `random`, 1 and 0: mean ½. Against `perfect`, −1 and 0: mean −½. All four mixed
    would have a mean of 0 and blame the one who drew with a perfect player."""
    games = [
        game("main", "random", {"x": 1.0, "o": -1.0}),
        game("main", "random", {"x": 0.0, "o": 0.0}),
        game("main", "perfect", {"x": -1.0, "o": 1.0}),
        game("main", "perfect", {"x": 0.0, "o": 0.0}),
        game("perfect", "main", {"x": 1.0, "o": -1.0}),
    ]
    found = [
        advantages[list(episode.seating.values()).index("main")]
        for episode, advantages in zip(games, GroupRelative().advantages(games), strict=True)
    ]
    assert found == [0.5, -0.5, -0.5, 0.5, 0.0]


def test_a_game_won_together_is_compared_with_those_of_the_same_partners() -> None:
    """With oneself 4 and 2 (each seat): mean 3. With `random` 1 and 0: mean ½."""
    games = [
        game("main", "main", {"x": 4.0, "o": 4.0}),
        game("main", "main", {"x": 2.0, "o": 2.0}),
        game("main", "random", {"x": 1.0, "o": 1.0}),
        game("main", "random", {"x": 0.0, "o": 0.0}),
    ]
    found = GroupRelative(together=True).advantages(games)
    assert [advantages[0] for advantages in found] == [1.0, -1.0, 0.5, -0.5]


def parts_of(config: Config) -> Any:
    """What jobs are made from, of games that need no model."""
    return SimpleNamespace(
        config=config,
        curriculum=Curriculum(config, make_games(config.games)),
        opponents=Opponents(config.opponents, {}),
        tasks={},
        steps=[],
        gate=DifficultyGate(config.tasks.gate),
    )


@pytest.mark.parametrize("kind", ["random", "league", "players"])
def test_a_group_is_dealt_one_seat_and_one_opponent(kind: str) -> None:
    config = Config(
        collect=CollectConfig(episodes=60, group=4),
        games={"tictactoe": {"style": "terse"}},
        opponents=OpponentsConfig(kind=kind, share=0.5, players=["one", "two"]),
    )
    parts = parts_of(config)
    parts.opponents.league = ["main@1", "main@2", "main@3"]
    dealt, moved = [], set()
    for iteration in (1, 2, 3):
        jobs = make_jobs(parts, iteration)
        groups: dict[str, list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.group, []).append(job)
        assert [len(group) for group in groups.values()] == [4] * 15
        for group in groups.values():
            assert all(job.seating == group[0].seating for job in group)
            assert len({job.seed for job in group}) == 4  # the same deal, other words
            dealt.append(group[0].seating)
        moved.add(tuple(tuple(s.values()) for s in dealt[-15:]))
    assert len(moved) == 3  # each iteration deals anew
    against = [s for s in dealt if set(s.values()) != {"main"}]
    assert 10 < len(against) < 35  # half of 45 tables
    as_x = sum(s["x"] == "main" for s in against)
    assert 0 < as_x < len(against)


def test_a_single_group_changes_seats_from_iteration_to_iteration() -> None:
    config = Config(
        collect=CollectConfig(episodes=8, group=8),
        games={"tictactoe": {}},
        opponents=OpponentsConfig(kind="random", share=1.0),
    )
    parts = parts_of(config)
    seatings = [make_jobs(parts, i)[0].seating for i in (1, 2, 3)]
    assert [s["x"] for s in seatings] == ["main", "random", "main"]
