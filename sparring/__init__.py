"""Language models that learn by playing each other, under a judge that cannot be talked round.

Everything public is here. Names are imported when they are first used, so that `import sparring`
costs nothing.

>>> import sparring
>>> sparring.Task(id="1").id
'1'
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparring.api import (
        Policy,
        Run,
        evaluate,
        load_config,
        load_policy,
        load_run,
        play,
        train,
    )
    from sparring.core.errors import ConfigError
    from sparring.core.game import Forfeit, Frame, Game, Outcome
    from sparring.core.plugin import Plugin
    from sparring.core.table import Player, Table
    from sparring.core.types import (
        Episode,
        Request,
        Sample,
        Sampling,
        Task,
        Turn,
        Verdict,
        View,
        VoidGame,
    )
    from sparring.run.games import load_game

if hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
    # Set before torch is loaded. Threads that spin while they wait for each other are 1.3 times as
    # fast on idle cores, and ten and more times as slow where others want the cores too. No number
    # depends on it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_PUBLIC = {
    "api": "Policy Run evaluate load_config load_policy load_run play train",
    "core.errors": "ConfigError",
    "core.game": "Forfeit Frame Game Outcome",
    "core.plugin": "Plugin",
    "core.table": "Player Table",
    "core.types": "Episode Request Sample Sampling Task Turn Verdict View VoidGame",
    "run.games": "load_game",
}
_WHERE = {name: f"sparring.{module}" for module in _PUBLIC for name in _PUBLIC[module].split()}

__all__ = [
    "ConfigError",
    "Episode",
    "Forfeit",
    "Frame",
    "Game",
    "Outcome",
    "Player",
    "Plugin",
    "Policy",
    "Request",
    "Run",
    "Sample",
    "Sampling",
    "Table",
    "Task",
    "Turn",
    "Verdict",
    "View",
    "VoidGame",
    "evaluate",
    "load_config",
    "load_game",
    "load_policy",
    "load_run",
    "play",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sparring' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
