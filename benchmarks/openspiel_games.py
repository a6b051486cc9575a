"""Plays every game of OpenSpiel with random players, for the table of docs/openspiel.md: which ones
can be played, how many information states they have, and why others cannot be."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import pyspiel

from sparring.bridges.openspiel import make_tree, open_game
from sparring.core.collect import Job, play
from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.core.tree import TreeTooLarge

SECONDS, COUNTING = 30, 8  # for a game, and for counting its information states


class TooLong(Exception):
    """A game took more than its time."""


def stop(*_: Any) -> None:
    raise TooLong


async def nobody(request: Any) -> Any:
    raise AssertionError("programs answer for themselves")


def row(name: str) -> str:
    kind = pyspiel.load_game(name).get_type() if pyspiel_loads(name) else None
    if kind is None:
        return f"| `{name}` | refused | needs parameters, as in `{name}(…)` |"
    try:
        made = open_game(name)
    except ConfigError as error:
        return f"| `{name}` | refused | {str(error).partition('here: ')[2]} |"
    game: Any = made(style="terse")
    episode = asyncio.run(play(Job("0", name, game, game.task(0), 0, seating(game)), nobody))
    if episode.void and "went on" not in episode.void:
        return f"| `{name}` | refused | {episode.void} |"
    signal.alarm(COUNTING)
    try:
        size = f"{len(make_tree(game).infosets):,}"
    except TreeTooLarge as error:
        size = "too many" if "more than" in str(error) else "not told apart"
    except TooLong:
        size = f"too many to count in {COUNTING} s"
    programs = [p for p in ("perfect", "scripted") if getattr(made, p) is not getattr(Game, p)]
    dynamics = "at once" if "SIMULTANEOUS" in str(kind.dynamics) else "in turn"
    turns = f"{len(episode.turns)} turns" if not episode.void else f"no end in {game.cap} moves"
    facts = f"{len(made.seats)} seats, {dynamics}, {turns}"
    return f"| `{name}` | {facts} | {size}{''.join(f', `{p}`' for p in programs)} |"


def seating(game: Game) -> dict[str, str]:
    return dict.fromkeys(game.seats, "random")


def pyspiel_loads(name: str) -> bool:
    kinds = {kind.short_name: kind for kind in pyspiel.registered_games()}
    return bool(kinds[name].default_loadable)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, stop)
    print("| game | at the table | information states, programs |\n| --- | --- | --- |")
    for name in sys.argv[1:] or pyspiel.registered_names():
        signal.alarm(SECONDS)
        try:
            print(row(name), flush=True)
        except TooLong:
            print(f"| `{name}` | refused | one game took more than {SECONDS} s |", flush=True)
        except Exception as error:
            print(f"| `{name}` | refused | {type(error).__name__}: {str(error)[:80]} |", flush=True)
        finally:
            signal.alarm(0)
