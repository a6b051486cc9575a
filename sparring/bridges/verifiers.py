"""verifiers' v1 environments as games: `verifiers:NAME` or `verifiers:OWNER/NAME`, installed as
packages. Every agent that no model is named for is a seat; rewards are the environment's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from sparring.bridges.host import Environment, EnvironmentFailed
from sparring.bridges.hosted import PATIENCE, Hosted
from sparring.core.errors import UnknownName
from sparring.core.game import Game

_WORKER = "sparring.bridges.verifiers_worker"


@dataclass
class Verifiers(Hosted):
    worker: ClassVar[str] = _WORKER

    def __post_init__(self) -> None:
        seats = _seats(self.env_id, json.dumps(self.settings, sort_keys=True))
        vars(self)["seats"] = tuple(seats)
        vars(self)["cooperative"] = len(seats) == 1


def game(name: str) -> type[Game]:
    return type(name, (Verifiers,), {"env_id": name, "title": name})


def listing() -> dict[str, str]:
    """What verifiers itself brings; an environment is any package, so others cannot be listed."""
    import pkgutil

    from verifiers.v1 import tasksets

    return {info.name: "shipped with verifiers" for info in pkgutil.iter_modules(tasksets.__path__)}


@cache
def _seats(name: str, settings: str) -> list[str]:
    try:
        seats: list[str] = Environment(_WORKER, PATIENCE, worker=0).call_now(
            "seats", game=name, settings=json.loads(settings)
        )
        return seats
    except EnvironmentFailed as error:
        raise UnknownName(
            f"verifiers cannot load {name!r} ({error}). An environment is an installed package: "
            f"`prime env install {name}` adds one of the hub, `pip install -e FOLDER` a local one"
        ) from None
