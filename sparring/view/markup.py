"""The names of games and opponents, as the report says them."""

from __future__ import annotations

from sparring.core.errors import ConfigError
from sparring.core.formatting import humanise
from sparring.core.plugin import names
from sparring.run.games import game_class

OPPONENTS = {
    "random": "random play",
    "perfect": "perfect play",
    "scripted": "the scripted player",
    "base": "the untrained policy",
    "self": "itself",
    "main": "itself",
}


def game_name(game: str) -> str:
    """The title that a game gives itself, or its name in words."""
    if game in names("games") or ":" in game:
        try:
            title: str = game_class(game).title
            return title or humanise(game.rpartition(":")[2])
        except (ConfigError, ImportError):
            pass  # a run may have been played where another plug-in was installed
    return humanise(game.rpartition(":")[2])


def opponent_name(policy: str) -> str:
    """ "main@40" as "its self of iteration 40"."""
    name, _, iteration = policy.partition("@")
    if name == "main" and iteration.isdigit():
        return f"its self of iteration {int(iteration)}"
    return OPPONENTS.get(policy, policy)
