"""What a turn costs through a Ray pool, and whether two replicas serve twice as many turns.

The replicas have no model: one answers at once, which leaves only the way there and back; the
other is a device that takes a few milliseconds per turn, one turn at a time."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pickle
import sys
import time
from typing import Any

from sparring.core.types import Request, Sampling, Turn
from sparring.engines.ray import RayPool
from sparring.run.cluster import RayConfig


class Policies:
    def names(self) -> list[str]:
        return ["base"]

    def version(self, name: str) -> int:
        return 0


class Device:
    """Answers after `seconds`, one request at a time, in as many tokens as a short reply has."""

    def __init__(self, seconds: float = 0.0, tokens: int = 64) -> None:
        self.policies, self.chat, self.base = Policies(), None, ""
        self.seconds, self.tokens = seconds, tokens
        self._turn = asyncio.Lock()

    async def act(self, request: Request) -> Turn:
        if self.seconds:
            async with self._turn:
                await asyncio.sleep(self.seconds)
        return Turn(
            request.seat, request.policy, request.messages[-1]["content"], "x" * self.tokens * 4,
            prompt_ids=list(range(200)), token_ids=list(range(self.tokens)),
            logprobs=[-0.5] * self.tokens,
        )  # fmt: skip


def request(i: int) -> Request:
    text = f"{i} " + "a prompt of about two hundred tokens " * 20
    return Request("a", "base", [{"role": "user", "content": text}], Sampling(), seed=i)


async def speed(act: Any, turns: int, at_once: int) -> float:
    """Turns per second, `at_once` of them waiting at any time."""
    pending = iter(range(turns))

    async def work() -> None:
        for i in pending:
            await act(request(i))

    await asyncio.gather(*(act(request(i)) for i in range(at_once)))  # warm
    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return turns / (time.perf_counter() - started)


def measure(seconds: float, replicas: int, turns: int, at_once: int) -> float:
    own: Any = Device()
    pool = RayPool(own, lambda: Device(seconds), RayConfig(replicas=replicas, cpus=0.1))
    try:
        return asyncio.run(speed(pool.act, turns, at_once))
    finally:
        pool.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--device-ms", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    import ray

    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    here = asyncio.run(speed(Device().act, asked.turns, asked.at_once))
    through = measure(0.0, 1, asked.turns, asked.at_once)
    one, two = (measure(asked.device_ms / 1000, n, asked.turns // 4, asked.at_once) for n in (1, 2))
    turn = asyncio.run(Device().act(request(0)))
    found = {
        "turns_per_s_in_process": round(here),
        "turns_per_s_through_ray": round(through),
        "overhead_us_per_turn": round(1e6 / through - 1e6 / here),
        "device_turns_per_s_one_replica": round(one, 1),
        "device_turns_per_s_two_replicas": round(two, 1),
        "two_over_one": round(two / one, 2),
        "bytes_per_request": len(pickle.dumps(request(0))),
        "bytes_per_turn": len(pickle.dumps(turn)),
        "load": [round(x, 1) for x in os.getloadavg()],
    }
    ray.shutdown()
    if asked.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key:34} {value}")


if __name__ == "__main__":
    main()
