"""Warm starts: before its first iteration a policy is fitted to games of a game's own programmed
player, or to demonstrations in a file. A model that cannot do a task yet begins by imitating it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.game import opened
from sparring.core.scripted import RANDOM, ScriptedEngine, program_of
from sparring.core.types import (
    Episode,
    Lesson,
    Request,
    Sample,
    Sampling,
    Turn,
    derive,
)
from sparring.credit.samples import to_samples
from sparring.run import checkpoint
from sparring.run.config import Config
from sparring.run.learning import LearnConfig
from sparring.run.players import DEMONSTRATIONS, imitated, own_seating
from sparring.run.rundir import (
    RunDir,
    read_episodes,
    read_log,
    read_object,
    write_episodes,
    write_json,
)
from sparring.tasks import choose_task
from sparring.training.jobs import choose_game

if TYPE_CHECKING:
    from sparring.models.chat import Chat
    from sparring.training.finetune import Progress
    from sparring.training.state import Parts

log = logging.getLogger(__name__)

FOLDER = "imitation"
_TOO_LONG = 0.1  # share of a program's replies that may be too long, and are not learned from
EVALUATION = "evaluation.json"  # of the policy before and after it was fitted
Evaluate = Callable[[Path], Awaitable[dict[str, float]]]


def sources(config: Config) -> dict[str, tuple[str, str]]:
    """What each policy that learns is to imitate: (`scripted`, `2000`) …"""
    parsed = {name: imitated(policy) for name, policy in config.begin.items()}
    return {name: source for name, source in parsed.items() if source is not None}


@dataclass
class Demonstrated:
    """What policies are to be fitted to, and the games it comes from by policy."""

    lessons: list[Lesson] = field(default_factory=list)
    games: dict[str, list[Episode]] = field(default_factory=dict)


def gather(parts: Parts, path: Path) -> Demonstrated | None:
    """What the policies of a run in this folder are to be fitted to first; None where that has
    been done, or was not asked for. Games that are on record are not played again; nothing is
    written."""
    wanted = sources(parts.config)
    if not wanted or checkpoint.steps(path / "checkpoints"):
        return None
    demonstrated = Demonstrated()
    for name in wanted:
        demonstrated.lessons += _lessons(parts, name, path, demonstrated.games)
    return demonstrated


def _lessons(parts: Parts, name: str, path: Path, games: dict[str, list[Episode]]) -> list[Sample]:
    """What one policy is to be fitted to; the games that it comes from go into `games`."""
    from sparring.learn.demonstrations import read_demonstrations
    from sparring.learn.demonstrations import to_samples as as_samples
    from sparring.models.chat import Chat

    kind, source = sources(parts.config)[name]
    policies = parts.learner.policies.home(name)
    chat = Chat(policies.tokenizer)
    limit = policies.context
    if kind == DEMONSTRATIONS:
        samples = as_samples(chat, read_demonstrations(source), name, limit)
    else:
        kept = path / FOLDER / _games_of(name)
        if kept.exists():
            episodes = read_episodes(kept)
        else:
            episodes = play_programs(parts, name, kind, int(source), chat)
        games[name] = episodes
        samples = to_samples(episodes, [[1.0] * len(e.turns) for e in episodes])
        samples = [s for s in samples if limit is None or len(s.ids) <= limit]
    if not samples:
        raise ConfigError(f"begin.{name}={kind}:{source} shows nothing that could be learned from")
    for sample in samples:
        sample.policy = name
    return samples


def play_programs(parts: Parts, name: str, kind: str, count: int, chat: Chat) -> list[Episode]:
    """So many games with a program in the seats of a policy. Its turns hold the ids that the
    policy would see and say in its place."""

    too_long: list[tuple[Turn, int]] = []  # and how many tokens it might have had

    def transcribe(request: Request, turn: Turn) -> None:
        reply, most = chat.reply_ids(turn.text), request.sampling.max_tokens
        if len(reply) - 1 > most:  # its end may be cut off
            too_long.append((turn, most))
        turn.prompt_ids = chat.prompt_ids(request)
        turn.token_ids = reply[: max(most, len(reply) - 1)]
        turn.logprobs = [0.0] * len(turn.token_ids)

    async def play() -> list[Episode]:
        jobs = [_job(parts, name, kind, i) for i in range(count)]
        nobody = ScriptedEngine({}).act
        sampling = Sampling(**parts.config.sampling.model_dump())
        async with opened(parts.curriculum.all_games(), parts.config.jail):
            return await collect(jobs, nobody, sampling=sampling, transcribe=transcribe)

    episodes = asyncio.run(play())
    for turn in (turn for episode in episodes for turn in episode.turns if not turn.text):
        turn.trainable = False  # else the policy would learn to say nothing there
    turns = sum(turn.trainable for episode in episodes for turn in episode.turns)
    too_long = [(turn, most) for turn, most in too_long if turn.trainable]
    if len(too_long) > turns * _TOO_LONG:
        turn, most = too_long[0]
        raise ConfigError(
            f"begin.{name}: {len(too_long)} of {turns} replies of the {kind} player are longer "
            f"than the policy's, which may say {most} tokens, such as {turn.text[:80]!r}; choose "
            "another style or max_tokens"
        )
    for turn, _ in too_long:
        turn.trainable = False
    return episodes


def _job(parts: Parts, name: str, kind: str, index: int) -> Job:
    """One game to imitate. In a zero-sum game every other opponent plays at random: two perfect
    players never show how a mistake is punished."""
    config, seed = parts.config, derive(parts.config.seed, FOLDER, name, index)
    owned = {
        game: [s for s, player in own_seating(config, g.seats).items() if player == name]
        for game, g in parts.games.items()
    }
    names = [game for game, seats in owned.items() if seats]
    weights = [float(config.games[game].get("weight", 1.0)) for game in names]
    chosen = choose_game(names, weights, seed)
    game = parts.curriculum.level(chosen, index)
    program = kind if kind == RANDOM else program_of(game, kind)
    if program is None:
        raise ConfigError(f"{chosen} has no {kind} player to imitate")
    seating = dict.fromkeys(game.seats, program)
    if game.zero_sum and index % 2:
        keeps = owned[chosen][index // 2 % len(owned[chosen])]
        seating = {seat: program if seat == keeps else RANDOM for seat in game.seats}
    if tasks := parts.tasks.get(chosen):
        task = choose_task(game.suited(tasks, seed), config.seed, index)
    else:
        task = game.task(seed)
    return Job(
        id=f"{FOLDER}-{name}-{index}",
        name=chosen,
        game=game,
        task=task,
        seed=seed,
        seating=seating,
        learned=frozenset([program]),
        learning=frozenset(owned[chosen]),
    )


def learn_config(config: Config) -> LearnConfig:
    """How demonstrations are fitted: the run's own settings of weights and memory, and a linear
    decay of the learning rate."""
    own = config.imitation
    changed = {
        "objective": "likelihood",
        "lr": own.lr or config.learn.lr,
        "batch": own.batch,
        "schedule": "linear",
        "lr_floor": 0.0,
        "warmup": 0,
        "kl_stop": None,  # of a policy that samples
        "epochs": 1,
        "horizon": None,
        "restart": False,
        "kl": 0.0,
    }
    return config.learn.model_copy(update=changed)


async def imitate(
    run: RunDir, parts: Parts, demonstrated: Demonstrated, evaluate: Evaluate
) -> None:
    """Fit the policies, with an evaluation before and one after; killed, it goes on from its last
    epoch. The best checkpoint of a run that learns nothing more is the one that this leaves."""
    from sparring.training.finetune import fit_epochs, resume_fit

    folder = RunDir(run.path / FOLDER)
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    for name, episodes in demonstrated.games.items():
        if not (folder.path / _games_of(name)).exists():
            write_episodes(folder.path / _games_of(name), episodes)
    learner, epochs = parts.learner, parts.config.imitation.epochs
    log.info("imitation first: %s", _plan(parts.config, len(demonstrated.lessons)))
    results = _results(run.path)
    if "before" not in results:
        results["before"] = await evaluate(folder.path)
        write_json(folder.path / EVALUATION, results)
    learner.restart(learn_config(parts.config))
    first = resume_fit(folder, learner)
    async with parts.engine.learning():
        lessons, show = demonstrated.lessons, _show_epoch(epochs)
        await fit_epochs(folder, learner, lessons, first, epochs, keep=1, progress=show)
    learner.restart(parts.config.learn)
    parts.engine.publish()
    results["after"] = await evaluate(run.path)
    write_json(folder.path / EVALUATION, results)
    if "eval/score" in results["after"]:
        parts.guard.improved(results["after"]["eval/score"], 0)
    if not any(e["event"] == "imitated" for e in read_log(run.events)):
        run.event(0, "imitated", _summary(parts.config, results, len(demonstrated.lessons)))


def first_line(run: Path) -> dict[str, Any]:
    """What imitation came to, for the run's metrics of iteration 0; empty where there was none."""
    results = _results(run)
    if "after" not in results:
        return {}
    last = list(read_log(run / FOLDER / "metrics.jsonl"))[-1]
    facts = {"epochs": last["iteration"], "lessons": last["lessons"]}
    facts |= {k.removeprefix("learn/"): v for k, v in last.items() if k.endswith("/loss")}
    before = {f"before_imitation/{key}": value for key, value in results["before"].items()}
    return {**results["after"], **before, **{f"imitation/{k}": v for k, v in facts.items()}}


