"""Errors that a person can mend: the command line prints their message and no traceback. One about
an unknown word names the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST = 30  # words that a person reads


class ConfigError(ValueError):
    """What a person wrote cannot be used; the message names the nearest thing that can."""


class GameError(RuntimeError):
    """A game's own code is wrong; the message names the game, its file and the line."""


class UnknownName(ConfigError):
    """Nothing goes by this name."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message about `word`."""
    words = sorted(known)
    close = close_to(word, words, cutoff=0.6)
    if close:
        return f"did you mean {close!r}?"
    if len(words) > MOST:
        few = difflib.get_close_matches(word, words, n=5, cutoff=0.0)
        return f"of {len(words)} the nearest are: {', '.join(few)}"
    return f"there are: {', '.join(words) or 'none'}"


def close_to(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known word that this one is nearly, if there is one."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1, cutoff=cutoff)), None)
