"""The measures of a policy in a game that has a tree: read off the model where that can be done,
and from sampled replies where it reasons first, since the sum over all replies is out of reach."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from sparring.core.answers import named
from sparring.core.game import Probe
from sparring.core.table import Table
from sparring.core.tree import Policy, Tree
from sparring.core.types import Sampling, View, VoidGame, derive
from sparring.evaluation.best_response import (
    Counts,
    added,
    estimate,
    exploit,
    illegal_mass,
    legal,
    observed,
    regrets,
)

SAMPLED = 50  # information states at which an evaluation samples replies; a command takes more
REPLIES = 100  # at each information state, while that makes no more than so many in all
ALL_REPLIES = 2_000
LEAST_REPLIES = 2  # one in either half of an estimate

# Told how many replies are to be sampled; what it gives is called with each one's number, if it
# is not None.
Progress = AbstractContextManager[Callable[[dict[str, Any]], None] | None]
Watch = Callable[[int], Progress]
Measured = tuple[dict[str, float], str]  # the figures, and how they were come by


def is_exact(sampling: Sampling) -> bool:
    """Whether a reply's probability can be computed: one token, or one of the legal actions."""
    return sampling.max_tokens == 1 or sampling.mask_actions


def unwatched(total: int) -> Progress:
    return nullcontext()


def default_replies(states: int) -> int:
    """Replies to sample at each of so many information states when nobody says how many."""
    return min(REPLIES, max(LEAST_REPLIES, ALL_REPLIES // states))


async def tree_measures(
    tree: Tree,
    policy: Probe,
    *,
    zero_sum: bool,
    most_sampled: int = SAMPLED,
    watch: Watch = unwatched,
) -> Measured:
    asked = replace(policy.sampling, **tree.limits)
    heat = f"at temperature {asked.temperature:g}"
    if is_exact(asked):
        rows = policy.probabilities(policy.policy, tree.infosets, asked)
        how = " among the legal actions" if asked.mask_actions else ""
        method = f"exact, from the probability of every action{how} {heat}"
        return figures(tree, rows, zero_sum), method
    if len(tree.infosets) > most_sampled:
        return {}, (
            f"not measured: replies of up to {asked.max_tokens} tokens would have to be sampled at "
            f"{len(tree.infosets):,} information states; `sparring exploit --replies` does so"
        )
    first, second = await sample_replies(tree, policy, asked, watch)
    if not all(map(sum, [*first, *second])):
        return {}, "not measured: too few replies could be had"
    rows = observed(added(first, second))
    measures, interval = figures(tree, rows, zero_sum), estimate(tree, first, second)
    name = "exploitability" if zero_sum else "nash_conv"
    scale = 1 if zero_sum else len(tree.seats)
    measures |= {f"{name}_low": interval.low * scale, f"{name}_high": interval.high * scale}
    return measures, (
        f"estimated from {policy.replies} replies at each of {len(tree.infosets):,} information "
        f"states ({policy.replies * len(tree.infosets):,} in all, of up to {asked.max_tokens:,} "
        f"tokens), {heat}, with a 95 % interval"
    )


def figures(tree: Tree, policy: Policy, zero_sum: bool) -> dict[str, float]:
    """Illegal replies charged as forfeits, and beside it the policy renormalised over the legal
    actions; per seat what it expects against itself and what a best response would."""
    charged, renormalised = exploit(tree, policy), exploit(tree, legal(policy))
    measures = {"nash_conv": charged.nash_conv, "nash_conv_legal": renormalised.nash_conv}
    if zero_sum:
        measures["exploitability"] = charged.exploitability
        measures["exploitability_legal"] = renormalised.exploitability
    for seat, value, best in zip(
        tree.seats, renormalised.values, charged.best_responses, strict=True
    ):
        measures |= {f"value_{seat}": value, f"best_response_{seat}": best}
    if not tree.hidden and zero_sum:
        lost = regrets(tree, policy)
        measures["regret_all"] = sum(lost) / len(lost)
    return measures | {"illegal_mass": illegal_mass(policy)}


async def sample_replies(
    tree: Tree, policy: Probe, sampling: Sampling, watch: Watch = unwatched
) -> tuple[Counts, Counts]:
    """Replies at each information state, as the game reads them, in two halves; what was void is
    in neither."""

    async def ask(order: int, number: int, reply: int) -> int | None:
        infoset = tree.infosets[number]
        table = Table(
            tree.seats,
            dict.fromkeys(tree.seats, policy.policy),
            policy.speak,
            seed=derive(policy.seed, "reply", infoset.key, reply),
            order=order,
            sampling=sampling,
        )
        try:
            view = View(infoset.state, infoset.actions)
            turn = await table[infoset.seat].act(infoset.prompt, view=view)
        except VoidGame:
            return None
        action = named(turn.text, infoset.actions)
        return len(infoset.actions) if action is None else action

    asked = [(i, reply) for i in range(len(tree.infosets)) for reply in range(policy.replies)]
    finished = itertools.count(1)
    with watch(len(asked)) as progress:

        async def counted(order: int, number: int, reply: int) -> int | None:
            kind = await ask(order, number, reply)
            if progress is not None:
                progress({"iteration": next(finished)})
            return kind

        kinds = await asyncio.gather(*(counted(order, *which) for order, which in enumerate(asked)))
    first, second = ([[0] * (len(i.actions) + 1) for i in tree.infosets] for _ in range(2))
    for (number, reply), kind in zip(asked, kinds, strict=True):
        if kind is not None:
            (second if reply % 2 else first)[number][kind] += 1
    return first, second
