"""What a run needs before it starts, and refuses to start without: tasks, a jail, learners."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.core.scripted import PROGRAMS, STRONG, program_of
from sparring.core.types import MAIN, Episode, Sampling, Task
from sparring.engines.load import add_policy
from sparring.evaluation.periodic import wanted
from sparring.run.config import Config
from sparring.run.players import learning_seats
from sparring.run.servers import label_of, server_of
from sparring.tasks import training_tasks
from sparring.tasks.source import held_out_tasks

if TYPE_CHECKING:
    from sparring.engines.engine import OwnEngine
    from sparring.engines.openai import OpenAIEngine

log = logging.getLogger(__name__)
_LONG = 64  # tokens of a reply that random weights never learn to fill


def tasks_of(config: Config, games: Mapping[str, Game]) -> dict[str, list[Task]]:
    """The tasks of every game that does not make its own."""
    tasks = {}
    for name, game in games.items():
        if game.problems:
            source = config.tasks.source or "shipped"
            tasks[name] = usable(game, training_tasks(config.tasks, game.problems), source)
            try:
                held_out = held_out_tasks(config.tasks, game.problems)
                game.check_all([*tasks[name], *held_out], config.sandbox)
            except ConfigError as error:
                raise ConfigError(f"{source}: {error}") from error
    return tasks


def usable(game: Game, tasks: Sequence[Task], source: str) -> list[Task]:
    """The tasks of a source that can be played; how many, and why the others cannot, is logged."""
    why = {task.id: game.unusable(task) for task in tasks}
    able = [task for task in tasks if not why[task.id]]
    if len(able) == len(tasks):
        return able
    kinds = Counter(reason.partition(":")[0] for reason in why.values() if reason)
    first = next(f"{name}: {reason}" for name, reason in why.items() if reason)
    left_out = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    words = f"{source}: {len(able)} of {len(tasks)} can be used; left out: {left_out} ({first})"
    if not able:
        raise ConfigError(words)
    log.info(words)
    return able


TRUNCATED_DRAWS = (
    "learn.objective `policy` learns from the logprobs of what was drawn, which the learner can "
    "compute for the whole distribution only"
)


def need_whole_draws(config: Config, episodes: Iterable[Episode] = ()) -> None:
    """Refuse to learn from the logprobs of truncated draws: by the config, or by a game's own
    arguments. The learner computes ratios to the whole softmax, and would be off by the mass that
    was cut away. Objectives that learn from texts have no ratios."""
    if config.learn.objective != "policy":
        return
    how = ""
    if Sampling(**config.sampling.model_dump()).truncated and config.teach.kind != "recorded":
        how = "`sampling` asks for"
    for episode in episodes:
        if any(turn.truncated and turn.trainable for turn in episode.turns):
            how = f"the game {episode.game} asks a player that learns with"
    if how:
        raise ConfigError(
            f"{how} top_p, top_k or temperature 0, and {TRUNCATED_DRAWS}. Leave them out; "
            "temperatures above 0 are fine, and learn.objective `likelihood` or `preference` may "
            "have all of them"
        )


def need_groups(config: Config) -> None:
    """Refuse to compare each game with itself alone: nothing would be learned."""
    credit = config.credit
    compared = credit.kind in ("group_relative", "leave_one_out") and credit.seats == "apart"
    if compared and config.teach.kind == "credit" and config.collect.group == 1:
        raise ConfigError(
            f"credit.kind `{credit.kind}` compares the games of a group, and collect.group is 1: "
            "all advantages would be 0. Set it to 2 or more, or choose another credit"
        )


def need_masks(config: Config) -> None:
    """Refuse action masking where the engine cannot do it."""
    if config.sampling.mask_actions and config.engine.kind != "transformers":
        raise ConfigError(
            f"sampling.mask_actions is for the embedded engine, and engine.kind is "
            f"{config.engine.kind}; use engine.kind=transformers, or leave masking out"
        )


def need_jail(config: Config, games: Iterable[Game]) -> None:
    """Programs that models write run in a jail, or not at all, unless it was asked for."""
    if config.sandbox == "unsafe":
        return
    evaluated = any(evaluation.runs_code for evaluation in wanted(config))
    if not (evaluated or any(game.runs_code for game in games)):
        return
    from sparring.judge.sandbox import probe

    jail = probe()
    if not jail.ok:
        raise ConfigError(
            f"this run executes programs that a model writes, and there is no jail for them: "
            f"{jail.explanation}. Install it ({jail.install}), or say `sandbox: unsafe` to run "
            "them with your own rights."
        )


def check_league(config: Config, games: Iterable[Game]) -> None:
    """Refuse a league without members, before it fails in the middle of the run."""
    if config.opponents.kind != "league":
        return
    learned = {config.players.get(seat, MAIN) for seat in learning_seats(config, games)}
    most = {"alpharank": 1, "nash": 2}.get(config.opponents.mixture, len(learned))
    if len(learned) > most:
        raise ConfigError(
            f"opponents.mixture is `{config.opponents.mixture}`, which is computed for "
            f"{'one policy in all seats' if most == 1 else 'two policies at most'}, and "
            f"{len(learned)} learn: {', '.join(sorted(learned))}; `prioritised` and `uniform` take "
            "any number"
        )


def check_programs(config: Config, games: Mapping[str, Game]) -> None:
    """Refuse a strong program as a player of a game that has none."""
    others = {config.opponents.kind, *_opponents(config)}
    for name, game in games.items():
        own = {config.players.get(seat) for seat in game.seats}
        met = own | (others if len(game.seats) > 1 else set())
        for program in [name for name in STRONG if name in met]:
            if program_of(game, program) is None:
                raise ConfigError(
                    f"{name} has no {program} player; take `random`, or a policy of a run"
                )


def _opponents(config: Config) -> list[str]:
    kind = config.opponents.kind
    return config.opponents.players if kind in ("players", "league") else []


def _seated(config: Config) -> list[str]:
    """Everyone who may sit somewhere by name."""
    others = _opponents(config)
    if config.opponents.kind == "players" and not others:
        raise ConfigError("opponents.kind is `players`, and opponents.players is empty")
    return sorted({*config.players.values(), *others})


def seat_servers(config: Config) -> dict[str, OpenAIEngine]:
    """A line to every player on a server; each is reached once before the run begins."""
    servers = {}
    for policy in _seated(config):
        server = server_of(policy, config.servers)
        if server is not None:
            from sparring.engines.openai import OpenAIEngine

            servers[policy] = OpenAIEngine(server, label_of(policy, config.servers))
            servers[policy].line.reach()
    return servers


def seat_players(config: Config, engine: OwnEngine) -> None:
    """Give the engine the players that do not learn: checkpoints of runs, copies of the base."""
    for policy in _seated(config):
        if policy in PROGRAMS or policy in engine.policies.names():
            continue
        if server_of(policy, config.servers):
            continue
        if "@" in policy:
            add_policy(engine, policy, policy)
        else:
            engine.policies.add(policy)


def nano_hint(config: Config, tokens: float) -> str | None:
    """What to tell whoever has nano write at length: replies of `tokens` on average."""
    if config.policy != "nano" or tokens < _LONG:
        return None
    return (
        f"nano begins with random weights over bytes, and knows no English: its replies of "
        f"{tokens:.0f} tokens will stay noise. Ask it for a token or a few (games.NAME.style=terse "
        "where a game has it, or sampling.max_tokens=8), or take policy=smollm2"
    )
