"""Who sits where by a config, and which policies learn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.core.scripted import PROGRAMS
from sparring.core.types import BASE, MAIN
from sparring.run.config import Config


def own_seating(config: Config, seats: Sequence[str]) -> dict[str, str]:
    """The players whose seats these are."""
    return {seat: config.players.get(seat, MAIN) for seat in seats}


def frozen(policy: str, config: Config) -> bool:
    """Whether a player is frozen: the base, a program, RUN@STEP, or on a server."""
    return policy == BASE or policy in PROGRAMS or policy in config.servers or "@" in policy


def learning_seats(config: Config, games: Iterable[Game]) -> frozenset[str]:
    seats = {seat for game in games for seat in game.seats}
    if config.learn.seats is not None:
        seats &= set(config.learn.seats)
    return frozenset(s for s in seats if not frozen(config.players.get(s, MAIN), config))


def learned_policies(config: Config, games: Iterable[Game]) -> list[str]:
    """The policies that sit in learning seats."""
    policies = {config.players.get(seat, MAIN) for seat in learning_seats(config, games)}
    if not policies:
        raise ConfigError("nothing learns: each seat of `learn.seats` is played by a frozen policy")
    return sorted(policies)
