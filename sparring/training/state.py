"""What a run is made of: put together from its config, saved, loaded, rolled back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.core.plugin import find
from sparring.core.types import Episode, Task
from sparring.credit import make_credit
from sparring.credit.credit import Credit
from sparring.evaluation.periodic import wanted
from sparring.models.compute_thread import threads, use_threads
from sparring.models.trained import base_name
from sparring.run import checkpoint
from sparring.run.config import Config
from sparring.run.games import make_games
from sparring.run.job import resume_latest
from sparring.run.machine import release_free_memory
from sparring.run.players import learned_policies
from sparring.run.rundir import RunDir, RunError
from sparring.run.schedule import Step, steps_of
from sparring.run.sections import why_not_ahead
from sparring.training import checkpoint_names, requirements
from sparring.training.curriculum import Curriculum
from sparring.training.guard import Guard
from sparring.training.jobs import DifficultyGate
from sparring.training.lessons import Teacher
from sparring.training.opponents import Opponents

if TYPE_CHECKING:
    from sparring.engines.players import Players
    from sparring.learn.learner import Learner

STATEFUL = ("credit", "teacher", "gate", "guard", "curriculum")  # parts with `state` and `load`
log = logging.getLogger(__name__)


@dataclass
class Parts:
    """The components of a run; those that shape the next step have state in its checkpoint."""

    config: Config
    games: dict[str, Game]
    learner: Learner
    engine: Players
    credit: Credit
    teacher: Teacher
    opponents: Opponents
    guard: Guard
    curriculum: Curriculum
    tasks: dict[str, list[Task]]  # of the games that do not make their own
    gate: DifficultyGate  # which of them are too easy or too hard
    steps: list[Step]  # of the schedule, one per iteration; none: every seat learns always
    collecting: Players  # who plays what is learned from: `engine`, or one on a copy of the weights
    in_hand: list[dict[str, Any]] = field(default_factory=list)  # games played ahead, on resuming

    @property
    def device(self) -> str:
        return str(self.learner.policies.device.type)

    def save(
        self, run: RunDir, iteration: int, in_hand: list[dict[str, Any]] | None = None
    ) -> None:
        learner, league = self.learner, self.opponents.league
        tensors = learner.state()
        tensors |= {f"league.{name}": learner.policies.state(name) for name in league}
        state = {
            "iteration": iteration,
            **{name: getattr(self, name).state() for name in (*STATEFUL, "opponents")},
            "lr_scale": learner.lr_scale,
            "device": self.device,
            **({"threads": threads()} if self.device == "cpu" else {}),
            "versions": {n: learner.policies.version(n) for n in learner.policies.names()},
            **({"in_hand": in_hand} if in_hand else {}),
        }
        checkpoint.save(run.checkpoints, iteration, tensors, state)
        keep, guard = self.config.checkpoint.keep, self.guard
        checkpoint.tidy(run.checkpoints, keep, guard.best_step, guard.former)
        self.name_checkpoints(run)
        release_free_memory()

    def name_checkpoints(self, run: RunDir) -> None:
        if self.steps:
            checkpoint_names.renew(run, self.config, self.steps, self.guard.best_step, self.device)

    def load(self, tensors: checkpoint.Tensors, state: dict[str, Any]) -> None:
        self.opponents.load(state["opponents"], self.learner.policies)
        self.learner.load(tensors)
        for name in self.opponents.league:
            self.learner.policies.load(name, tensors[f"league.{name}"])
        for name, version in state["versions"].items():
            self.learner.policies.set_version(name, version)
        for name in STATEFUL:
            getattr(self, name).load(state[name])
        self.learner.lr_scale = state["lr_scale"]
        self.in_hand = state.get("in_hand", [])
        self.engine.publish()


def build(config: Config, folder: Path | None = None) -> Parts:
    """Load the model and put the parts of the run in this folder together; nothing is written."""
    from sparring.engines.engine import OwnEngine
    from sparring.engines.make import make_embedded, make_engine, with_workers
    from sparring.engines.players import Players
    from sparring.learn.distributed.distributed_learner import make_learner
    from sparring.models.device import choose_device

    if not config.games:
        raise ConfigError("a run needs at least one game under `games:`")
    ahead = config.collect.ahead > 0
    if ahead and (reason := why_not_ahead(config)):
        raise ConfigError(f"collect.ahead={config.collect.ahead} cannot be had here: {reason}")
    requirements.need_whole_draws(config)
    requirements.need_masks(config)
    requirements.need_groups(config)
    games = make_games(config.games)
    requirements.check_league(config, games.values())
    requirements.check_programs(config, games)
    requirements.need_jail(config, games.values())
    tasks = requirements.tasks_of(config, games)
    wanted(config)  # finds the data of its evaluations
    servers = requirements.seat_servers(config)
    device, dtype = choose_device(config.engine.device, config.engine.dtype, config.learn.weights)
    learner = make_learner(config, folder)
    policies = learner.policies
    engine = make_embedded(config, policies) if ahead else make_engine(config, policies, dtype)
    engine.base = base_name(config.policy, config.seed)
    requirements.seat_players(config, engine)
    speaker = engine
    # Then other weights may have generated it than those that the learner begins with.
    if config.teach.kind == "recorded" or config.learn.restart:
        learner.canary = None
    if ahead:  # then workers play, with a copy of the weights, which is what they are held to
        learner.canary = None
        speaker = OwnEngine()
        speaker.chat, speaker.base, speaker.policies = engine.chat, engine.base, policies.twin()
    collecting = Players(with_workers(config, speaker, device), servers)
    credit = make_credit(config.credit)
    credit.use_values(learner.values)
    return Parts(
        config,
        games,
        learner,
        Players(engine, servers) if ahead else collecting,
        credit,
        find("teachers", config.teach.kind)(config, credit, engine.chat),
        Opponents(config.opponents, config.players, learned_policies(config, games.values())),
        Guard(config.guard),
        Curriculum(config, games),
        tasks,
        DifficultyGate(config.tasks.gate),
        steps_of(config.schedule, games.values()),
        collecting,
    )


def resume_from(run: RunDir, parts: Parts, wanted: str | None = None) -> int:
    """The iteration to go on after: that of the newest whole checkpoint, or of the one that is
    wanted by name. A run that has no checkpoint yet begins by making one."""
    if wanted is None:
        step = resume_latest(run, partial(_load, run, parts), partial(_save_first, run, parts))
    else:
        step = checkpoint_names.find(run.checkpoints, wanted)
        _load(run, parts, wanted, *checkpoint.load(run.checkpoints, step))
        run.rewind(step, "later")
        run.event(step, "resumed", f"from {wanted}, as asked")
    checkpoint.point(run.checkpoints, "best", parts.guard.best_step)
    parts.name_checkpoints(run)
    return step


def _save_first(run: RunDir, parts: Parts, step: int) -> None:
    """The checkpoint that every roll-back and resumption can go back to, with a league that begins
    with the first weights."""
    if parts.config.opponents.start:
        parts.opponents.grow(parts.learner.policies, step)
        parts.engine.publish()
    parts.save(run, step)


def _load(
    run: RunDir, parts: Parts, name: str, tensors: checkpoint.Tensors, state: dict[str, Any]
) -> None:
    """Load a checkpoint that fits this run, or say why it does not; nothing is written."""
    device = state.get("device", parts.device)
    if device != parts.device:
        raise checkpoint_names.refused(
            run.checkpoints,
            name,
            f"it was written on {device} and this is {parts.device}, where the run would not be "
            "the same one; use a device of that kind",
        )
    if state.get("threads", threads()) != threads():
        log.info("computing with %s threads, as the run did before", state["threads"])
        use_threads(state["threads"])
    try:
        parts.load(tensors, state)
    except (ValueError, KeyError) as error:
        raise checkpoint_names.refused(
            run.checkpoints, name, f"it is of another make: {error}"
        ) from error


def stop_if_void(run: RunDir, parts: Parts, iteration: int, episodes: Sequence[Episode]) -> None:
    """A run whose games are void learns nothing, and no checkpoint to go back to changes that."""
    reason = parts.guard.watch_voids(episodes)
    if reason:
        run.event(iteration, "stopped", reason)
        raise RunError(
            f"the run stopped at iteration {iteration}: {reason}. Nothing can be learned from void "
            "games. Mend what the reasons name, then --resume; the games are on record."
        )


def roll_back(run: RunDir, parts: Parts, iteration: int, reason: str) -> None:
    """Back to the best checkpoint, more carefully; or stop, if that is what was asked for."""
    guard, config = parts.guard, parts.config.guard
    step = guard.best_step or 0
    if config.action == "stop" or guard.rollbacks >= config.most:
        run.event(iteration, "stopped", reason)
        raise RunError(
            f"the run collapsed at iteration {iteration}: {reason}. The best checkpoint is "
            f"{checkpoint.step_name(step)}; guard.action and guard.most say when to stop."
        )
    kept, scale = guard.state(), parts.learner.lr_scale
    parts.load(*checkpoint.load(run.checkpoints, step))
    guard.load(kept)
    guard.rolled_back()
    parts.learner.lr_scale = scale * config.lr_factor
    run.event(iteration, "rollback", f"{reason}; back to {checkpoint.step_name(step)}")
    log.warning(
        f"ROLLED BACK at iteration {iteration}: {reason}. The weights are those of "
        f"{checkpoint.step_name(step)} again, with {config.lr_factor:g} of the learning rate "
        f"({guard.rollbacks} of at most {config.most} times). If the run was well, change that "
        "limit or say guard.enabled=false; if not, lower learn.lr"
    )