def tidy(run: Path) -> None:
    """What was fitted is in the run's first checkpoint; those on the way there are as large."""
    shutil.rmtree(run / FOLDER / "checkpoints", ignore_errors=True)


def _show_epoch(epochs: int) -> Progress:
    """One epoch can take longer than many iterations: each is said."""

    def show(metrics: dict[str, Any]) -> None:
        epoch, took = metrics["iteration"], metrics["time/learn_s"]
        losses = ", ".join(f"{v:.3f}" for k, v in metrics.items() if k.endswith("/loss"))
        left = f", about {(epochs - epoch) * took:.0f} s left" if epoch < epochs else ""
        log.info("imitation: epoch %d of %d, loss %s, %.0f s%s", epoch, epochs, losses, took, left)

    return show


def _plan(config: Config, lessons: int) -> str:
    who = ", ".join(f"{name} {':'.join(source)}" for name, source in sources(config).items())
    return f"{who}: {lessons} lessons, {config.imitation.epochs} epochs"


def _summary(config: Config, results: dict[str, Any], lessons: int) -> str:
    scores = [results[when].get("eval/score") for when in ("before", "after")]
    gain = "" if None in scores else f"; score {scores[0]:.3f} before, {scores[1]:.3f} after"
    return f"{_plan(config, lessons)}{gain}"


def _games_of(name: str) -> str:
    return f"{name}.jsonl.gz"


def _results(run: Path) -> dict[str, Any]:
    path = run / FOLDER / EVALUATION
    return read_object(path) if path.exists() else {}
