"""TextArena's side of the bridge, run in a worker process. Its environments draw from the global
random streams, so each has streams of its own that are put in place while it runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import textarena
from textarena.envs.registration import ENV_REGISTRY

from sparring.bridges.host import serve

COUNTS = (*range(2, 16), 1)  # tried in this order; the first that can be played is the default
_open: dict[int, tuple[Any, list[Any]]] = {}  # number -> environment, its random streams


@contextmanager
def _streams(states: list[Any]) -> Iterator[None]:
    if states:
        random.setstate(states[0])
        np.random.set_state(states[1])
    try:
        yield
    finally:
        states[:] = random.getstate(), np.random.get_state()


def open_environment(
    environment: int, game: str, players: int, seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    random.seed(seed)
    np.random.seed(seed)
    states: list[Any] = []
    with _streams(states):
        env = textarena.make(game, **settings)
        env.reset(num_players=players, seed=seed)
        _open[environment] = env, states
        return _observation(env)


def step(environment: int, action: str) -> dict[str, Any]:
    env, states = _open[environment]
    with _streams(states):
        done, _ = env.step(action=action)
        if not done:
            return _observation(env)
        rewards, info = env.close()
    return {
        "rewards": None if rewards is None else {int(k): float(v) for k, v in rewards.items()},
        "info": json.loads(json.dumps(info, default=str)),
    }


def _observation(env: Any) -> dict[str, Any]:
    player, seen = env.get_observation()
    if not isinstance(seen, str):  # `-raw`: the messages since this player's last turn
        names = env.state.role_mapping
        seen = "\n".join(f"[{names.get(sender, f'Player {sender}')}] {m}" for sender, m, *_ in seen)
    return {"player": int(player), "observation": seen}


def player_counts(environment: int, game: str, settings: dict[str, Any], first: bool) -> list[int]:
    """With how many players a game can be begun, or the first such number; TextArena's error
    where there is none."""
    possible, errors = [], []
    for count in COUNTS:
        try:
            open_environment(environment, game, count, 0, settings)
            possible.append(count)
            if first:
                break
        except Exception as error:
            errors.append(error)
            if not isinstance(error, AssertionError | ValueError | IndexError | KeyError):
                break  # nothing that another number of players would mend
        finally:
            _open.pop(environment, None)
    if not possible:  # a wrong number of players explains less than anything else
        raise min(errors, key=lambda error: isinstance(error, AssertionError))
    return sorted(possible)


def ids(environment: int) -> dict[str, str]:
    """Every id, with the environment's class and its settings."""
    return {
        name: f"{spec.entry_point.rsplit(':', 1)[-1].removesuffix('Env')} "
        + ", ".join(f"{key}={str(value)[:40]}" for key, value in spec.kwargs.items())
        for name, spec in ENV_REGISTRY.items()
    }


if __name__ == "__main__":
    serve(
        {"open": open_environment, "step": step, "ids": ids, "players": player_counts},
        close=lambda number: _open.pop(number, None) and None,
    )
