"""A person at the table: sees what a policy would see, and types what it would say."""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sparring.core.game import Game
from sparring.core.table import Speak
from sparring.core.types import Episode, Request, Turn

PERSON = "person"
_TERSE = 40  # characters: a shorter prompt is written for a tiny model, not for a person


def play_in_terminal(
    name: str,
    policy: str,
    seat: str | None,
    style: str | None,
    seed: int | None,
    say: Callable[[str], None],
) -> None:
    """One match of a person against a policy, from its opening to a closing sentence. Without a
    seed it is another one each time."""
    from sparring.core.collect import Job, play
    from sparring.core.errors import ConfigError, nearest
    from sparring.core.game import opened
    from sparring.engines.load import load_player
    from sparring.models.trained import game_options, trained_sampling
    from sparring.run.games import load_game
    from sparring.run.rundir import RunError

    game = load_game(name, **game_options(name, policy, style))
    mine = seat or game.seats[0]
    if mine not in game.seats:
        raise ConfigError(f"{name} has no seat {mine!r}; {nearest(mine, game.seats)}")
    engine, other = load_player(policy)
    seating = {s: PERSON if s == mine else other for s in game.seats}
    seed = secrets.randbits(32) if seed is None else seed
    job = Job("play", name, game, game.match_task(seed), seed, seating)
    say(f"{game.title or name}: you are {mine}. Ctrl-C ends the game.")

    async def match() -> Episode:
        async with opened([game]):
            speak = with_person(engine.act, input, say, game)
            return await play(job, speak, sampling=trained_sampling(policy))

    try:
        episode = asyncio.run(match())
    except EOFError:
        raise RunError("the input ended before the game did") from None
    for turn in episode.turns:
        say(f"{turn.seat}> {turn.text}")
    say(closing(episode, mine))


def with_person(
    speak: Speak,
    ask: Callable[[str], str],
    say: Callable[[str], None],
    game: Game,
) -> Speak:
    """Requests of the policy `person` go to the keyboard, all others on to the engine. What the
    others reply is not printed: what a player may know of it is in the next prompt."""

    async def answer(request: Request) -> Turn:
        if request.policy != PERSON:
            turn = await speak(request)
            say(f"({request.seat} has moved)")
            return turn
        prompt, view = request.messages[-1]["content"], request.view
        actions, names = (view.actions, game.action_names(view)) if view else ((), ())
        terse = len(prompt) < _TERSE
        position = picture(game.in_words(view)) if view and terse else prompt
        listed = ", ".join(
            action if action == name else f"{action}: {name}"
            for action, name in zip(actions, names, strict=True)
        )
        choices = f"\n[{listed}]" if view else ""
        text = (await _typed(ask, f"{position}{choices}\n{request.seat}> ")).strip()
        while actions and text not in actions and text not in names:
            again = f"{text!r} is not one of: {listed}\n{request.seat}> "
            text = (await _typed(ask, again)).strip()
        if text not in actions and text in names:
            text = actions[names.index(text)]
        return Turn(seat=request.seat, policy=PERSON, prompt=prompt, text=text, finish="person")

    return answer


async def _typed(ask: Callable[[str], str], prompt: str) -> str:
    """What is typed. In a daemon thread, so that Ctrl-C need not be followed by
    Enter."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def settle(finish: Callable[[Any], None], result: Any) -> None:
        if not typed.done():
            finish(result)

    def wait() -> None:
        try:
            text = ask(prompt)
        except BaseException as error:
            loop.call_soon_threadsafe(settle, typed.set_exception, error)
        else:
            loop.call_soon_threadsafe(settle, typed.set_result, text)

    threading.Thread(target=wait, daemon=True).start()
    return await typed


def closing(episode: Episode, mine: str) -> str:
    """How it ended, in a sentence."""
    if episode.void is not None:
        return f"The game is void: {episode.void}."
    why = episode.facts.get("reason") or episode.facts.get("end")
    because = f" ({why})" if isinstance(why, str) else ""
    return f"{_result(episode.rewards, mine)}{because}."


def _result(rewards: Mapping[str, float], mine: str) -> str:
    own = rewards.get(mine, 0.0)
    others = {seat: reward for seat, reward in rewards.items() if seat != mine}
    if not others:
        return f"You got {own:+g}"
    each = ", ".join(f"{seat} {reward:+g}" for seat, reward in others.items())
    best = max(others.values())
    if own == best:
        return f"Nobody is ahead: you have {own:+g}, {each}"
    return f"You {'won' if own > best else 'lost'}: {own:+g} for you, {each}"


def picture(state: Any) -> str:
    """A state as a person likes to see it: squares as squares, facts one to a line."""
    if isinstance(state, dict):
        return "\n".join(f"{key}: {value}" for key, value in state.items())
    text, side = str(state), math.isqrt(len(str(state)))
    if side < 3 or side * side != len(text) or len(text.split()) > 1:
        return text
    return "\n".join(" ".join(text[i : i + side]) for i in range(0, len(text), side))
