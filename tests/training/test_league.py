"""Members of a league play each other when one joins: seats in turn, or each in its owner's."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lives import Moment, events, train, whole

from sparring.core.game import Game, Outcome
from sparring.core.scripted import ScriptedEngine
from sparring.core.table import Table
from sparring.core.types import Task
from sparring.learn.learner import Learner
from sparring.run import checkpoint
from sparring.run.config import Config, OpponentsConfig
from sparring.run.rundir import read_episodes
from sparring.training.opponents import POPULATION, Opponents, measure, write_population


class Higher(Game):
    """The higher number wins, and the left seat has one more."""

    seats = ("left", "right")

    async def play(self, task: Task, table: Table) -> Outcome:
        left = int((await table["left"].act("?")).text) + 1
        right = int((await table["right"].act("?")).text)
        gap = (left > right) - (left < right)
        return Outcome(left=gap, right=-gap)


def played(opponents: Opponents, joined: list[str], numbers: dict[str, int]) -> Opponents:
    scripts = {name: lambda request: str(numbers[request.policy]) for name in numbers}
    engine, games = ScriptedEngine(scripts), {"higher": Higher()}
    parts: Any = SimpleNamespace(config=Config(), games=games, engine=engine, opponents=opponents)
    asyncio.run(measure(parts, joined))
    return opponents


def test_members_take_seats_in_turn_and_meet_once(tmp_path: Path) -> None:
    config = OpponentsConfig(kind="league", mixture="nash", matches=10)
    opponents = Opponents(config, {})
    opponents.league = ["main@1", "main@2", "main@3"]
    numbers = {"main@1": 1, "main@2": 2, "main@3": 5}
    played(opponents, ["main@2"], numbers)
    # main@2 has 3 to 1 on the left, and 2 to 2 on the right.
    assert [tuple(r) for r in opponents.results] == [
        ("main@2", "main@1", 5, 5, 0, 0.5), ("main@2", "main@3", 0, 0, 10, -1),
    ]  # fmt: skip
    played(opponents, ["main@2", "main@3"], numbers)
    assert [tuple(r) for r in opponents.results[2:]] == [("main@3", "main@1", 10, 0, 0, 1)]
    assert opponents.weights("main") == pytest.approx([0, 0, 1])
    write_population(opponents, tmp_path, 3)
    written = json.loads((tmp_path / POPULATION).read_text())
    assert written["mixture"] == {"main": {"main@1": 0, "main@2": 0, "main@3": 1}}
    assert written["policies"]["main@3"] == f"{tmp_path}@last:main@3"


def test_members_of_two_leagues_keep_their_owners_seats() -> None:
    config = OpponentsConfig(kind="league", mixture="nash", matches=4)
    opponents = Opponents(config, {"left": "alice", "right": "bob"}, ["alice", "bob"])
    opponents.league = ["alice@1", "bob@1"]
    played(opponents, ["alice@1", "bob@1"], {"alice@1": 3, "bob@1": 3})
    assert [tuple(r) for r in opponents.results] == [("alice@1", "bob@1", 4, 0, 0, 1)]
    played(opponents, ["bob@1"], {"alice@1": 3, "bob@1": 3})
    assert len(opponents.results) == 1


def test_mixtures_that_need_no_payoffs_play_no_matches() -> None:
    opponents = Opponents(OpponentsConfig(kind="league", mixture="uniform"), {})
    opponents.league = ["main@1", "main@2"]
    assert played(opponents, ["main@2"], {}).results == []


@pytest.mark.parametrize("start", [True, False])
def test_the_first_weights_may_be_met_from_the_first_game_on(tmp_path: Path, start: bool) -> None:
    run = tmp_path / "run"
    league = f"opponents={{kind: league, start: {start}, every: 9, share: 1}}"
    life = train("kuhn", run, league, "iterations=1", "evaluate.games=0")
    assert life.code == 0, life.err
    met = {
        tuple(sorted(e.seating.values())) for e in read_episodes(run / "episodes/000001.jsonl.gz")
    }
    assert met == {("main", "main@0") if start else ("main", "main")}
    tensors, state = checkpoint.load(run / "checkpoints", 0)
    assert state["opponents"]["league"] == (["main@0"] if start else [])
    if start:
        main, first = tensors["main.policy"], tensors["league.main@0"]
        assert main.keys() == first.keys()
        assert all(torch.equal(main[name], first[name]) for name in first)


def test_members_from_the_start_have_met_before_the_first_game(tmp_path: Path) -> None:
    """Untrained weights lose all to perfect play: by Nash they are never met, from the first
    iteration on; and the same if the run dies in it."""
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    league = "opponents={kind: league, start: true, every: 9, mixture: nash, share: 1, "
    words = (league + "players: [perfect]}", "iterations=2", "evaluate.games=0")
    assert train("tictactoe", unbroken, *words).code == 0
    for iteration in (1, 2):
        games = read_episodes(unbroken / f"episodes/{iteration:06d}.jsonl.gz")
        assert {tuple(sorted(e.seating.values())) for e in games} == {("main", "perfect")}
    _, state = checkpoint.load(unbroken / "checkpoints", 2)
    (result,) = state["opponents"]["results"]
    assert result[:2] == ["main@0", "perfect"] and result[4] == 20
    assert json.loads((unbroken / POPULATION).read_text())["nash"] == {"main@0": 0, "perfect": 1}
    train("tictactoe", broken, *words, die_at=Moment("000001.jsonl.gz"))
    assert train("tictactoe", broken, *words, resume=True).code == 0
    assert whole(broken) == whole(unbroken)


def test_players_that_are_members_have_met_each_other_before_the_first_game(tmp_path: Path) -> None:
    """By Nash nobody meets a player that loses to another one; pairs that never met looked even.
    The same when the run is rolled back to its beginning."""
    run = tmp_path / "run"
    league = "opponents={kind: league, every: 9, mixture: nash, share: 1, "
    words = (league + "players: [random, perfect]}", "iterations=2", "evaluate.games=0")
    assert (
        train("tictactoe", run, *words, "guard={entropy_floor: 99, window: 1, grace: 0}").code == 0
    )
    assert events(run, "rollback")[0]["iteration"] == 1
    for iteration in (1, 2):
        games = read_episodes(run / f"episodes/{iteration:06d}.jsonl.gz")
        assert {tuple(sorted(e.seating.values())) for e in games} == {("main", "perfect")}
    assert json.loads((run / POPULATION).read_text())["nash"] == {"random": 0, "perfect": 1}


def test_a_program_joins_in_games_that_have_only_the_other_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    league = "opponents={kind: league, start: true, every: 1, mixture: nash, matches: 2, "
    life = train("tictactoe", run, league + "players: [scripted], share: 1}", "iterations=2")
    assert life.code == 0, life.err
    _, state = checkpoint.load(run / "checkpoints", 2)
    assert "scripted" in state["opponents"]["scores"]
    met = {tuple(result[:2]) for result in state["opponents"]["results"]}
    assert {("main@0", "scripted"), ("main@1", "scripted"), ("main@2", "scripted")} <= met


@pytest.mark.parametrize(
    "asked", ["opponents={kind: league, players: [perfect]}", "players={left: perfect}"]
)
def test_a_program_of_a_game_that_has_none_is_refused(tmp_path: Path, asked: str) -> None:
    life = train(f"{Path(__file__)}:Higher", tmp_path / "run", asked)
    assert life.code == 2 and "Higher has no perfect player; take `random`" in life.err
    assert not (tmp_path / "run").exists()


def leap_once() -> None:
    usual = Learner.lr
    Learner.lr = lambda self, i, n: usual(self, i, n) * (1000 if i == 3 else 1)  # type: ignore


@pytest.mark.parametrize("players", [[], ["random"]])
def test_a_roll_back_takes_those_back_who_joined(tmp_path: Path, players: list[str]) -> None:
    """population.json names nobody whose weights are gone: a tournament would ask for them."""
    run = tmp_path / "run"
    words = (
        "guard={entropy_floor: 2, window: 1, grace: 1, score_drop: 9}",
        f"opponents={{kind: league, every: 4, share: 0.5, players: {json.dumps(players)}}}",
        *("sampling.mask_actions=false", "learn.schedule=constant", "iterations=6"),
        *("evaluate.every=3", "checkpoint.every=3"),
    )
    life = train("kuhn", run, *words, first=leap_once)
    assert life.code == 0, life.err
    assert [e["iteration"] for e in events(run, "rollback")] == [5]
    _, state = checkpoint.load(run / "checkpoints", 6)
    assert state["opponents"]["league"] == []
    assert (run / POPULATION).exists() == bool(players)
    if players:
        assert json.loads((run / POPULATION).read_text())["players"] == players
