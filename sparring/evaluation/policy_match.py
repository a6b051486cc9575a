"""A match between any two players, as the first of them was trained to play."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.scripted import PROGRAMS
from sparring.core.table import Speak
from sparring.core.types import Sampling
from sparring.engines.load import load_opponent, load_player
from sparring.evaluation.arena import match
from sparring.evaluation.sampling import described, noted
from sparring.evaluation.standard import opponents_of
from sparring.models.trained import (
    find_trained,
    first_game,
    game_options,
    need_model,
    run_config,
    trained_sampling,
)
from sparring.run.games import load_game
from sparring.run.servers import server_of

log = logging.getLogger(__name__)


def play_match(
    policy: str,
    against: str,
    games: int,
    *,
    game: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The score as the policy saw it, and how it was asked: the limits and the prompts are those
    of its run, unless others are given."""
    chosen = game or first_game(policy)
    options = game_options(chosen, policy, None)
    table = load_game(chosen, **options)
    opponent = against
    if against in PROGRAMS and against not in opponents_of(table):
        raise ConfigError(f"{chosen} has no {against} player")
    if against not in PROGRAMS and server_of(against, {}) is None and not find_trained(against):
        need_model(against, programs=True)
    config = run_config(policy)
    if temperature is None:
        temperature = config.evaluate.temperature if config else 0.0
    sampling = replace(trained_sampling(policy), temperature=temperature)
    sampling = replace(sampling, max_tokens=max_tokens or sampling.max_tokens)
    engine, name = load_player(policy)
    speak: Speak = engine.act
    if against not in PROGRAMS:
        speak, opponent = load_opponent(engine, against)
        _warn_of_others(chosen, policy, against)
    used: set[Sampling] = set()
    score, _ = asyncio.run(
        match(
            chosen, table, noted(speak, name, used), name, opponent, games, seed=seed,
            sampling=sampling,
        )
    )  # fmt: skip
    return {**score.as_dict(), **described(table, used)}


def _warn_of_others(game: str, policy: str, against: str) -> None:
    """One table has one style of prompts and one limit; who was trained with others is not at
    their best."""
    theirs = run_config(against)
    if theirs is None or run_config(policy) is None:
        return
    mine, other = (
        {**game_options(game, who, None), "max_tokens of a reply": trained_sampling(who).max_tokens}
        for who in (policy, against)
    )
    for key in sorted(k for k in mine.keys() | other.keys() if mine.get(k) != other.get(k)):
        log.warning(
            "%s was trained with %s=%s and plays here with %s, as %s was",
            against, key, other.get(key), mine.get(key), policy,
        )  # fmt: skip
