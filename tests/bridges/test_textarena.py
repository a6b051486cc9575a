"""TextArena's games are the same here as in plain TextArena, and none of them can hurt a run."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lazily import imported
from textarena_plain import STEPS, reply

from sparring.bridges import host
from sparring.bridges import textarena as bridge
from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Episode, Request
from sparring.run.games import load_game

imported("textarena", "textarena is not installed")
PLAIN = Path(__file__).parent / "textarena_plain.py"


def play(env_ids: list[str], seed: int, **options: object) -> list[Episode]:
    """All games at once, so that any random stream they shared would show."""
    turn = {}

    def script(request: Request) -> str:
        game = request.order[0]
        turn[game] = turn.get(game, -1) + 1
        return reply(request.messages[-1]["content"], turn[game])

    games = [load_game(f"textarena:{env_id}", **options) for env_id in env_ids]
    jobs = [
        Job(f"{i}", env_id, game, game.task(seed), seed, dict.fromkeys(game.seats, "script"))
        for i, (env_id, game) in enumerate(zip(env_ids, games, strict=True))
    ]
    return asyncio.run(collect(jobs, ScriptedEngine({"script": script}).act))


def starts(env_id: str) -> bool:
    try:
        load_game(f"textarena:{env_id}")
    except ConfigError:
        return False
    return True


def one_of_each() -> list[str]:
    """The first id of every environment; of some also the versions with other observations."""
    first: dict[str, str] = {}
    for env_id, about in bridge.listing().items():
        first.setdefault(about.split()[0], env_id)
    others = ["Nim-v0-train", "Nim-v0-raw", "SimpleNegotiation-v0-raw", "LiarsDice-v0-train"]
    return [*first.values(), *others]


def test_scripted_games_are_those_of_plain_textarena() -> None:
    by = 1 if os.environ.get("SPARRING_FULL") == "1" else 3  # each third of them, for time's sake
    playable = [env_id for env_id in one_of_each()[::by] if starts(env_id)]
    assert len(playable) > 60 // by
    episodes = play(playable, seed=7, turns=STEPS)
    plain = subprocess.run(
        [sys.executable, str(PLAIN)],
        input=json.dumps([[e.game, len(e.seating), 7] for e in episodes]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
    )
    finished = 0
    for episode, expected in zip(episodes, json.loads(plain.stdout), strict=True):
        seen = [[int(t.seat.removeprefix("player_")), t.prompt] for t in episode.turns]
        assert seen == expected["seen"], episode.game
        rewards = expected.get("rewards")
        if "raised" in expected:
            assert expected["raised"] in (episode.void or ""), episode.game
        elif rewards is None:
            assert episode.void == f"{episode.game} was not over after {STEPS} turns"
        elif all(isinstance(value, int | float) for value in rewards.values()):
            finished += 1
            assert episode.rewards == {f"player_{i}": r for i, r in rewards.items()}, episode.game
        else:  # a mistake of that environment: its reward is a sentence
            assert episode.void and "could not convert string to float" in episode.void
    assert finished > 40 // by


def test_more_players_than_the_least() -> None:
    (episode,) = play(["Poker-v0"], seed=3, players=5, turns=STEPS)
    assert len(episode.seating) == 5 and {t.seat for t in episode.turns} > {"player_0", "player_1"}


def test_a_game_for_one_is_measured_by_its_reward() -> None:
    game = load_game("textarena:Mastermind-v0")
    assert game.seats == ("player_0",) and game.cooperative
    episodes = [Episode(str(r), "m", game.task(0), 0, rewards={"player_0": r}) for r in (0.25, 1.0)]
    assert game.measures(episodes, "main") == {"score": 0.625}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("textarena:SimpleNegotiation-v9", "did you mean 'SimpleNegotiation-v0"),
        ("textarena:Debate-v0", "OPENROUTER_API_KEY"),
    ],
)
def test_what_cannot_be_played_is_refused_with_advice(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=message):
        load_game(name)


def test_a_number_of_players_that_cannot_be_is_refused_with_those_that_can() -> None:
    with pytest.raises(ConfigError, match=r"there can be \[2\]"):
        load_game("textarena:Nim-v0", players=3)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise", "RuntimeError: out of cards"),
        ("exit", "ended its process"),
        ("hang", "hung for 3 s"),
    ],
)
def test_a_fault_voids_its_own_game_alone(
    fault: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one worker for all, the others' environments are made again and go on where they
    were."""
    monkeypatch.setattr(host, "WORKERS", 1)
    monkeypatch.setattr(bridge, "_player_counts", lambda *_, **__: [1])
    host._workers.cache_clear()
    kind = type("Counting", (bridge.TextArena,), {"env_id": "counting", "worker": "faulty_worker"})
    games = [kind(answer_within=3.0) for _ in range(6)]

    def script(request: Request) -> str:
        if request.order == (2, 1):
            return fault
        return "end" if request.order[1] == 3 else "go on"

    jobs = [
        Job(f"{i}", "counting", game, game.task(i), i, {"player_0": "script"})
        for i, game in enumerate(games)
    ]
    episodes = asyncio.run(collect(jobs, ScriptedEngine({"script": script}).act))
    assert [e.void for e in episodes] == [None, None, f"counting: {reason}", None, None, None]
    assert [e.rewards for e in episodes if e.void is None] == [{"player_0": 4.0}] * 5
    for worker in host._workers("faulty_worker"):
        worker.stop()
    host._workers.cache_clear()
