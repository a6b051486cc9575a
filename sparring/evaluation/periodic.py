"""What plug-ins measure before training, every so often, and after it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core import plugin
from sparring.run.config import Config
from sparring.run.rundir import write_whole

if TYPE_CHECKING:
    from sparring.engines.engine import OwnEngine


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`prepare` says whether a config asks for it, and raises what is missing before a run begins;
    `run` returns metrics, or none at an iteration that is not its turn."""

    prepare: Callable[[Config], bool]
    run: Callable[[Config, OwnEngine, Path, int], Awaitable[dict[str, float]]]
    runs_code: bool = False


def wanted(config: Config) -> list[Evaluation]:
    """The evaluations that a config asks for, with their data found."""
    known = [plugin.find("evaluations", name) for name in plugin.names("evaluations")]
    return [evaluation for evaluation in known if evaluation.prepare(config)]


async def evaluate_periodically(
    config: Config, engine: OwnEngine, run: Path, iteration: int
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for evaluation in wanted(config):
        metrics |= await evaluation.run(config, engine, run, iteration)
    return metrics


def due(every: int, config: Config, iteration: int) -> bool:
    return iteration % every == 0 or iteration == config.iterations


def write_details(path: Path, summary: dict[str, Any], details: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps({**summary, "details": details}, indent=1) + "\n").encode())
