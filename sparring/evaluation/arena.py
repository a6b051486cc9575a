"""Matches: one policy against another, seats shared evenly, every result counted; and games that a
policy plays with itself, of a kind that is won together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sparring.core.collect import Job, collect
from sparring.core.game import Game
from sparring.core.table import Speak
from sparring.core.types import Episode, Sampling, derive

if TYPE_CHECKING:
    from sparring.evaluation.ratings import Result


@dataclass(frozen=True)
class Score:
    """A match as the first policy saw it. `invalid` counts its own invalid actions, which are
    losses too; void games are in none of the others, and games in which it or all others were never
    asked, and so not rewarded, in none at all. `reward` is the mean of `net_reward`."""

    games: int
    wins: int
    draws: int
    losses: int
    invalid: int
    void: int = 0
    reward: float = 0.0

    @property
    def points(self) -> float:
        """1 for a win, half for a draw, per game."""
        return (self.wins + self.draws / 2) / self.games if self.games else 0.0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


async def match(
    name: str,
    game: Game,
    speak: Speak,
    policy: str,
    opponent: str,
    games: int,
    *,
    sampling: Sampling,
    seed: int = 0,
    own: Sequence[str] = (),
) -> tuple[Score, list[Episode]]:
    """`games` games of `policy` against `opponent`, changing seats from one to the next; or always
    in seats of its own."""
    mine = [own or (game.seats[i % len(game.seats)],) for i in range(games)]
    jobs = [
        Job(
            id=f"{policy}-{opponent}-{i}",
            name=name,
            game=game,
            task=game.match_task(derive(seed, "match", i)),
            seed=derive(seed, "match", i, opponent),
            seating={seat: policy if seat in mine[i] else opponent for seat in game.seats},
        )
        for i in range(games)
    ]
    episodes = await collect(jobs, speak, sampling=sampling)
    return score(episodes, mine), episodes


def seated(seats: Sequence[str], index: int, policy: str, opponent: str) -> dict[str, str]:
    mine = seats[index % len(seats)]
    return {seat: policy if seat == mine else opponent for seat in seats}


def score(episodes: Sequence[Episode], sides: Sequence[Sequence[str]]) -> Score:
    """Count a match from one policy's seats in each game."""
    wins = draws = losses = invalid = void = 0
    total = 0.0
    for episode, side in zip(episodes, sides, strict=True):
        if episode.void is not None:
            void += 1
            continue
        ours, theirs = _by_side(episode.rewards, side)
        if not ours or not theirs:
            continue
        wins += max(ours) > max(theirs)
        draws += max(ours) == max(theirs)
        losses += max(ours) < max(theirs)
        invalid += episode.facts.get("invalid") in side
        total += net_reward(episode.rewards, side)
    games = wins + draws + losses
    return Score(games, wins, draws, losses, invalid, void, total / max(1, games))


def net_reward(rewards: Mapping[str, float], side: Sequence[str]) -> float:
    """Half of what a side's seats got above the others, on average; in a zero-sum game of two, a
    seat's reward."""
    ours, theirs = _by_side(rewards, side)
    return (sum(ours) / len(ours) - sum(theirs) / len(theirs)) / 2


def _by_side(rewards: Mapping[str, float], side: Sequence[str]) -> tuple[list[float], list[float]]:
    ours = [reward for seat, reward in rewards.items() if seat in side]
    return ours, [reward for seat, reward in rewards.items() if seat not in side]


async def round_robin(
    name: str,
    game: Game,
    speak: Speak,
    policies: Sequence[str],
    games: int,
    *,
    sampling: Sampling,
    seed: int = 0,
) -> list[Result]:
    """Every pair of policies, for `ratings.fit`; as many games more as share the seats evenly.
    Not for a temperature of 0: two deterministic players play one game over and over."""
    from sparring.evaluation.ratings import Result  # with numpy, which no game needs to be played

    pairs = [(a, b) for i, a in enumerate(policies) for b in policies[i + 1 :]]
    games += -games % len(game.seats)
    matches = [
        match(name, game, speak, a, b, games, seed=derive(seed, a, b), sampling=sampling)
        for a, b in pairs
    ]
    scores = [score for score, _ in await asyncio.gather(*matches)]
    return [
        Result(a, b, s.wins, s.draws, s.losses, s.reward)
        for (a, b), s in zip(pairs, scores, strict=True)
    ]


async def with_itself(
    name: str,
    game: Game,
    speak: Speak,
    policy: str,
    games: int,
    *,
    sampling: Sampling,
    seed: int = 0,
) -> list[Episode]:
    """`games` games, each on a table of its own, with one policy in every seat."""
    jobs = [
        Job(
            id=f"{policy}-{i}",
            name=name,
            game=game,
            task=game.match_task(derive(seed, "together", i)),
            seed=derive(seed, "together", i, policy),
            seating=dict.fromkeys(game.seats, policy),
        )
        for i in range(games)
    ]
    return await collect(jobs, speak, sampling=sampling)
