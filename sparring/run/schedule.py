"""Who learns when, in games whose seats reason in stages: stage by stage, the discriminator, then
the generator, then both in turns. An iteration of the loop is one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError

if TYPE_CHECKING:
    from sparring.run.config import ScheduleConfig

SEATS = ("discriminator", "generator")


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration: the stage whose tokens train, and the seat that learns."""

    stage: int  # from 1
    name: str
    epoch: int  # from 1, within the stage
    phase: str  # discriminator | generator | alternating
    seat: str
    last: bool  # of its stage


def plan(config: ScheduleConfig, stages: Sequence[str]) -> list[Step]:
    """The steps of all stages, in order."""
    discriminator, generator = SEATS
    phases = [(discriminator, discriminator)] * config.discriminator
    phases += [(generator, generator)] * config.generator
    phases += [("alternating", SEATS[i % 2]) for i in range(config.alternating)]
    return [
        Step(number, name, epoch, phase, seat, epoch == len(phases))
        for number, name in enumerate(stages, 1)
        for epoch, (phase, seat) in enumerate(phases, 1)
    ]


def steps_of(config: ScheduleConfig, games: Iterable[Any]) -> list[Step]:
    """The steps of a config's games, or none where nothing is scheduled."""
    if not config.enabled:
        return []
    staged = [game for game in games if getattr(game, "stages", None)]
    if len(staged) != 1 or not set(SEATS) <= set(staged[0].seats):
        raise ConfigError(
            "schedule.enabled needs one game that reasons in stages and has the seats "
            f"{' and '.join(SEATS)}, such as adversarial_tests"
        )
    steps = plan(config, [stage.name for stage in staged[0].stages])
    if not steps:
        raise ConfigError("the schedule has no steps: discriminator, generator, alternating are 0")
    return steps
