"""`sparring tournament`: every player against every other one, as an empirical game. Killed at any
moment, it goes on after its last whole batch of games, and players may be added later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.game import Game, opened
from sparring.core.scripted import PROGRAMS
from sparring.core.table import Speak
from sparring.core.types import Episode, Request, Sampling, Turn, derive
from sparring.engines.engine import Engine
from sparring.engines.load import add_policy, load_player
from sparring.evaluation.arena import net_reward, score, seated
from sparring.evaluation.population import Population
from sparring.evaluation.ratings import Result
from sparring.evaluation.standard import opponents_of
from sparring.models.trained import first_game, game_options, run_config, trained_sampling
from sparring.run import interrupt
from sparring.run.games import load_game
from sparring.run.lines import in_batches, refuse_others
from sparring.run.lock import writing
from sparring.run.rundir import RunError, write_json
from sparring.run.servers import server_of
from sparring.training.opponents import POPULATION

PLAN, GAMES = "tournament.json", "games.jsonl"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Plan:
    """All that decides what is played; the same plan gives the same games."""

    players: list[str]
    game: str
    games: int  # of each pair, with seats taken in turn
    options: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    batch: int = 64
    seed: int = 0

    def pairs(self) -> list[tuple[int, int]]:
        """Those of a player that is added later come last."""
        return [(i, j) for j in range(len(self.players)) for i in range(j)]


def make_plan(
    players: Sequence[str],
    games: int,
    *,
    game: str | None = None,
    temperature: float = 1.0,
    max_tokens: int | None = None,
    seed: int = 0,
) -> Plan:
    """The game, its options and the limits are those of the first player that comes from a run."""
    if len(set(players)) < 2 or len(set(players)) < len(players):
        raise ConfigError("a tournament needs two players or more, each of them named once")
    trained = next((p for p in players if p not in PROGRAMS and run_config(p)), None)
    speaks = trained or next((p for p in players if p not in PROGRAMS), "random")
    chosen = game or first_game(speaks)
    options = game_options(chosen, speaks, None)
    table = load_game(chosen, **options)
    if len(table.seats) < 2:
        raise ConfigError(f"{chosen} is a game for one; a tournament needs opponents")
    if table.cooperative:
        raise ConfigError(
            f"{chosen} is won together, and nobody could be ahead; `sparring selfplay {chosen}` "
            "says how well a policy plays it"
        )
    missing = [p for p in players if p in PROGRAMS and p not in opponents_of(table)]
    if missing:
        raise ConfigError(f"{chosen} has no {missing[0]} player")
    sampling = replace(trained_sampling(speaks), temperature=temperature)
    sampling = replace(sampling, max_tokens=max_tokens or sampling.max_tokens)
    games += -games % len(table.seats)
    return Plan(list(players), chosen, games, options, asdict(sampling), seed=seed)


def hold(
    plan: Plan, out: Path, *, resume: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Play the plan into a folder, from the start or from its last whole batch."""
    with interrupt.listening(), writing(out):
        refuse_others(out / PLAN, asdict(plan), "tournament", resume=resume, grows="players")
        game = load_game(plan.game, **plan.options)
        speak, outside = _voices(plan)
        write_json(out / PLAN, asdict(plan))
        records = asyncio.run(_play(plan, game, speak, outside, out, progress))
        summary = summarize(plan, game.seats, records)
        write_json(out / POPULATION, summary)
    return summary


async def _play(
    plan: Plan, game: Game, speak: Speak, outside: Any, out: Path, progress: Progress | None
) -> list[dict[str, Any]]:
    order = [(*pair, k) for pair in plan.pairs() for k in range(plan.games)]
    sampling = {**plan.sampling, "stop": tuple(plan.sampling["stop"])}

    async def play(numbers: range) -> list[dict[str, Any]]:
        jobs = [_job(plan, game, *order[number]) for number in numbers]
        episodes = await collect(jobs, speak, sampling=Sampling(**sampling), outside=outside)
        if all(episode.void is not None for episode in episodes):
            raise RunError(f"none of {len(episodes)} games could be played: {episodes[0].void}")
        return [_record(plan, game, order[n], e) for n, e in zip(numbers, episodes, strict=True)]

    async with opened([game]):
        return await in_batches(
            out / GAMES, ["-".join(map(str, match)) for match in order], play, batch=plan.batch,
            what="game",
            progress=(lambda done: progress(len(done), len(order))) if progress else None,
        )  # fmt: skip


def _job(plan: Plan, game: Game, i: int, j: int, k: int) -> Job:
    one, two = plan.players[i], plan.players[j]
    return Job(
        id=f"{i}-{j}-{k}",
        name=plan.game,
        game=game,
        task=game.match_task(derive(plan.seed, "match", one, two, k)),
        seed=derive(plan.seed, one, two, k),
        seating=seated(game.seats, k, one, two),
    )


def _record(
    plan: Plan, game: Game, match: tuple[int, int, int], episode: Episode
) -> dict[str, Any]:
    i, j, k = match
    counted = score([episode], [(game.seats[k % len(game.seats)],)])
    return {
        "id": episode.id,
        "player": plan.players[i],
        "other": plan.players[j],
        "result": [counted.wins, counted.draws, counted.losses],
        "rewards": episode.rewards,
        **({"void": episode.void} if episode.void is not None else {}),
    }


def summarize(
    plan: Plan, seats: Sequence[str], records: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    counts: dict[tuple[str, str], list[int]] = {}
    rewards: dict[tuple[str, str], list[float]] = {}
    for record in records:
        pair = record["player"], record["other"]
        count = counts.setdefault(pair, [0, 0, 0])
        count[:] = (a + b for a, b in zip(count, record["result"], strict=True))
        if any(record["result"]):
            mine = (seats[int(record["id"].rpartition("-")[2]) % len(seats)],)
            rewards.setdefault(pair, []).append(net_reward(record["rewards"], mine))
    results = []
    for (player, other), (wins, draws, losses) in counts.items():
        mean = fmean(rewards.get((player, other), [0.0]))
        results.append(Result(player, other, wins, draws, losses, mean))
    return {
        "game": plan.game,
        "void": sum("void" in record for record in records),
        "policies": {name: name for name in plan.players},
        **Population.of(plan.players, results).summary(),
    }


def _voices(plan: Plan) -> tuple[Speak, Any]:
    """Whom to ask for each player: policies of one base share an engine, others have their own, and
    while one speaks the others wait, so that games repeat exactly."""
    engines: list[Engine] = []
    asked: dict[str, tuple[Engine, str]] = {}  # player -> its engine, the name it has there
    for player in plan.players:
        if player in PROGRAMS:
            continue
        for engine in engines:
            if hasattr(engine, "policies") and server_of(player, {}) is None:
                try:
                    add_policy(engine, player, player)  # type: ignore[arg-type]
                except ConfigError:
                    continue  # of another base
                asked[player] = engine, player
                break
        else:
            engine, name = load_player(player)
            engines.append(engine)
            asked[player] = engine, name

    @contextmanager
    def outside(speaking: Engine | None = None) -> Any:
        with ExitStack() as stack:
            for engine in engines:
                if engine is not speaking:
                    stack.enter_context(engine.outside())
            yield

    async def speak(request: Request) -> Turn:
        player = request.policy
        engine, request.policy = asked[player]
        with outside(engine):
            turn = await engine.act(request)
        turn.policy = player
        return turn

    return speak, outside
