"""The config sections of the game of equivalence."""

from __future__ import annotations

from pydantic import Field

from sparring.run.sections import Section


class EquivalenceConfig(Section):
    """What the teacher of equivalence keeps of a round, and what Alice learns."""

    threshold: float = Field(5.0, ge=0, le=10)  # τ; what is harder is always kept
    easy: float = Field(0.2, ge=0, le=1)  # share of the others that is kept
    predict: bool = False  # whether Alice also learns to say how hard a pair is
    balance: bool = True  # whether both branches weigh the same
    alice_data: str | None = None  # records of earlier rounds, to begin with
    bob_data: str | None = None


class PairsConfig(Section):
    """Held-out pairs of programs, before training, every so often, and after."""

    data: str | None = None  # as tasks.source; `shipped`: those of the language; None: no exam
    limit: int | None = Field(None, ge=2)  # so many pairs, half of them equivalent
    every: int = Field(1, ge=1)  # iterations
