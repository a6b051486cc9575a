"""The names of games, seats and opponents as people read them, and the colour of each seat."""

from __future__ import annotations

from sparring.core.errors import ConfigError
from sparring.core.formatting import humanise
from sparring.core.game import Game
from sparring.core.plugin import names
from sparring.core.scripted import RANDOM, strong_programs
from sparring.evaluation.standard import SAMPLED
from sparring.run.games import game_class

SEAT_COLOURS = 6  # that the style sheet has
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
    kind = _class_of(game)
    return (kind.title if kind else "") or humanise(game.rpartition(":")[2])


def _class_of(game: str) -> type[Game] | None:
    """A game's class; None where it is not known here, as when a run was played elsewhere."""
    try:
        return game_class(game) if game in names("games") or ":" in game else None
    except (ConfigError, ImportError):
        return None


def seat_name(seat: str) -> str:
    return seat.upper() if len(seat) == 1 else seat[:1].upper() + seat[1:]


def seats_of(game: str) -> tuple[str, ...]:
    """A game's seats; none where the game is not known here."""
    kind = _class_of(game)
    return tuple(kind.seats) if kind else ()


def programs_of(game: str) -> list[str]:
    """The players that a game itself brings, strongest first."""
    kind = _class_of(game)
    return [*strong_programs(kind), RANDOM] if kind else []


def seat_number(game: str, seat: str) -> int:
    """Which of its game's seats this is, counted from 0; 0 where the game is not known here."""
    seats = seats_of(game)
    return seats.index(seat) if seat in seats else 0


def seat_colour(game: str, seat: str) -> str:
    """Empty where the game is not known here: a chart then gives each curve another one."""
    known = seat in seats_of(game)
    return f"seat-{seat_number(game, seat) % SEAT_COLOURS}" if known else ""


def opponent_name(policy: str) -> str:
    """ "main@40" as "its self of iteration 40"."""
    if policy.endswith(SAMPLED):
        return f"{opponent_name(policy.removesuffix(SAMPLED))}, sampled"
    name, _, iteration = policy.partition("@")
    if name == "main" and iteration.isdigit():
        return f"its self of iteration {int(iteration)}"
    return OPPONENTS.get(policy, policy)
