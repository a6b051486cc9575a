"""Games played on workers are those played here: the same episodes, each once, whoever dies."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from fake_workers import FakeActor, FakeTransport, Words, request, with_main

from sparring.core import plugin
from sparring.core.collect import Job
from sparring.core.errors import ConfigError, GameError
from sparring.core.game import Game, Outcome, opened
from sparring.core.types import Episode, Request, Task, Turn, Verdict, VoidGame
from sparring.engines.players import Players
from sparring.engines.pool import PoolLost, WorkerPool
from sparring.engines.published import PublishFailed
from sparring.engines.worker import Message, Worker, pack_game, portable, unpack_game
from sparring.run.games import load_game


def jobs_of(name: str, count: int, seating: dict[str, str] | None = None) -> list[Job]:
    game = load_game(name)
    seats = seating or dict.fromkeys(game.seats, "main")
    return [Job(str(i), name, game, game.task(i), i, seats, f"g{i // 4}") for i in range(count)]


def pool_of(*actors: FakeActor, workers: int | None = None) -> WorkerPool:
    transport = FakeTransport(list(actors), workers or len(actors))
    return WorkerPool(with_main(), transport, patience_s=60)


def facts(episodes: Sequence[Episode]) -> list[Any]:
    return [
        (e.id, e.seed, e.rewards, e.void, e.verdicts, [(t.seat, t.text) for t in e.turns])
        for e in episodes
    ]


@pytest.mark.parametrize("workers", [2, 3])
def test_the_episodes_are_the_same_whichever_worker_plays_them(workers: int) -> None:
    jobs = jobs_of("kuhn", 60)

    async def scene() -> tuple[list[Episode], list[Episode], list[int]]:
        actors = [FakeActor() for _ in range(workers)]
        pool = pool_of(*actors)
        played = await pool.collect(jobs, concurrency=12)
        expected = await with_main().collect(jobs)
        return played, expected, [a.calls["deliver"] + a.calls["results"] for a in actors]

    played, expected, messages = asyncio.run(scene())
    assert facts(played) == facts(expected)
    assert all(count > 0 for count in messages)  # all of them played
    assert sum(messages) < sum(len(e.turns) for e in played)


def test_no_more_games_are_played_at_a_time_than_was_said() -> None:
    class Counting(Words):
        def __init__(self) -> None:
            super().__init__()
            self.now = self.most = 0

        async def act(self, asked: Request) -> Turn:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(0.001)
                return await super().act(asked)
            finally:
                self.now -= 1

    async def scene() -> list[int]:
        actors = [FakeActor(make=Counting), FakeActor(make=Counting)]
        await pool_of(*actors).collect(jobs_of("kuhn", 60), concurrency=10)
        return [actor.worker.engine.most for actor in actors]

    assert asyncio.run(scene()) == [5, 5]


def test_a_worker_that_dies_costs_no_episode_and_none_counts_twice() -> None:
    jobs = jobs_of("kuhn", 60)
    done: list[str] = []

    async def scene() -> tuple[list[Episode], WorkerPool]:
        actors = [FakeActor() for _ in range(3)]
        pool = pool_of(*actors, workers=2)

        def kill(episode: Episode) -> None:
            done.append(episode.id)
            if len(done) == 5:
                actors[0].die()

        played = await pool.collect(jobs, concurrency=12, on_episode=kill)
        await asyncio.gather(*pool._replacing)
        return played, pool

    played, pool = asyncio.run(scene())
    assert sorted(done, key=int) == [job.id for job in jobs]
    assert facts(played) == facts(asyncio.run(with_main().collect(jobs)))
    assert pool.replayed > 0 and pool.replaced == 1


def test_games_end_with_the_last_worker_that_cannot_be_replaced() -> None:
    async def scene() -> None:
        first, second = FakeActor(make=lambda: Words(0.01)), FakeActor()
        second.die()
        pool = pool_of(first, second, workers=1)
        playing = asyncio.ensure_future(pool.collect(jobs_of("kuhn", 8)))
        await first.called_for("deliver")
        first.die()
        with pytest.raises(PoolLost, match="none could be started again"):
            await asyncio.wait_for(playing, 10)

    asyncio.run(scene())


def test_results_are_kept_until_they_are_acknowledged() -> None:
    async def scene() -> None:
        worker = Worker(Words)
        await worker.deliver(pickle.dumps(Message(requests=[(7, request("a"))])))
        for _ in range(2):  # a caller that went away after the first has lost nothing
            reply = pickle.loads(await worker.results(0))
            assert [number for number, _ in reply.finished] == [7]
        later = asyncio.create_task(worker.results(reply.last))
        await asyncio.sleep(0)
        assert not later.done() and not worker._outbox
        await worker.deliver(pickle.dumps(Message(requests=[(8, request("void"))])))
        ((number, error),) = pickle.loads(await later).finished
        assert number == 8 and isinstance(error, VoidGame)

    asyncio.run(scene())


class Elsewhere:
    """A server: how many requests wait for it in one tick."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def act(self, asked: Request) -> Turn:
        self.asked.append(asked)
        if asked.seed % 3 == 0:
            raise VoidGame("the server is gone")
        return Turn(asked.seat, asked.policy, "", random.Random(asked.seed).choice("01"))


