"""A learner that several processes are: the first one is told, and tells the others."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.games import make_games
from sparring.learn import world
from sparring.learn.device import choose_device, fast_allocations
from sparring.learn.learner import Learner
from sparring.learn.policies import load_policies
from sparring.run import interrupt, needs
from sparring.run.config import Config
from sparring.types import Lesson


class TeamLearner(Learner):
    """Each process of a team has one. `fit` and `load` of the first are those of all."""

    @property
    def leads(self) -> bool:
        return self.world.rank == 0

    def fit(
        self, lessons: Sequence[Lesson], iteration: int, iterations: int = 1
    ) -> dict[str, float]:
        if self.leads:
            self.world.hand_out(("fit", self.lr_scale, list(lessons), iteration, iterations))
        return super().fit(lessons, iteration, iterations)

    def load(self, state: dict[str, dict[str, Tensor]]) -> None:
        if self.leads:
            whole = {f: {k: t.cpu() for k, t in part.items()} for f, part in state.items()}
            self.world.hand_out(("load", whole))
        super().load(state)

    def dismiss(self) -> None:
        if self.leads:
            self.world.hand_out(("stop",))

    def serve(self) -> None:
        """Do what the first process says, until it says stop."""
        while True:
            verb, *words = self.world.hand_out()
            if verb == "stop":
                return
            if verb == "fit":
                self.lr_scale, *lessons = words
                self.fit(*lessons)
            else:
                self.load(*words)


def help_learn(config: Config) -> None:
    """The life of a process other than the first."""
    # Signals are for the first process, which then says what to do.
    for number in interrupt.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    learner = make_learner(config)
    if isinstance(learner, TeamLearner):
        learner.serve()


def make_learner(config: Config) -> Learner:
    """The learner of a run, with its policies; one of a team where a launcher started several."""
    fast_allocations()
    device, dtype = choose_device(config.engine.device, config.engine.dtype, config.learn.weights)
    team = world.size() > 1
    together = world.World(world.size(), device)
    if team and device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = f"cuda:{local % torch.cuda.device_count()}"
    policies = load_policies(
        config.policy, config.learn, device=device, dtype=dtype, seed=config.seed
    )
    words: dict[str, Any] = {
        "seed": config.seed,
        "canary": config.canary,
        "max_tokens": config.sampling.max_tokens,
        "critic": config.credit.kind == "gae",
    }
    learned = needs.learned_policies(config, make_games(config.games).values())
    learner = (TeamLearner if team else Learner)(policies, learned, config.learn, **words)
    learner.world = together
    return learner
