"""What a turn costs when games are played on workers through Ray, and how many turns a second go
through. The workers have no model: a scripted engine answers at once, a simulated device takes a
few milliseconds for each batch of requests. Turns have the size of a short reply's."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pickle
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sparring.core.collect import Job
from sparring.core.types import Episode, Request, Sampling, Task, Turn, derive
from sparring.credit import make_credit
from sparring.engines.engine import OwnEngine
from sparring.engines.pool import WorkerPool
from sparring.engines.ray import ray_pool
from sparring.run.config import CreditConfig
from sparring.run.games import load_game
from sparring.run.rundir import write_episodes
from sparring.run.sections import RayConfig

GOAL_TURNS_PER_S, GOAL_DRIVER_US = 10_000, 100


class Policies:
    def names(self) -> list[str]:
        return ["base"]

    def version(self, name: str) -> int:
        return 0


class Device(OwnEngine):
    """Draws a legal action by the request's seed; each batch takes `seconds`."""

    def __init__(self, seconds: float = 0.0, batch: int = 64, tokens: int = 64) -> None:
        self.policies, self.chat, self.base = Policies(), None, ""  # type: ignore[assignment]
        self.seconds, self.batch, self.tokens = seconds, batch, tokens
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def act(self, request: Request) -> Turn:
        if self.seconds:
            await self._computed()
        legal = request.view.actions if request.view else ("x",)
        action = random.Random(request.seed).choice(legal)
        return Turn(
            request.seat, request.policy, request.messages[-1]["content"], action,
            prompt_ids=list(range(200)), token_ids=list(range(self.tokens)),
            logprobs=[-0.5] * self.tokens, finish=f"{os.getpid()} {time.process_time()}",
        )  # fmt: skip

    async def _computed(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())
        await future

    async def _serve(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self.batch], self._waiting[self.batch :]
            await asyncio.sleep(self.seconds)
            for future in batch:
                future.set_result(None)


def make_jobs(count: int) -> list[Job]:
    game = load_game("tictactoe", style="terse")
    seating = dict.fromkeys(game.seats, "base")
    return [
        Job(str(i), "tictactoe", game, game.task(derive(i)), derive(i, "play"), seating)
        for i in range(count)
    ]


def request(i: int) -> Request:
    text = f"{i} " + "a prompt of about two hundred tokens " * 20
    return Request("a", "base", [{"role": "user", "content": text}], Sampling(), seed=i)


