"""The config section of training in rounds."""

from __future__ import annotations

from pydantic import Field

from sparring.run.sections import Section


class RoundsConfig(Section):
    """What a round leaves in its folder, and which recorded games are learned from."""

    val: float = Field(0.1, ge=0, lt=1)  # share of the tasks that is kept from training
    keep: int | None = Field(None, ge=1)  # folders of so many last rounds; None: all
    games: str | None = None  # teach.kind=recorded: the folder that `sparring selfplay` wrote
