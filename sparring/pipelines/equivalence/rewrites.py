"""What a rule makes of a program, and in which order such proposals are tried, in any language."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewritten program, and what its rule means to do to its meaning."""

    rule: str
    keeps: bool
    code: str


Rewriter = Callable[[str, str], list[Rewrite]]  # of a source and the function's name


def in_order(
    rewrites: Rewriter, source: str, function: str, keeps: bool, rng: random.Random
) -> list[Rewrite]:
    """The rewrites of one kind in the order to try them: rules first, so that one that fits in
    many places is not met more often; one in three has a second rule that keeps on top."""
    by_rule: dict[str, list[Rewrite]] = {}
    for rewrite in rewrites(source, function):
        if rewrite.keeps == keeps:
            by_rule.setdefault(rewrite.rule, []).append(rewrite)
    rules = list(by_rule)
    rng.shuffle(rules)
    chosen = [rng.choice(by_rule[rule]) for rule in rules]
    return [_twice(rewrites, r, function, rng) if rng.random() < 0.34 else r for r in chosen]


def _twice(rewrites: Rewriter, rewrite: Rewrite, function: str, rng: random.Random) -> Rewrite:
    more = [r for r in rewrites(rewrite.code, function) if r.keeps and r.rule != rewrite.rule]
    if not more:
        return rewrite
    second = rng.choice(more)
    return Rewrite(f"{rewrite.rule}+{second.rule}", rewrite.keeps, second.code)
