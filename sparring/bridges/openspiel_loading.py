"""OpenSpiel's games by name: which there are, and which can be played at a table."""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any

import pyspiel

from sparring.core.errors import ConfigError, UnknownName, nearest

log = logging.getLogger(__name__)

Kind = pyspiel.GameType
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
            "tenth")  # fmt: skip


def load_spiel(string: str) -> Any:
    """OpenSpiel's game, if it can be played here."""
    name = string.partition("(")[0]
    if name not in pyspiel.registered_names():
        raise UnknownName(
            f"OpenSpiel has no game {name!r}; {nearest(name, pyspiel.registered_names())}"
        )
    try:
        spiel, remark = _load(string)
    except pyspiel.SpielError as error:
        raise ConfigError(f"OpenSpiel cannot load {string}: {_first_line(error)}") from error
    reason = refusal(spiel)
    if reason:
        raise ConfigError(f"openspiel:{string} cannot be played here: {reason}")
    if remark:
        log.warning("OpenSpiel says of %s: %s", string, remark)
    return spiel


def refusal(spiel: Any) -> str:
    """Why a game cannot be played at a table; nothing where it can."""
    kind = spiel.get_type()
    if kind.dynamics == Kind.Dynamics.MEAN_FIELD:
        return "it is a mean field game, whose players are a crowd"
    if spiel.num_players() > len(ORDINALS):
        return f"it has {spiel.num_players()} players, and a table has {len(ORDINALS)} seats"
    hidden = kind.information != Kind.Information.PERFECT_INFORMATION
    texts = kind.provides_information_state_string or kind.provides_observation_string
    if hidden and not texts:
        return "it gives no text of what a player knows"
    return ""


def listing() -> dict[str, str]:
    """Every game that loads without parameters and can be played, with a line on it."""
    lines = {}
    for kind in pyspiel.registered_games():
        if kind.default_loadable:
            spiel, _ = _load(kind.short_name)
            if not refusal(spiel):
                lines[kind.short_name] = f"{kind.long_name}, {spiel.num_players()} players"
    return lines


def _load(string: str) -> tuple[Any, str]:
    """The game, and what OpenSpiel prints about it from C++, past Python's `sys.stderr`."""
    with tempfile.TemporaryFile() as printed:
        kept = os.dup(2)
        os.dup2(printed.fileno(), 2)
        try:
            spiel = pyspiel.load_game(string)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        printed.seek(0)
        return spiel, " ".join(printed.read().decode(errors="replace").split())


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
