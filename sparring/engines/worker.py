"""Plays whole games beside an engine and hands finished episodes back in batches. The process that
started it pays per message, not per turn; how messages travel is the business of the caller."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from sparring.core import plugin
from sparring.core.collect import Job, play
from sparring.core.errors import ConfigError, GameError
from sparring.core.game import Game
from sparring.core.tree import Infoset
from sparring.core.types import BASE, Episode, Request, Sampling, Turn, View, VoidGame
from sparring.engines.broadcast import Member, Offer, gpu_of
from sparring.engines.engine import Engine, settle
from sparring.engines.players import Players
from sparring.engines.published import checksum
from sparring.run.games import game_class
from sparring.run.rundir import RunError

Make = Callable[[], Any]  # called in the worker's process; gives its engine
Answer = Episode | Turn | Exception

_WAIT_S = 0.05  # how long a finished episode waits for others to travel with
_OPEN = ("judge", "_running")  # what a game has only while it is open


@dataclass
class Message:
    """What a worker is sent at once: games to play, requests to answer, answers to its own."""

    games: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)  # see `pack_game`
    jobs: list[tuple[int, Job, Sampling | None]] = field(default_factory=list)
    requests: list[tuple[int, Request]] = field(default_factory=list)
    answers: list[tuple[int, Turn | Exception]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    elsewhere: frozenset[str] = frozenset()  # policies whose requests the sender answers
    concurrency: int | None = None  # games at a time


@dataclass
class Reply:
    """What a worker hands back at once: what is finished, and requests to engines elsewhere."""

    last: int  # everything up to here is acknowledged when the next reply is asked for
    finished: list[tuple[int, Answer]]
    requests: list[tuple[int, Request]]


def pack_game(name: str, game: Game) -> tuple[str, dict[str, Any]]:
    """A game as a name, by which its class is found, and its attributes; its judge stays here."""
    return name, {key: value for key, value in vars(game).items() if key not in _OPEN}


def unpack_game(name: str, attributes: dict[str, Any]) -> Game:
    kind = game_class(name)
    game = kind.__new__(kind)
    Game.__init__(game)  # closed: without a judge
    vars(game).update(attributes)
    return game


def without_state(request: Request) -> Request:
    """Of what a game shows, an engine needs the legal actions at most; programs, all of it."""
    masked = request.view if request.sampling.mask_actions else None
    return replace(request, view=masked and View(None, masked.actions))


class Worker:
    """An engine, the judges of the games played here, and the weights it was given."""

    def __init__(self, make: Make, jail: str = "bubblewrap", folder: str = "") -> None:
        if folder:  # games may be named by files relative to where the run was started
            plugin.look_beside(Path(folder) / "run")
        self.engine = make()
        self.players = Players(self.engine)
        self.jail = jail
        self._games: dict[str, Game] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._jobs: set[int] = set()  # those of the tasks that are games
        self._seats = asyncio.Semaphore(512)  # games at a time
        self._concurrency = 512
        self._asked: dict[int, asyncio.Future[Turn]] = {}
        self._outbox: deque[tuple[int, str, int, Any]] = deque()  # sequence, kind, number, what
        self._sequence = self._due = 0
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._opening = asyncio.Lock()
        self._member = Member()

    def ready(self) -> tuple[str, str]:
        """Which version of the package runs here, and on which machine."""
        return metadata.version("sparring"), socket.gethostname()

    async def deliver(self, message: bytes) -> None:
        """Take what was sent; what cannot be used fails whatever it belongs to."""
        async with self._opening:
            try:
                await self._take(pickle.loads(message))
            except Exception as error:
                self._post("finished", -1, portable(error))
                self._release()

    async def _take(self, sent: Message) -> None:
        for name in sent.elsewhere - self.players.servers.keys():
            self.players.servers[name] = _Elsewhere(self)  # type: ignore[assignment]
        if sent.concurrency is not None and sent.concurrency != self._concurrency:
            self._concurrency, self._seats = sent.concurrency, asyncio.Semaphore(sent.concurrency)
        for key, packed in sent.games.items():
            game = unpack_game(*packed)
            await game.open(self.jail)
            self._games[key] = game
        for number, answer in sent.answers:
            if (future := self._asked.pop(number, None)) is not None:
                settle(future, answer)
        for number, request in sent.requests:
            self._start(number, self.players.act(request))
        for number, job, sampling in sent.jobs:
            self._jobs.add(number)
            self._start(number, self._play(job, number, sampling))
        for number in sent.cancelled:
            if number in self._tasks:
                self._tasks[number].cancel()

    def _start(self, number: int, work: Awaitable[Answer]) -> None:
        self._tasks[number] = asyncio.ensure_future(self._run(number, work))

    async def _run(self, number: int, work: Awaitable[Answer]) -> None:
        answer: Answer | None = None
        try:
            answer = await work
        except Exception as error:
            answer = portable(error)
        finally:
            del self._tasks[number]
            was_game = number in self._jobs
            self._jobs.discard(number)
            if answer is not None:
                self._post("finished", number, answer)
            if was_game and self._jobs and isinstance(answer, Episode):
                self._release_later()
            else:
                asyncio.get_running_loop().call_soon(self._release)

    async def _play(self, job: Job, order: int, sampling: Sampling | None) -> Episode:
        job = replace(job, game=self._games[job.game])  # type: ignore[index]
        async with self._seats:
            return await play(job, self.players.act, order, sampling, self.players.outside)

    async def ask(self, request: Request) -> Turn:
        """Send a request to an engine elsewhere, with all others that are made in this tick."""
        future: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        number = self._sequence + 1
        self._post("request", number, without_state(request))
        self._asked[number] = future
        asyncio.get_running_loop().call_soon(self._release)
        try:
            return await future
        finally:
            self._asked.pop(number, None)

    def _post(self, kind: str, number: int, what: Any) -> None:
        self._sequence += 1
        self._outbox.append((self._sequence, kind, number, what))

    def _release_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAIT_S, self._release)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = self._sequence
        self._wake.set()
        self._wake = asyncio.Event()

    async def results(self, seen: int) -> bytes:
        """Everything since `seen`, as soon as there is something. It is kept until a later call
        acknowledges it, so a caller that went away loses nothing."""
        while self._outbox and self._outbox[0][0] <= seen:
            self._outbox.popleft()
        while self._due <= seen:
            await self._wake.wait()
        new = [entry for entry in self._outbox if entry[0] > seen]
        finished = [(number, what) for _, kind, number, what in new if kind == "finished"]
        requests = [(number, what) for _, kind, number, what in new if kind == "request"]
        return pickle.dumps(Reply(new[-1][0] if new else self._due, finished, requests), protocol=5)

    async def lap(self) -> dict[str, float]:
        """How the time since the last call was spent: generating, judging, or neither."""
        return self.players.clock.lap()

    def probabilities(
        self, policy: str, infosets: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        probabilities: list[list[float]] = self.engine.probabilities(policy, infosets, sampling)
        return probabilities

    def gpu(self) -> str | None:
        """The GPU that computes here, by a name that is the same in every process."""
        return gpu_of(getattr(self.engine.policies, "device", None))

    async def receive(self, versions: dict[str, int], offer: Offer) -> dict[str, str]:
        """New weights for some policies, and the versions of all. Returns checksums of what has
        arrived, once it is in use."""
        loop, device = asyncio.get_running_loop(), getattr(self.engine.policies, "device", None)
        weights = await loop.run_in_executor(None, self._member.receive, offer, device)
        async with self._opening:  # what was cancelled before is known by then
            cancelled = [task for task in self._tasks.values() if task.cancelling()]
        await asyncio.gather(*cancelled, return_exceptions=True)
        await self.engine.idle()
        policies = self.engine.policies
        for name in [n for n in policies.names() if n != BASE and n not in versions]:
            policies.remove(name)
        sums = {}
        for name, state in weights.items():
            if name not in policies.names():
                policies.add(name)
            policies.load(name, state)
            mine = policies.state(name)
            if checksum({k: t.to(mine[k].dtype) for k, t in state.items()}) != checksum(mine):
                raise RuntimeError("the weights it holds are not those it was given")
            sums[name] = checksum(state)
        for name in versions.keys() & set(policies.names()):
            policies.set_version(name, versions[name])
        self.engine.publish()
        return sums

    async def close(self) -> None:
        """Stop judges and engine."""
        for task in list(self._tasks.values()):
            task.cancel()
        for game in self._games.values():
            await game.close()
        await self.engine.close()


class _Elsewhere(Engine):
    """Stands in a worker for an engine that the worker's owner holds."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    async def act(self, request: Request) -> Turn:
        return await self.worker.ask(request)


def portable(error: Exception) -> Exception:
    """An error that another process can load. One that nobody foresaw says where it was raised."""
    foreseen = isinstance(error, ConfigError | GameError | RunError | VoidGame)
    if not foreseen and not hasattr(error, "__notes__"):
        error.add_note(f"In worker {os.getpid()} on {socket.gethostname()}:")
        error.add_note("".join(traceback.format_tb(error.__traceback__)).rstrip())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        kinds = (VoidGame, ConfigError, GameError, RunError, RuntimeError)
        return next((kind for kind in kinds if isinstance(error, kind)), RuntimeError)(str(error))
    return error
