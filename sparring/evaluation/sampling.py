"""How an evaluation samples: with the limits the policy was trained with, and on record, so that a
score is of the policy that plays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from sparring.core.game import Game
from sparring.core.table import Speak
from sparring.core.types import Request, Sampling, Turn
from sparring.run.config import Config


def as_trained(config: Config, temperature: float | None = None) -> Sampling:
    """The recipe's sampling; at another temperature, where one is given."""
    sampling = Sampling(**config.sampling.model_dump())
    return sampling if temperature is None else replace(sampling, temperature=temperature)


def noted(speak: Speak, policy: str, used: set[Sampling]) -> Speak:
    """The same, and every sampling that a policy is asked with is put into `used`: games set
    limits of their own."""

    async def answer(request: Request) -> Turn:
        if request.policy == policy:
            used.add(request.sampling)
        return await speak(request)

    return answer


def described(game: Game, used: Iterable[Sampling]) -> dict[str, Any]:
    """What to say of it beside a score: each sampling that was used, and the style of prompts."""
    ordered = sorted(used, key=lambda sampling: (sampling.max_tokens, repr(sampling)))
    style = {"style": game.style} if hasattr(game, "style") else {}
    return {**style, "sampling": [asdict(sampling) for sampling in ordered]}
