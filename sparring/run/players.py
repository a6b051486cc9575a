"""Who sits where, which policies learn, and what they begin with. Every name under `players` and
`opponents.players` means a player. A policy that learns is called like its seat, or is declared:
any other name would be a slip that trains."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError, nearest
from sparring.core.scripted import PROGRAMS
from sparring.core.types import BASE, MAIN

if TYPE_CHECKING:
    from sparring.core.game import Game
    from sparring.run.config import Config, OpponentsConfig

DEMONSTRATIONS = "demonstrations"
IMITATED = (*PROGRAMS, DEMONSTRATIONS)
_NAME = re.compile(r"[A-Za-z]\w*([.-]\w+)*")


def check_players(
    players: Mapping[str, str], opponents: Iterable[str], declared: Collection[str]
) -> None:
    """Refuse unknown names; `declared` are servers, and policies that learn by another key's
    word."""
    known = {MAIN, BASE, *PROGRAMS, *declared}
    for seat, policy in players.items():
        if policy in (*known, seat) or "@" in policy:
            continue
        if not _NAME.fullmatch(policy):
            raise ConfigError(
                f"players.{seat}: {policy!r} is no name of a policy (letters, digits and "
                "underscores); a checkpoint of a run is RUN@STEP"
            )
        raise ConfigError(
            f"players.{seat}: no player is called {policy!r}; a new policy that learns is called "
            f"like its seat (players.{seat}={seat}) or declared (learn.policies=[{policy}]); "
            f"{nearest(policy, {*known, seat})}"
        )
    known |= set(players.values())
    for policy in opponents:
        if policy not in known and "@" not in policy:
            raise ConfigError(
                f"opponents.players: no player is called {policy!r}; {nearest(policy, known)} "
                "Others are RUN@STEP, or MODEL@URL"
            )


def take_population(opponents: OpponentsConfig) -> None:
    """Make the members of a run's league, or of a tournament, the players to be met, each as often
    as the mixture says. The config keeps both, whatever becomes of that folder."""
    if opponents.weights and len(opponents.weights) != len(opponents.players):
        raise ConfigError(
            f"opponents.weights has {len(opponents.weights)} numbers for "
            f"{len(opponents.players)} players"
        )
    if opponents.population is None or opponents.players:
        return
    if opponents.kind != "players":
        raise ConfigError(
            f"opponents.population is for opponents.kind `players`; it is `{opponents.kind}`"
        )
    known = _read_population(Path(opponents.population))
    mixture = known.get(opponents.mixture) or dict.fromkeys(known["players"], 1.0)
    met = {name: weight for name, weight in mixture.items() if weight > 1e-3}
    opponents.players = [known["policies"][name] for name in met]
    opponents.weights = [round(weight, 6) for weight in met.values()]


def _read_population(folder: Path) -> dict[str, Any]:
    file = folder / "population.json"
    try:
        known: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"opponents.population: there is no population in {folder} ({error}); it is a run with "
            "opponents.kind `league`, or the folder of `sparring tournament`"
        ) from None
    if not known.get("players"):
        raise ConfigError(f"opponents.population: the population in {folder} has no members yet")
    return known


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
    games = list(games)
    policies = {config.players.get(seat, MAIN) for seat in learning_seats(config, games)}
    if not any(game.seats for game in games):
        raise ConfigError("no game has a seat; its class names them: seats = ('first', 'second')")
    if not policies:
        raise ConfigError("nothing learns: each seat of `learn.seats` is played by a frozen policy")
    return sorted(policies)


def imitated(policy: str) -> tuple[str, str] | None:
    """("scripted", "2000") of `scripted:2000`; None where `policy` names weights that exist."""
    kind, colon, source = policy.partition(":")
    return (kind, source) if colon and kind in IMITATED else None


def check_imitated(begin: Mapping[str, str]) -> None:
    for name, policy in begin.items():
        kind, source = imitated(policy) or ("", "")
        if kind in PROGRAMS and not (source.isdigit() and int(source) > 0):
            raise ConfigError(
                f"begin.{name}={policy}: {kind}:GAMES wants a number of games, as in {kind}:2000"
            )
