"""A Kuhn poker policy's measures: read off the model where a reply is one token, and from sampled
replies where it is longer, since nobody can sum over all that may be said before an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sparring.core.game import Probe
from sparring.core.table import Table
from sparring.core.types import Sampling, VoidGame, derive
from sparring.games import kuhn
from sparring.games.kuhn import KuhnPoker
from sparring.games.kuhn_exploitability import (
    Counts,
    Strategy,
    added,
    estimate,
    exploitability,
    illegal_mass,
    legal,
    observed,
    value_gap,
)

_KINDS = {"p": 0, "b": 1, None: 2}  # of replies, in the order of a strategy's chances


async def kuhn_measures(game: KuhnPoker, policy: Probe) -> tuple[dict[str, float], str]:
    """The measures, and how they were come by."""
    asked, replies = replace(policy.sampling, **game.limits()), policy.replies
    strategy: Strategy
    if asked.max_tokens == 1:
        strategy = read_strategy(game, policy, asked)
        value = exploitability(strategy, -game.invalid)
        method = f"exact, from the probability of every reply at temperature {asked.temperature:g}"
        return _measures(strategy, {"exploitability": value}), method
    halves = await sample_replies(game, policy, asked)
    if any(sum(half[infoset]) == 0 for half in halves for infoset in kuhn.INFOSETS):
        return {}, "not measured: too few replies could be had"
    found, strategy = estimate(*halves, -game.invalid), observed(added(*halves))
    method = (
        f"estimated from {replies} replies at each of {len(kuhn.INFOSETS)} information sets, at "
        f"temperature {asked.temperature:g}, with a 95 % interval"
    )
    figures = {
        "exploitability": found.value,
        "exploitability_low": found.low,
        "exploitability_high": found.high,
    }
    return _measures(strategy, figures), method


def _measures(strategy: Strategy, figures: dict[str, float]) -> dict[str, float]:
    return {
        **figures,
        "exploitability_legal": exploitability(legal(strategy)),
        "value_gap": value_gap(legal(strategy)),
        "illegal_mass": illegal_mass(strategy),
    }


def read_strategy(
    game: KuhnPoker, policy: Probe, sampling: Sampling
) -> dict[str, tuple[float, float, float]]:
    """What the game makes of every one-token reply, by its probability."""
    prompts = [game.prompt(infoset) for infoset in kuhn.INFOSETS]
    found = {}
    for infoset, chances in zip(
        kuhn.INFOSETS, policy.probabilities(policy.policy, prompts, sampling), strict=True
    ):
        sums = [0.0, 0.0, 0.0]
        for text, chance in chances.items():
            sums[_KINDS[kuhn.parse(text, infoset[1:])]] += chance
        passive, active = sums[:2]
        found[infoset] = (passive, active, max(0.0, 1.0 - passive - active))
    return found


async def sample_replies(
    game: KuhnPoker, policy: Probe, sampling: Sampling
) -> tuple[Counts, Counts]:
    """Replies at each information set, as the game reads them, in two halves; what was void is in
    neither."""

    async def ask(order: int, infoset: str, number: int) -> int | None:
        table = Table(
            game.seats,
            dict.fromkeys(game.seats, policy.policy),
            policy.speak,
            seed=derive(policy.seed, "reply", infoset, number),
            order=order,
            sampling=sampling,
        )
        player = table[game.seats[kuhn.to_move(infoset[1:])]]
        try:
            turn = await player.act(game.prompt(infoset), view=game.view(infoset))
        except VoidGame:
            return None
        return _KINDS[kuhn.parse(turn.text, infoset[1:])]

    asked = [(infoset, number) for infoset in kuhn.INFOSETS for number in range(policy.replies)]
    kinds = await asyncio.gather(*(ask(i, *which) for i, which in enumerate(asked)))
    halves = tuple({infoset: [0, 0, 0] for infoset in kuhn.INFOSETS} for _ in range(2))
    for (infoset, number), kind in zip(asked, kinds, strict=True):
        if kind is not None:
            halves[number % 2][infoset][kind] += 1
    one, two = ({i: (c[0], c[1], c[2]) for i, c in half.items()} for half in halves)
    return one, two
