"""A person against a policy in the browser. What is hidden at the table stays hidden: a player sees
its own prompts and positions, and everything else when the game is over."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparring.core.collect import Job
from sparring.core.collect import play as play_game
from sparring.core.errors import ConfigError, nearest
from sparring.core.game import Game, opened
from sparring.core.scripted import programs
from sparring.core.tree import Infoset
from sparring.core.types import Episode, Request, Turn
from sparring.models.trained import game_options, trained_sampling
from sparring.run.games import load_game
from sparring.view.game_data import game_data
from sparring.view.markup import game_name, seat_name
from sparring.view.token_text import loader

PERSON = "person"
MOST_GAMES = 16  # at once; the oldest is given up for a new one
_engines: dict[str, Any] = {}


@dataclass
class Session:
    """One game that is being played."""

    game: Game
    name: str
    seat: str
    policy: str
    config: Mapping[str, Any]
    sandbox: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    request: Request | None = None  # the person's, while there is one to answer
    answer: asyncio.Future[str] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    episode: Episode | None = None
    error: str = ""
    engine: Any = None
    asked_as: str = ""
    task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            seating = {s: PERSON if s == self.seat else self.policy for s in self.game.seats}
            if self.policy not in programs(self.game).scripts:
                self.engine, self.asked_as = await _engine(self.policy)
                seating = {s: p if p == PERSON else self.asked_as for s, p in seating.items()}
            seed = secrets.randbits(32)
            job = Job("play", self.name, self.game, self.game.match_task(seed), seed, seating)
            sampling = trained_sampling(self.policy) if self.engine else None
            async with opened([self.game], self.sandbox):
                self.episode = await play_game(job, self.speak, sampling=sampling)
        except Exception as error:  # reported to the player, and nothing else is lost
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.news.set()

    async def speak(self, request: Request) -> Turn:
        if request.policy != PERSON:
            turn: Turn = await self.engine.act(request)
            return turn
        while self.request is not None:  # a seat may be asked for several things at once
            await asyncio.sleep(0.05)
        self.request, self.answer = request, asyncio.get_running_loop().create_future()
        self.news.set()
        text = await self.answer
        prompt = request.messages[-1]["content"]
        return Turn(seat=request.seat, policy=PERSON, prompt=prompt, text=text, finish="person")

    async def reply(self, text: str) -> None:
        """Give the person's answer, and wait for what comes of it."""
        if self.request is None or self.answer is None:
            raise ConfigError("no move is awaited in this game")
        actions = self.request.view.actions if self.request.view else ()
        if actions and self.closed and text not in actions:
            raise ConfigError(f"{text!r} is no legal move here; {nearest(text, actions)}")
        answer, self.request = self.answer, None
        self.news.clear()
        answer.set_result(text)
        await self.settle()

    @property
    def closed(self) -> bool:
        """Whether the actions of a view are all there are: a move is then one word of a few."""
        view = self.request.view if self.request else None
        return view is not None and all(len(action) <= 12 for action in view.actions)

    async def settle(self, seconds: float = 120) -> None:
        try:
            await asyncio.wait_for(self.news.wait(), seconds)
        except TimeoutError:
            self.error = "The policy has not answered for two minutes."

    def state(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "id": self.id,
            "game": self.name,
            "title": game_name(self.name),
            "seat": self.seat,
            "seat_name": seat_name(self.seat),
            "policy": self.policy,
            "error": self.error,
            "over": None if self.episode is None else game_data(self.episode, self.config),
        }
        if self.request is not None:
            view = self.request.view
            values["asked"] = {
                "prompt": "\n\n".join(m["content"] for m in self.request.messages),
                "scene": self.game.scene(view, self.seat) if view else "",
                "actions": list(view.actions) if view else [],
                "names": list(self.game.action_names(view)) if view else [],
                "closed": self.closed,
            }
        return values

    def hint(self) -> dict[str, float]:
        """How likely the policy would be to choose each action in the person's place."""
        if self.request is None or self.engine is None or self.request.view is None:
            return {}
        actions = self.request.view.actions
        prompt = self.request.messages[-1]["content"]
        asked = Infoset(prompt, self.seat, prompt, actions)
        if not hasattr(self.engine, "probabilities"):  # a server, which says nothing of the kind
            return {}
        try:
            (row,) = self.engine.probabilities(self.asked_as, [asked], self.request.sampling)
        except (ValueError, NotImplementedError):  # not defined for replies of many tokens
            return {}
        return dict(zip(actions, row, strict=False))


class Sessions:
    def __init__(self) -> None:
        self.open: dict[str, Session] = {}

    async def start(self, config: Mapping[str, Any], wanted: Mapping[str, str]) -> Session:
        name, policy = wanted["game"], wanted["policy"]
        game = load_game(name, **_options(config, name, policy))
        seat = wanted.get("seat") or game.seats[0]
        if seat not in game.seats:
            raise ConfigError(f"{name} has no seat {seat!r}; {nearest(seat, game.seats)}")
        sandbox = str(config.get("sandbox") or "bubblewrap")
        session = Session(game, name, seat, policy, config, sandbox)
        while len(self.open) >= MOST_GAMES:
            oldest = self.open.pop(next(iter(self.open)))
            if oldest.task is not None:
                oldest.task.cancel()
        self.open[session.id] = session
        session.task = asyncio.create_task(session.run())
        await session.settle()
        return session


def _options(config: Mapping[str, Any], name: str, policy: str) -> dict[str, Any]:
    own = dict((config.get("games") or {}).get(name) or {})
    own.pop("weight", None)
    return own or game_options(name, policy, None)


async def _engine(policy: str) -> tuple[Any, str]:
    """An engine for a policy; the one of the last game, where it is the same policy."""
    from sparring.engines.load import load_player
    from sparring.models.trained import weights_of

    key = weights_of(policy)
    if key not in _engines:
        _engines.clear()  # one model at a time
        loop = asyncio.get_running_loop()
        _engines[key] = await loop.run_in_executor(loader, load_player, policy)
    engine, name = _engines[key]
    return engine, name
