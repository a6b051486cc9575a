"""A worker whose environments count steps, and hang, raise, or end their process when told to."""

import os
import time

from sparring.bridges.host import serve

steps: dict[int, int] = {}


def open_environment(environment: int, **_: object) -> dict:
    steps[environment] = 0
    return {"player": 0, "observation": "0"}


def step(environment: int, action: str) -> dict:
    if action == "hang":
        time.sleep(60)
    if action == "raise":
        raise RuntimeError("out of cards")
    if action == "exit":
        os._exit(1)
    steps[environment] += 1
    print("an environment may print what it likes")
    if action == "end":
        return {"rewards": {0: steps[environment]}, "info": {}}
    return {"player": 0, "observation": str(steps[environment])}


if __name__ == "__main__":
    serve(
        {
            "open": open_environment,
            "step": step,
            "ids": lambda environment: {"counting": "counts"},
            "players": lambda **_: [1],
        },
        close=lambda number: steps.pop(number, None) and None,
    )
