"""What today's rules, judge and credits say of a game on record: its turns are played again as they
were spoken. Nothing is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sparring.core.collect import Job, play
from sparring.core.errors import ConfigError
from sparring.core.game import opened
from sparring.core.plugin import names
from sparring.core.table import Speak
from sparring.core.types import Episode, Request, Turn, VoidGame
from sparring.credit import make_credit
from sparring.run.config import CreditConfig
from sparring.run.games import load_game


async def replay(episode: Episode, config: Mapping[str, Any]) -> dict[str, Any]:
    """Play an episode again with its own words; what comes of it, and whether that differs."""
    options = dict((config.get("games") or {}).get(episode.game) or {})
    options.pop("weight", None)
    game = load_game(episode.game, **options)
    seats = {seat: f"on record: {seat}" for seat in episode.seating}  # programs are not asked again
    job = Job(episode.id, episode.game, game, episode.task, episode.seed, seats, episode.group)
    async with opened([game], str(config.get("sandbox") or "bubblewrap")):
        again = await play(job, as_recorded(episode.turns))
    return {
        "rewards": again.rewards,
        "void": again.void,
        "verdicts": [{"status": v.status, "kind": v.kind} for v in again.verdicts],
        "same": again.rewards == episode.rewards and (again.void is None) == (episode.void is None),
    }


def as_recorded(turns: Sequence[Turn]) -> Speak:
    """Answers each request with the turn on record: the one with the same prompt, or the
    seat's next."""
    left: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        left[turn.seat].append(turn)

    async def speak(request: Request) -> Turn:
        own = left[request.seat]
        if not own:
            raise VoidGame(f"today's rules ask {request.seat} once more than is on record")
        prompt = request.messages[-1]["content"]
        turn = next((t for t in own if t.prompt == prompt), own[0])
        own.remove(turn)
        return turn

    return speak


def credits(episode: Episode, beside: Sequence[Episode]) -> dict[str, list[float]]:
    """The advantage of each turn by each kind of credit, from the games of the iteration alone:
    baselines begin at nothing. Those that need a critic are left out."""
    fair = [one for one in beside if one.void is None]
    at = next((i for i, one in enumerate(fair) if one.id == episode.id), None)
    if at is None:
        return {}
    by_kind = {}
    for kind in names("credit"):
        credit = make_credit(CreditConfig(kind=kind))
        if not credit.uses_critic:
            try:
                by_kind[kind] = credit.advantages(fair)[at]
            except (ConfigError, KeyError, ValueError):
                continue  # a credit that these games do not suit
    return by_kind
