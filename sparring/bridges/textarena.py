"""TextArena's environments as games: `textarena:ID`. Observations, errors and rewards are the
package's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from sparring.bridges.host import Environment, EnvironmentFailed
from sparring.bridges.hosted import PATIENCE, Hosted, class_of, ids
from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.run.games import Count

_WORKER = "sparring.bridges.textarena_worker"


@dataclass
class TextArena(Hosted):
    worker: ClassVar[str] = _WORKER

    players: Count | None = None  # None: the least that can play, two or more where possible

    def __post_init__(self) -> None:
        settings = json.dumps(self.settings, sort_keys=True)
        if self.players is None:
            self.players = _player_counts(self.env_id, settings)[0]
        elif self.players not in (able := _player_counts(self.env_id, settings, first=False)):
            raise ValueError(f"players: {self.players} cannot play it; there can be {able}")
        vars(self)["seats"] = tuple(f"player_{i}" for i in range(self.players))
        vars(self)["cooperative"] = self.players == 1


def game(env_id: str) -> type[Game]:
    """The game of an id; `-raw` ids show a player only what is new."""
    return class_of(TextArena, env_id, "TextArena", conversation=env_id.endswith("-raw"))


def listing() -> dict[str, str]:
    """Every id with its class and settings."""
    return ids(_WORKER)


@cache
def _player_counts(env_id: str, settings: str, first: bool = True) -> list[int]:
    """With how many players it can be begun with these settings, which are JSON."""
    try:
        counts: list[int] = Environment(_WORKER, PATIENCE, worker=0).call_now(
            "players", game=env_id, settings=json.loads(settings), first=first
        )
        return counts
    except EnvironmentFailed as error:
        raise ConfigError(f"{env_id} cannot be begun here: {_advice(str(error))}") from None


def _advice(reason: str) -> str:
    """What to do about the reasons that TextArena's environments are known to have."""
    known = {
        "LookupError": "run `python -m nltk.downloader words averaged_perceptron_tagger_eng` once",
        "API key": "set OPENROUTER_API_KEY, since a model elsewhere is its referee",
        "SyntaxError": "use Python 3.12 or newer, which its source is written for",
    }
    advice = next((add for sign, add in known.items() if sign in reason), "")
    return f"{advice} ({' '.join(reason.split())[:120]})" if advice else reason
