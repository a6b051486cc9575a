"""A run's checkpoints: ratings, who beats whom, how each was measured, commands to copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.core.formatting import number
from sparring.core.types import MAIN
from sparring.run import checkpoint
from sparring.run.recipes import recipe_names
from sparring.view.markup import game_name, programs_of, seats_of
from sparring.view.results import asked_with, ladder_figure, results_table
from sparring.view.rundata import RunData, is_number, read_object, read_results


def ladder(run: Path) -> dict[str, Any]:
    data = read_results(run)
    stored = read_object(run / "ladder.json")
    return {
        "figure": ladder_figure(data.ladder) if data.ladder else "",
        "intro": ladder_intro(data),
        "played": _played(stored.get("played")),
        "payoff": payoff(stored.get("results")),
        "results": results_table(data.evaluation),
        "checkpoints": _checkpoints(data),
        "games": [
            {"name": n, "title": game_name(n), "seats": seats_of(n), "programs": programs_of(n)}
            for n in _games(data)
        ],
    }


def ladder_intro(run: RunData) -> str:
    games = sum(int(rating.get("games") or 0) for rating in run.ladder) // 2
    return (
        f"Elo points, fitted to all {number(games)} games between checkpoints at once "
        "(Bradley–Terry with draws); their mean is 0. A dot is the rating, its line the 95 % "
        "interval: where lines overlap by much, the games do not say who is stronger."
    )


def _played(played: object) -> str:
    """How the policies were asked in the games of the ladder."""
    if not isinstance(played, dict):
        return ""
    parts = [
        f"{game_name(game)}: {asked_with(*(how.get('sampling') or [{}]))}"
        for game, how in played.items()
        if isinstance(how, dict)
    ]
    return f"Replies in {'; '.join(parts)}." if parts else ""


def payoff(results: object) -> dict[str, Any]:
    """Points of each row against each column: 1 a win, ½ a draw, per game."""
    rows = [r for r in results if isinstance(r, dict)] if isinstance(results, list) else []
    names = list(dict.fromkeys(str(r[side]) for side in ("player", "other") for r in rows))
    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        a, b = str(row["player"]), str(row["other"])
        wins, draws, losses = (float(row.get(k) or 0) for k in ("wins", "draws", "losses"))
        for key, won in (((a, b), wins), ((b, a), losses)):
            points, games = cells.get(key, [0.0, 0.0])
            cells[key] = [points + won + draws / 2, games + wins + draws + losses]
    return {
        "names": names,
        "rows": [[cells.get((a, b)) for b in names] for a in names],
    }


def _games(run: RunData) -> list[str]:
    games = run.config.get("games")
    return list(games) if isinstance(games, dict) else []


def _checkpoints(run: RunData) -> list[dict[str, Any]]:
    folder = run.path / "checkpoints"
    if not folder.is_dir():
        return []
    best = folder / "best"
    best_name = best.resolve().name if best.exists() else ""
    scores = {
        int(line["iteration"]): line["eval/score"]
        for line in run.lines
        if is_number(line.get("eval/score"))
    }
    return [
        {
            "step": step,
            "best": checkpoint.step_name(step) == best_name,
            "score": scores.get(step),
            "policies": (policies := _policies(folder / checkpoint.step_name(step))),
            "commands": _commands(run, step, policies),
        }
        for step in reversed(checkpoint.steps(folder))
    ]


def _policies(folder: Path) -> list[str]:
    """The policies that have to be named beside this checkpoint's step; none where one is meant."""
    names = sorted(p.name.split(".policy.")[0] for p in folder.glob("*.policy.safetensors"))
    return [] if MAIN in names or len(names) < 2 else names


def _commands(run: RunData, step: int, policies: Sequence[str]) -> Mapping[str, str]:
    named = {who: shlex.quote(f"{run.path}@{step}:{who}") for who in policies}
    named = named or {MAIN: shlex.quote(f"{run.path}@{step}")}
    name = next(iter(named.values()))
    begin = " ".join(f"begin.{who}={where}" for who, where in named.items())
    game = next(iter(_games(run)), "GAME")
    recipe = str(run.config.get("recipe"))
    if recipe not in recipe_names():  # a file that may lie anywhere; the run has all that it said
        recipe = shlex.quote(str(run.path / "config.yaml"))
    return {
        "Play": f"sparring play {shlex.quote(game)} --policy {name}",
        "Match": f"sparring arena {name} --against random",
        "Train": f"sparring train {recipe} {begin}",
    }
