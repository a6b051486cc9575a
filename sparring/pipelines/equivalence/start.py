"""What a run of the game of equivalence finds out before it begins: whether proofs can be checked
at all, and about which of its programs anything can be proved."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.pipelines.equivalence.judge.haskell import HaskellChecker
from sparring.pipelines.equivalence.judge.signature import BadSignature
from sparring.pipelines.equivalence.programs import program_of


def need_proofs(tasks: Sequence[Task], sandbox: str) -> frozenset[str]:
    """The tasks whose programs can be proved about; ConfigError where no proof can be checked."""
    wrong, provable = asyncio.run(_examine(tasks, sandbox))
    if wrong:
        raise ConfigError(
            f"equivalences in Haskell are proved by Liquid Haskell, and {wrong}. "
            "docs/haskell.md says how it is installed; games.equivalence.prove=false plays without"
        )
    count = f"{len(provable)} of {len(tasks)} programs can be proved about"
    if not provable:
        raise ConfigError(f"{count}: give others, or say games.equivalence.prove=false")
    print(
        f"equivalence: {count}; only these are played, for both branches, for the others would "
        "always be inequivalent",
        file=sys.stderr,
    )
    return provable


async def _examine(tasks: Sequence[Task], sandbox: str) -> tuple[str, frozenset[str]]:
    async with HaskellChecker(sandbox) as checker:
        wrong = await checker.self_check()
        if wrong:
            return wrong, frozenset()
        verdicts = await asyncio.gather(*(_provable(checker, task) for task in tasks))
    return "", frozenset(t.id for t, fine in zip(tasks, verdicts, strict=True) if fine)


async def _provable(checker: HaskellChecker, task: Task) -> bool:
    try:
        function, p = program_of(task, "haskell")
    except BadSignature:
        return False
    return (await checker.provable(p, function)).passed
