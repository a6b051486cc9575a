"""Games that are won together are measured by how well a policy plays them with itself."""

from __future__ import annotations

from sparring.core.collect import Job, collect
from sparring.core.game import Game
from sparring.core.table import Speak
from sparring.core.types import Episode, Sampling, derive


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
