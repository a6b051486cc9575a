"""Workers in this process, and an engine without a model, for tests of pools."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from sparring.core.types import Request, Sampling, Turn, VoidGame
from sparring.engines.engine import OwnEngine
from sparring.engines.pool import WorkerPool
from sparring.engines.worker import Worker


def request(text: str = "hello", previous: Turn | None = None, seed: int = 0) -> Request:
    return Request(
        seat="a", policy="main", messages=[{"role": "user", "content": text}],
        sampling=Sampling(), seed=seed, previous=previous,
    )  # fmt: skip


class Words(OwnEngine):
    """An engine without a model: legal words by the request's seed, slowly enough to be killed."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.policies, self.chat, self.base = Names(), None, ""
        self.delay_s = delay_s

    async def act(self, asked: Request) -> Turn:
        await asyncio.sleep(self.delay_s)
        if asked.messages[-1]["content"] == "void":
            raise VoidGame("nothing to say")
        word = random.Random(asked.seed).choice("0123456789")
        facts = f"{os.getpid()} {self.policies.weights.get(asked.policy, 0)}"
        return Turn(
            asked.seat, asked.policy, facts, word, version=self.policies.version(asked.policy),
            prompt_ids=[len(m["content"]) for m in asked.messages], token_ids=[1], logprobs=[0.0],
        )  # fmt: skip

    def probabilities(self, policy: str, asked: Any, sampling: Any) -> list[list[float]]:
        return [[1.0, *[0.0] * (len(infoset.actions) - 1)] for infoset in asked]


class Names:
    """Policies without a model: one number each."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self.versions: dict[str, int] = {"base": 0}

    def names(self) -> list[str]:
        return list(self.versions)

    def version(self, name: str) -> int:
        return self.versions[name]

    def set_version(self, name: str, version: int) -> None:
        assert name in self.versions, f"{name} was not added"
        self.versions[name] = version

    def add(self, name: str) -> None:
        self.versions[name] = 0

    def remove(self, name: str) -> None:
        del self.versions[name]

    def state(self, name: str) -> dict[str, Any]:
        import torch

        return {"w": torch.tensor([self.weights[name]])}

    def load(self, name: str, state: dict[str, Any]) -> None:
        self.weights[name] = float(state["w"])


class FakeActor:
    """A worker in this process. It takes weights when it is let, and may die."""

    def __init__(self, gate: asyncio.Event | None = None, make: Any = None) -> None:
        self.worker, self.gate = Worker(make or Words), gate
        self.calls: Counter[str] = Counter()
        self.dead = asyncio.Event()
        self.taken = 0

    def die(self) -> None:
        self.dead.set()
        for task in list(self.worker._tasks.values()):
            task.cancel()

    async def called_for(self, name: str) -> None:
        while not self.calls[name]:
            await asyncio.sleep(0)

    async def _call(self, name: str, words: Any) -> Any:
        if name == "receive" and self.gate is not None:
            await self.gate.wait()
        result = getattr(self.worker, name)(*words)
        result = await result if asyncio.iscoroutine(result) else result
        self.taken += name == "receive"
        return result

    async def _call_or_die(self, name: str, words: Any) -> Any:
        calls = [
            asyncio.ensure_future(self._call(name, words)),
            asyncio.ensure_future(self.dead.wait()),
        ]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        if self.dead.is_set():
            calls[0].cancel()
            raise ConnectionError("the worker is dead")
        calls[1].cancel()
        return calls[0].result()

    def __getattr__(self, name: str) -> Any:
        def remote(*words: Any) -> Any:
            self.calls[name] += 1
            call = asyncio.ensure_future(self._call_or_die(name, words))
            call.add_done_callback(lambda done: done.cancelled() or done.exception())
            return call

        return type("Method", (), {"remote": staticmethod(remote)})


class FakeTransport:
    lost = (ConnectionError,)
    host = "127.0.0.1"

    def __init__(self, actors: list[FakeActor], workers: int = 2) -> None:
        self.actors, self.workers = iter(actors), workers

    def start(self, index: int) -> Any:
        return next(self.actors)

    def start_all(self) -> list[Any]:
        return [next(self.actors) for _ in range(self.workers)]

    def get(self, call: Any) -> Any:
        raise NotImplementedError

    def close(self, workers: Any) -> None:
        """Nothing runs outside of the event loop."""


def fake_pool(actors: list[FakeActor]) -> WorkerPool:
    return WorkerPool(with_main(), FakeTransport(actors), patience_s=20)


def with_main() -> Words:
    alone = Words()
    alone.policies.add("main")
    alone.policies.weights["main"] = 1.0
    return alone


def worker_in_this_process(set_attribute: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have games that are played ahead played here, where a test can look."""
    from sparring.engines.process import ProcessTransport

    def start(self: Any, index: int) -> FakeActor:
        return FakeActor(make=self._make())

    set_attribute(ProcessTransport, "start", start)
    set_attribute(ProcessTransport, "close", lambda self, workers: None)
