"""What happens when the loop is done: the result is measured against where it began, the
checkpoints are ranked against each other, and the report is written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sparring.core.game import Game, Probe
from sparring.core.plugin import load_all
from sparring.core.types import BASE, MAIN, Episode, Sampling, derive
from sparring.engines.engine import OwnEngine
from sparring.engines.load import add_policy, load_engine
from sparring.run import checkpoint
from sparring.run.config import Config
from sparring.run.games import make_games
from sparring.run.lock import writing
from sparring.run.players import learned_policies
from sparring.run.rundir import RunDir, write_episodes, write_json
from sparring.training.imitation import sources

UNTRAINED = "untrained"
IMITATED = "after_imitation"
_KEPT = 12  # evaluation games kept for the report, per opponent
_RUNGS = 6  # checkpoints on the ladder


def finish(path: Path) -> None:
    """Evaluate a finished run as its config says."""
    run = RunDir.existing(path)
    with writing(path):
        config = run.config()
        ranked = MAIN in learned_policies(config, make_games(config.games).values())
        if config.evaluate.final and ranked:
            asyncio.run(_closing_evaluation(run))
        if config.evaluate.ladder and ranked:
            asyncio.run(_ladder(run))
        for closing in load_all("closings"):
            asyncio.run(closing(run))


async def _closing_evaluation(run: RunDir) -> None:
    """The last weights and the first ones over the same games, and those between imitation and
    self-play where there was imitation."""
    config = run.config()
    games = {n: g for n, g in make_games(config.games).items() if g.zero_sum or g.cooperative}
    if not games:
        return
    engine, name = load_engine(f"{run.path}@last", **_device(config))
    warm = MAIN in sources(config)  # then what it began with was fitted, and the base was not
    add_policy(engine, f"{run.path}@0", IMITATED if warm else UNTRAINED)
    results, episodes = await _measure(config, games, engine, name)
    if warm:
        fitted, _ = await _measure(config, games, engine, IMITATED)
        for game, of_game in fitted.items():
            results[game][IMITATED] = of_game
    results[UNTRAINED], _ = await _measure(config, games, engine, BASE if warm else UNTRAINED)
    write_json(run.path / "evaluation.json", results)
    kept = [e for i, e in enumerate(episodes) if i % config.evaluate.final < _KEPT]
    write_episodes(run.path / "evaluation_games.jsonl.gz", kept)


async def _measure(
    config: Config, games: dict[str, Game], engine: OwnEngine, policy: str
) -> tuple[dict[str, Any], list[Episode]]:
    """The standard evaluation of a policy and what each game adds to it at the end."""
    from sparring.evaluation.sampling import as_trained
    from sparring.evaluation.standard import evaluate

    count, heat = config.evaluate.final, config.evaluate.temperature
    seed = derive(config.seed, "final")
    results, episodes = await evaluate(
        games, engine, policy=policy, temperature=heat, count=count, seed=seed,
        sampling=as_trained(config),
    )  # fmt: skip
    probe = Probe(policy, engine.act, as_trained(config, heat), engine.probabilities, count, seed)
    for name, game in games.items():
        results[name] |= await game.closing(name, probe)
    return results, episodes


async def _ladder(run: RunDir) -> None:
    """Checkpoints, evenly spread over the run, each against each."""
    from sparring.evaluation.arena import round_robin
    from sparring.evaluation.ratings import MODEL, Result, fit
    from sparring.evaluation.sampling import as_trained, described, noted

    config = run.config()
    games = {n: g for n, g in make_games(config.games).items() if g.zero_sum}
    steps = evenly_spaced(checkpoint.steps(run.checkpoints), _RUNGS)
    if not games or len(steps) < 2:
        return
    engine, _ = load_engine(f"{run.path}@{steps[0]}", **_device(config))
    names = [f"iteration {step}" for step in steps]
    for step, name in zip(steps, names, strict=True):
        add_policy(engine, f"{run.path}@{step}", name)
    results: list[Result] = []
    used: dict[str, set[Sampling]] = {}
    for name, game in games.items():
        used[name] = set[Sampling]()
        results += await round_robin(
            name, game, noted(engine.act, names[0], used[name]), names, config.evaluate.ladder,
            seed=config.seed, sampling=as_trained(config),
        )  # fmt: skip
    fitted = fit(results)
    ladder = {
        "model": MODEL,
        "played": {name: described(games[name], how) for name, how in used.items()},
        "draw": fitted.draw,
        "ratings": [rating._asdict() for rating in fitted.ratings],
        "results": [result._asdict() for result in results],
    }
    write_json(run.path / "ladder.json", ladder)


def _device(config: Config) -> dict[str, str]:
    """Where and in which precision the policy was trained: it is measured as it played."""
    return {"device": config.engine.device, "dtype": config.engine.dtype}


def evenly_spaced(items: list[int], most: int) -> list[int]:
    """At most `most` of the items, the first and the last among them, evenly apart."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
