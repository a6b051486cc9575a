"""What the package measures, reports and adds to the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.cli.groups import Commands
from sparring.evaluation.periodic import Evaluation
from sparring.run.sections import Section
from sparring.view.part import ReportPart
from sparring.view.part import Section as ReportSection


class CoinsConfig(Section):
    bonus: float = 0.0


def prepare(config: Any) -> bool:
    return bool(config.section(CoinsConfig).bonus)


async def count(config: Any, engine: Any, run: Path, iteration: int) -> dict[str, float]:
    return {"coins/bonus": config.section(CoinsConfig).bonus * iteration}


evaluation = Evaluation(prepare, count)


def section(run: Any) -> ReportPart | None:
    if "pennies" not in run.config.get("games", {}):
        return None
    return ReportPart([ReportSection("pennies", "Pennies", "<p>two coins were shown</p>")])


def add_commands(commands: Commands) -> None:
    @commands.command("flip")
    def flip(times: int = 3) -> None:
        """Flip a coin that always shows heads."""
        print("h" * times)
