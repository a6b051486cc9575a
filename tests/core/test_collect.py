"""Many games at once: all of them, in order, each on its own; a broken judge voids only its own."""

import asyncio
import gc
import weakref

import pytest

from sparring.core.collect import Job, collect, play
from sparring.core.errors import GameError
from sparring.core.game import Game, Outcome
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Episode, Request, Task, Turn, VoidGame, derive
from sparring.run.games import load_game


class Once(Game):
    """One question; what comes of it is in the task."""

    seats = ("a", "b")

    async def play(self, task: Task, table) -> Outcome:
        kind = task.data.get("kind")
        if kind == "void":
            await table["a"].act("?")
            raise VoidGame("the judge is not installed")
        if kind == "silent void":
            raise VoidGame
        if kind == "unfair":
            return Outcome(a=9, b=9, void="the tests contradict each other")
        if kind == "bug":
            raise KeyError("a mistake in the game")
        if kind == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(table["a"].act("?"))
                group.create_task(self._refuse())
        if kind == "gather":
            await asyncio.gather(self._refuse(), table["a"].act("?"))
        turn = await table["a"].act("?")
        return Outcome(a=1, b=-1, facts={"said": turn.text})

    async def _refuse(self) -> None:
        raise VoidGame("no room")


def jobs(*kinds: str | None, policy: str = "echo") -> list[Job]:
    return [
        Job(f"e{i}", "once", Once(), Task(str(i), data={"kind": kind}), derive(i), _seats(policy))
        for i, kind in enumerate(kinds)
    ]


def _seats(policy: str) -> dict[str, str]:
    return {"a": policy, "b": policy}


class Voice:
    """Answers after as many ticks as it likes, and counts who waits at the same time."""

    def __init__(self, ticks=lambda request: 3) -> None:
        self.ticks, self.waiting, self.most = ticks, 0, 0

    async def __call__(self, request: Request) -> Turn:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        for _ in range(self.ticks(request)):
            await asyncio.sleep(0)
        self.waiting -= 1
        return Turn(request.seat, request.policy, "?", str(request.order[0]), token_ids=[1])


def test_episodes_come_back_in_the_jobs_order_whoever_ends_first():
    voice = Voice(lambda request: 40 - request.order[0])
    episodes = asyncio.run(collect(jobs(*[None] * 40), voice, concurrency=40))
    assert [e.id for e in episodes] == [f"e{i}" for i in range(40)]
    assert [e.facts["said"] for e in episodes] == [str(i) for i in range(40)]
    assert all(e.rewards == {"a": 1.0, "b": -1.0} and e.void is None for e in episodes)
    assert episodes[7].seed == derive(7) and episodes[7].seating == _seats("echo")


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (8, 8), (100, 40)])
def test_as_many_games_are_in_flight_as_allowed(concurrency, most):
    voice = Voice()
    asyncio.run(collect(jobs(*[None] * 40), voice, concurrency=concurrency))
    assert voice.most == most


def test_nothing_to_play_is_no_episodes():
    assert asyncio.run(collect([], Voice())) == []


def test_each_episode_is_reported_once_when_it_ends():
    seen: list[Episode] = []
    voice = Voice(lambda request: 40 - 2 * request.order[0])
    episodes = asyncio.run(collect(jobs(*[None] * 20), voice, on_episode=seen.append))
    assert sorted(e.id for e in seen) == sorted(e.id for e in episodes)
    assert [e.id for e in seen] == [e.id for e in reversed(episodes)]


@pytest.mark.parametrize(
    ("kind", "reason", "turns"),
    [
        ("void", "the judge is not installed", 1),
        ("silent void", "VoidGame", 0),
        ("unfair", "the tests contradict each other", 0),
        ("group", "no room", 0),
        ("gather", "no room", 0),
    ],
)
def test_a_void_game_keeps_its_reason_and_harms_no_other(kind, reason, turns):
    episodes = asyncio.run(collect(jobs(None, kind, None), Voice()))
    assert [e.void for e in episodes] == [None, reason, None]
    assert [len(e.turns) for e in episodes] == [1, turns, 1]


def test_a_mistake_in_a_game_stops_the_collection_with_its_line():
    with pytest.raises(GameError, match=r"test_collect\.py:\d+\): KeyError: 'a mistake"):
        asyncio.run(collect(jobs(None, "bug", None), Voice()))


def test_a_full_disk_stops_the_collection_as_itself():
    def write(episode: Episode) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(collect(jobs(*[None] * 5), Voice(), on_episode=write))


def test_only_policies_that_learn_have_trainable_turns():
    work = jobs(None)[0]
    work.seating = {"a": "main", "b": "rival"}
    work.learned = frozenset({"main"})
    assert [t.trainable for t in asyncio.run(play(work, Voice())).turns] == [True]
    work.learned = frozenset({"rival"})
    assert [t.trainable for t in asyncio.run(play(work, Voice())).turns] == [False]


def test_programs_of_the_game_never_reach_the_engine():
    game = load_game("tictactoe", style="terse")
    engine = ScriptedEngine({"first free": lambda request: request.view.actions[0]})
    asked: list[str] = []

    async def speak(request: Request) -> Turn:
        asked.append(request.policy)
        return await engine.act(request)

    work = [
        Job(str(i), "tictactoe", game, game.task(i), i, {"x": "first free", "o": "perfect"})
        for i in range(10)
    ]
    episodes = asyncio.run(collect(work, speak))
    assert set(asked) == {"first free"}
    assert all(e.rewards["o"] >= 0 for e in episodes), "perfect play never loses"


def test_the_same_jobs_give_the_same_episodes_in_any_concurrency():
    game = load_game("tictactoe", style="terse")
    seats = {"x": "random", "o": "random"}
    work = [Job(str(i), "tictactoe", game, game.task(i), derive(i), seats) for i in range(60)]
    one = asyncio.run(collect(work, Voice(), concurrency=1))
    many = asyncio.run(collect(work, Voice(), concurrency=60))
    assert one == many
    assert len({tuple(e.facts["moves"]) for e in one}) > 50


def test_a_finished_game_is_no_work_for_the_garbage_collector():
    tables: list[weakref.ref] = []

    class Watched(Once):
        async def play(self, task: Task, table) -> Outcome:
            tables.append(weakref.ref(table))
            return await super().play(task, table)

    work = jobs(None)[0]
    work.game = Watched()
    gc.disable()
    try:
        asyncio.run(play(work, Voice()))
        assert [table() for table in tables] == [None]
    finally:
        gc.enable()
