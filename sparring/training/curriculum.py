"""Curricula: a game is played with easier options until it goes well, then with harder ones. The
options under `games` are the goal, and what evaluations play throughout."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from sparring.core.game import Game
from sparring.run.config import Config
from sparring.run.games import make_games


class Curriculum:
    def __init__(self, config: Config, games: Mapping[str, Game]) -> None:
        self.config, self.goal = config.curriculum, dict(games)
        self.levels = {
            name: [
                *(make_games({name: config.games[name] | options})[name] for options in one.levels),
                games[name],
            ]
            for name, one in self.config.items()
        }
        self.reached = dict.fromkeys(self.levels, 0)
        self.recent: dict[str, list[float]] = {name: [] for name in self.levels}

    def games(self) -> dict[str, Game]:
        """Every game with the options that are played now."""
        now = {name: levels[self.reached[name]] for name, levels in self.levels.items()}
        return self.goal | now

    def level(self, name: str, index: int) -> Game:
        """A game of one level after the other, for demonstrations of all of them."""
        levels = self.levels.get(name, [self.goal[name]])
        return levels[index % len(levels)]

    def all_games(self) -> list[Game]:
        """Every level of every game: their judges run as long as the run does."""
        easier = [game for levels in self.levels.values() for game in levels[:-1]]
        return [*self.goal.values(), *easier]

    def metrics(self) -> dict[str, int]:
        return {f"curriculum/{name}": level for name, level in self.reached.items()}

    def watch(self, metrics: Mapping[str, Any]) -> list[str]:
        """Take an iteration's metrics; says which games go to their next level."""
        raised = []
        for name, one in self.config.items():
            if self.reached[name] == len(one.levels) or one.measure not in metrics:
                continue
            recent = [*self.recent[name], float(metrics[one.measure])][-one.window :]
            self.recent[name] = recent
            if len(recent) == one.window and fmean(recent) >= one.above:
                self.reached[name] += 1
                self.recent[name] = []
                left = len(one.levels) - self.reached[name]
                options = one.levels[self.reached[name]] if left else "the goal"
                raised.append(
                    f"{name}: {one.measure} {fmean(recent):.3f} over {one.window}; now {options}"
                )
        return raised

    def state(self) -> dict[str, Any]:
        return {"reached": self.reached, "recent": self.recent}

    def load(self, state: Mapping[str, Any]) -> None:
        self.reached, self.recent = dict(state["reached"]), dict(state["recent"])