async def games(engine: Any, count: int, at_once: int) -> dict[str, float]:
    """Turns per second of whole games, and the time of this process that each turn took."""
    await engine.collect(make_jobs(at_once // 4), concurrency=at_once)  # workers import, open games
    jobs = make_jobs(count)
    started, busy = time.perf_counter(), time.process_time()
    episodes: list[Episode] = await engine.collect(jobs, concurrency=at_once)
    wall, spent = time.perf_counter() - started, time.process_time() - busy
    turns = [turn for episode in episodes for turn in episode.turns]
    assert [episode.id for episode in episodes] == [job.id for job in jobs]
    return {
        "turns_per_s": len(turns) / wall,
        "driver_us": 1e6 * spent / len(turns),
        "workers_us": 1e6 * _busy_elsewhere(turns) / len(turns),
    }


def _busy_elsewhere(turns: list[Turn]) -> float:
    """The processor time that workers spent between their first and their last turn."""
    clocks: dict[str, list[float]] = {}
    for turn in turns:
        process, seconds = turn.finish.split()
        clocks.setdefault(process, []).append(float(seconds))
    here = clocks.pop(str(os.getpid()), [])
    return sum(max(each) - min(each) for each in clocks.values()) if not here else 0.0


async def requests(engine: Any, count: int, at_once: int) -> dict[str, float]:
    """The same for requests of games that this process plays."""
    pending = iter(range(count))

    async def work() -> None:
        for i in pending:
            await engine.act(request(i))

    await asyncio.gather(*(engine.act(request(i)) for i in range(at_once)))
    started, busy = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    wall, spent = time.perf_counter() - started, time.process_time() - busy
    return {"turns_per_s": count / wall, "driver_us": 1e6 * spent / count}


def driver_work(count: int = 400) -> dict[str, float]:
    """What one process does with each turn of the scale model's load (512 ids in, 512 out) after
    it was played: load it, give credit, write it down. In microseconds."""
    ids, logprobs = [i % 50_000 for i in range(512)], [-0.1 - i / 512 for i in range(512)]
    turns = [
        Turn("a", "main", "x" * 2048, "y" * 2048, prompt_ids=ids[:], token_ids=ids[::-1],
             logprobs=logprobs[:], trainable=True)
        for _ in range(4)
    ]  # fmt: skip
    played = [Episode(str(i), "g", Task("t"), i, turns=turns, rewards={"a": i % 2})
              for i in range(count)]  # fmt: skip
    packed = [pickle.dumps(episode, protocol=5) for episode in played]
    turns_played, marks = 4 * count, [time.process_time()]
    loaded = [pickle.loads(each) for each in packed]
    marks.append(time.process_time())
    make_credit(CreditConfig()).samples(loaded)
    marks.append(time.process_time())
    with tempfile.TemporaryDirectory() as folder:
        write_episodes(Path(folder) / "episodes.jsonl.gz", loaded)
    marks.append(time.process_time())
    spent = {key: 1e6 * (b - a) / turns_played for key, a, b in
             zip(("load", "credit", "record"), marks, marks[1:], strict=False)}  # fmt: skip
    return {**spent, "bytes": len(packed[0]) / 4}


def through_ray(measure: Any, device: Device, workers: int, count: int, at_once: int) -> Any:
    seconds, batch = device.seconds, device.batch
    config = RayConfig(replicas=workers, cpus=0.1)
    pool: WorkerPool = ray_pool(Device(), lambda: Device(seconds, batch), config)
    try:
        return asyncio.run(measure(pool, count, at_once))
    finally:
        pool.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=6000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=1024, help="games at a time, on all workers")
    parser.add_argument("--device-ms", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    device, serial = Device(args.device_ms / 1000), Device(args.device_ms / 1000, batch=1)
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.repeats):
        for name, figures in {
            "games, no Ray": asyncio.run(games(Device(), args.games // 4, args.at_once)),
            "games, scripted": through_ray(games, Device(), args.workers, args.games, args.at_once),
            "games, device": through_ray(games, device, args.workers, args.games, args.at_once),
            "requests, scripted": through_ray(requests, Device(), 1, args.games // 2, 64),
            "1 worker, one turn at a time": through_ray(games, serial, 1, 60, 32),
            "2 workers, one turn at a time": through_ray(games, serial, 2, 60, 32),
        }.items():
            runs.setdefault(name, []).append(figures)
    ray.shutdown()
    turn = asyncio.run(Device().act(request(0)))
    result = {
        "runs": runs,
        "driver_us": driver_work(),
        "bytes_per_turn": len(pickle.dumps(turn)),
        "bytes_per_request": len(pickle.dumps(request(0))),
        "load": [round(x, 1) for x in os.getloadavg()],
    }
    if args.json:
        print(json.dumps(result))
        return
    for name, measured in runs.items():
        speeds, driver, workers = (
            ", ".join(f"{figures.get(key, 0):,.0f}" for figures in measured)
            for key in ("turns_per_s", "driver_us", "workers_us")
        )
        print(f"{name:30} {speeds:>24} turns/s; a turn: {driver} µs here, {workers} on workers")
    spent = ", ".join(f"{key} {value:,.0f}" for key, value in result["driver_us"].items())
    print(f"a turn of 512 and 512 ids, then, in µs: {spent}")
    print(f"goals with {args.workers} workers: {GOAL_TURNS_PER_S:,} turns/s, {GOAL_DRIVER_US} µs")
    print(f"bytes: {result['bytes_per_turn']} a turn, {result['bytes_per_request']} a request")
    print(f"load of the machine: {result['load']}")


if __name__ == "__main__":
    main()
