"""Errors that a person can mend: the command line prints their message and no traceback."""

from __future__ import annotations


class ConfigError(ValueError):
    """What a person wrote cannot be used; the message names the nearest thing that can."""


class GameError(RuntimeError):
    """A game's own code is wrong; the message names the game, its file and the line."""


class UnknownName(ConfigError):
    """Nothing goes by this name."""