def test_a_policy_that_joins_arrives_beside_one_that_moved() -> None:
    async def scene() -> None:
        actors = [FakeActor(), FakeActor()]
        pool = pool_of(*actors)
        await pool.act(request())
        policies: Any = pool.policies
        policies.set_version("main", 1)
        policies.add("main@1")
        policies.weights["main@1"] = 5.0
        await pool.act(request())
        for actor in actors:
            assert actor.worker.engine.policies.versions == {"base": 0, "main": 1, "main@1": 0}
            assert actor.worker.engine.policies.weights == {"main": 1.0, "main@1": 5.0}
        policies.remove("main")
        policies.set_version("main@1", 1)
        await pool.act(replace(request(), policy="main@1"))
        assert all("main" not in actor.worker.engine.policies.versions for actor in actors)

    asyncio.run(scene())


def test_requests_to_other_engines_go_in_one_message_per_tick() -> None:
    jobs = jobs_of("kuhn", 40, {"first": "server", "second": "main"})

    async def scene() -> tuple[list[Episode], list[Episode], list[Request], list[int]]:
        actors, server = [FakeActor(), FakeActor()], Elsewhere()
        players = Players(pool_of(*actors), {"server": server})  # type: ignore[dict-item]
        played = await players.collect(jobs, concurrency=40)
        here = Players(with_main(), {"server": Elsewhere()})  # type: ignore[dict-item]
        messages = [actor.calls["results"] for actor in actors]
        return played, await here.collect(jobs), server.asked, messages

    played, expected, asked, messages = asyncio.run(scene())
    assert facts(played) == facts(expected)
    assert any(e.void == "the server is gone" for e in played) and not all(e.void for e in played)
    assert len(asked) >= 40 and sum(messages) < len(asked) / 2


def test_a_cancelled_batch_is_cancelled_on_the_workers() -> None:
    async def scene() -> None:
        actors = [FakeActor(make=lambda: Words(delay_s=3600)) for _ in range(2)]
        pool = pool_of(*actors)
        playing = asyncio.create_task(pool.collect(jobs_of("kuhn", 8)))
        for actor in actors:
            await actor.called_for("deliver")
        while not all(actor.worker._tasks for actor in actors):
            await asyncio.sleep(0)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        while any(actor.worker._tasks for actor in actors):
            await asyncio.sleep(0)
        await asyncio.gather(*(actor.worker.close() for actor in actors))
        assert playing.cancelled()

    asyncio.run(asyncio.wait_for(scene(), 120))


def test_an_error_of_a_game_ends_the_collection_as_it_does_here() -> None:
    broken = jobs_of("kuhn", 4)
    broken[2].task.data.clear()
    with pytest.raises(GameError, match=r"kuhn \(.*kuhn\.py:\d+\): KeyError"):
        asyncio.run(pool_of(FakeActor(), FakeActor()).collect(broken))
    unsent = jobs_of("kuhn", 4)
    unsent[1].task.data["deal"] = lambda: None
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        asyncio.run(pool_of(FakeActor(), FakeActor()).collect(unsent))
    unknown = jobs_of("kuhn", 4)
    for job in unknown:
        job.name = "nowhere"
    with pytest.raises(ConfigError, match="there is no game 'nowhere'"):
        asyncio.run(pool_of(FakeActor(), FakeActor()).collect(unknown))


def test_errors_travel_as_what_they_mean() -> None:
    class TwoWords(VoidGame):
        def __init__(self, a: str, b: str) -> None:
            super().__init__(f"{a} {b}")

    assert type(portable(TwoWords("no", "judge"))) is VoidGame
    assert str(portable(PublishFailed("main", "no room"))).startswith("the engine does not have")
    nobody_foresaw = portable(ZeroDivisionError("x"))
    assert type(nobody_foresaw) is ZeroDivisionError and nobody_foresaw.__notes__


@pytest.mark.parametrize("name", sorted(plugin.names("games")))
def test_every_game_travels_with_its_options_and_without_its_judge(name: str) -> None:
    game = load_game(name)
    game.judge = object()
    again = unpack_game(*pickle.loads(pickle.dumps(pack_game(name, game))))
    assert type(again) is type(game) and again == game
    with pytest.raises(RuntimeError, match="not open"):
        _ = again.judge.tests


def test_the_judge_of_a_game_is_opened_on_the_worker() -> None:
    @dataclass
    class Judged(Game):
        seats: ClassVar[tuple[str, ...]] = ("writer",)

        def make_judge(self, sandbox: str) -> Any:
            return Ruling(sandbox)

        async def play(self, task: Task, table: Any) -> Outcome:
            await table["writer"].act("write")
            ruling = await table.judge(self.judge.rule())
            return Outcome(writer=float(ruling.passed))

    class Ruling:
        opened: ClassVar[list[str]] = []

        def __init__(self, sandbox: str) -> None:
            self.sandbox = sandbox

        async def __aenter__(self) -> Ruling:
            self.opened.append(self.sandbox)
            return self

        async def __aexit__(self, *error: object) -> None:
            self.opened.remove(self.sandbox)

        async def rule(self) -> Verdict:
            return Verdict("pass")

    async def scene() -> list[Episode]:
        actors = [FakeActor(), FakeActor()]
        pool = pool_of(*actors)
        game = Judged()
        jobs = [Job(str(i), "judged", game, Task(str(i)), i, {"writer": "main"}) for i in range(8)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sparring.engines.worker.game_class", lambda name: Judged)
            async with opened([game], "here"):
                played = await pool.collect(jobs)
        assert sorted(Ruling.opened) == ["bubblewrap", "bubblewrap"]  # those of the workers
        await pool.close()
        return played

    played = asyncio.run(scene())
    assert [e.rewards for e in played] == [{"writer": 1.0}] * 8
    assert all(e.verdicts == [Verdict("pass")] for e in played) and Ruling.opened == []
