"""`sparring export verifiers GAME`: a package whose environment plays a game of ours in verifiers.
Every seat is an agent, and each of its turns a run of that agent with the seat's reward."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from string import Template
from typing import Any

from sparring.core.collect import Job, play
from sparring.core.errors import ConfigError
from sparring.core.scripted import PROGRAMS
from sparring.core.types import Episode, Request, Turn
from sparring.run.games import load_game
from sparring.run.rundir import holds_something

_played: ContextVar[Episode] = ContextVar("played")  # from an episode's run to its judgement
_PYPROJECT = Template("""\
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "$name"
version = "0.1.0"
description = "Sparring's $game as an environment for verifiers"
requires-python = ">=3.11"
dependencies = ["sparring[verifiers]"]

[tool.setuptools]
packages = ["$package"]
""")
_MODULE = Template('''\
"""Sparring's $game, for verifiers."""

from sparring.bridges.verifiers_export import exported

GameTaskset, GameEnv, ChatHarness = exported($game_repr, $options)

__all__ = ["ChatHarness", "GameEnv", "GameTaskset"]
''')
_README = Template("""\
# $name

Sparring's game `$game` as an environment for [verifiers](https://pypi.org/project/verifiers/).
Agents: $seats.

```
pip install -e .
vf-eval $name -m MODEL -n 20
```

Every turn of a player is one run of its agent, with the reward that its seat had in the game. A
game that is void fails its episode with the reason.
""")


def export_game(game: str, options: dict[str, Any], out: Path) -> dict[str, Any]:
    """Write the package; refuse a game that it cannot play, before anything is written."""
    table = load_game(game, **options)
    if table.problems:
        raise ConfigError(f"{game} does not make its own tasks, and an export has no others")
    odd = [seat for seat in table.seats if not seat.isidentifier()]
    if odd:
        raise ConfigError(f"verifiers cannot call an agent {odd[0]!r}, as {game} calls a seat")
    if holds_something(out):
        raise ConfigError(f"{out} is not empty; choose another folder")
    package = re.sub(r"\W+", "_", f"sparring_{game}").strip("_").lower()
    given = {
        "name": package.replace("_", "-"),
        "package": package,
        "game": game,
        "game_repr": repr(game),
        "options": repr(options),
        "seats": ", ".join(f"`{seat}`" for seat in table.seats),
    }
    files = {"pyproject.toml": _PYPROJECT, "README.md": _README, f"{package}/__init__.py": _MODULE}
    for name, template in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(template.substitute(given))
    return {"out": str(out), "package": package, "agents": list(table.seats)}


def exported(name: str, options: dict[str, Any]) -> tuple[type, type, type]:
    """The taskset, the environment and the harness that a package exports."""
    import verifiers.v1 as vf
    from pydantic import create_model

    from sparring.bridges.verifiers_chat import ChatHarness

    game = load_game(name, **options)

    class GameData(vf.TaskData):
        seed: int = 0

    class GameTask(vf.Task[GameData]):
        """Judged by the environment, when the whole game is over."""

    class GameTasks(vf.TasksetConfig):
        count: int = 100
        seed: int = 0

    class GameTaskset(vf.Taskset[GameTask, GameTasks]):
        def load(self) -> Iterator[GameTask]:
            for i in range(self.config.count):
                yield GameTask(GameData(seed=self.config.seed + i), self.config.task)

    here = vf.AgentConfig(runtime=vf.SubprocessConfig())
    seats: dict[str, Any] = {seat: (vf.AgentConfig, here) for seat in game.seats}
    config = create_model("GameConfig", __base__=vf.EnvConfig, **seats)

    class GameEnv(vf.Env[config]):
        async def run(self, task: Any, agents: Any) -> None:
            seed = task.data.seed

            async def speak(request: Request) -> Turn:
                messages = [*request.history, *request.messages]
                turn = GameTask(GameData(prompt=messages, seed=seed), self.taskset.config.task)
                trace = await getattr(agents, request.seat).run(turn)
                if not trace.ok:
                    raise RuntimeError(f"{request.seat} could not be asked: {trace.last_error}")
                text = trace.messages[-1].content or ""  # as it was said, white space and all
                return Turn(request.seat, request.policy, messages[-1]["content"], text)

            seating = {seat: seat for seat in game.seats}
            if set(seating) & set(PROGRAMS):
                raise RuntimeError(f"a seat of {name} has the name of a program")
            episode = await play(Job("0", name, game, game.match_task(seed), seed, seating), speak)
            if episode.void is not None:
                raise RuntimeError(f"the game is void: {episode.void}")
            _played.set(episode)

        async def finalize(self, task: Any, episode: Any) -> None:
            played = _played.get()
            for trace in episode.traces:
                trace.record_reward("reward", played.rewards[trace.agent.name])
                trace.info["facts"] = json.loads(json.dumps(played.facts, default=str))

    return GameTaskset, GameEnv, ChatHarness
