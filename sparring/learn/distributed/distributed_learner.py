"""One learner over several processes: the first is called, and has the others do the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from sparring.core.errors import ConfigError
from sparring.core.scripted import PROGRAMS
from sparring.core.types import Lesson
from sparring.credit import make_credit
from sparring.learn.distributed import world
from sparring.learn.learner import Learner, Work
from sparring.models.begin import begin_with
from sparring.models.device import choose_device, fast_allocations, use_tf32
from sparring.models.policies import Policies, load_policies
from sparring.run import interrupt, rank
from sparring.run.config import Config, LearnConfig
from sparring.run.games import make_games
from sparring.run.players import learned_policies


class DistributedLearner(Learner):
    """Each learning process has one. What the first is asked that takes all of them, it tells the
    others to do as well: `fit`, `load` and, where weights are sharded, `state`."""

    _in_step = False  # whether the others are doing the same already

    @property
    def leads(self) -> bool:
        return self.world.rank == 0

    @contextmanager
    def all_do(self, verb: str, *words: Any) -> Iterator[None]:
        """The others do the same while this block lasts; once, however deep it is called."""
        outermost, self._in_step = not self._in_step, True
        if outermost and self.leads:
            self.world.broadcast((verb, *words))
        try:
            yield
        finally:
            self._in_step = not outermost

    def fit(
        self, lessons: Sequence[Lesson], iteration: int, iterations: int = 1, meanwhile: Work = None
    ) -> dict[str, float]:
        with self.all_do("fit", self.lr_scale, list(lessons), iteration, iterations):
            return super().fit(lessons, iteration, iterations, meanwhile)

    def restart(self, config: LearnConfig) -> None:
        with self.all_do("restart", config):
            super().restart(config)

    def load(self, state: dict[str, dict[str, Tensor]]) -> None:
        whole = {f: {k: t.cpu() for k, t in part.items()} for f, part in state.items()}
        with self.all_do("load", whole):
            super().load(state)

    def state(self) -> dict[str, dict[str, Tensor]]:
        if not self.sharded:
            return super().state()
        with self.all_do("state"):
            return super().state()

    def dismiss(self) -> None:
        if self.leads:
            self.world.broadcast(("stop",))

    def serve(self) -> None:
        """Do what the first process says, until it says stop."""
        while True:
            verb, *words = self.world.broadcast()
            if verb == "stop":
                return
            if verb == "fit":
                self.lr_scale, *words = words
            if verb == "policy":
                self.policies.state(*words)
            else:
                getattr(self, verb)(*words)


def spread_out(learner: Learner) -> None:
    """Spread a learner's weights over the processes: FSDP2. Optimizers begin anew on the parts."""
    from sparring.learn.distributed.shard import ShardedOptimizer, like, shard, whole

    policies = learner.policies
    shard(policies)

    def gather(name: str, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        if not any(isinstance(tensor, DTensor) for tensor in parts.values()):
            return parts
        with learner.all_do("policy", name):
            return {key: whole(tensor) for key, tensor in parts.items()}

    def scatter(name: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
        own = policies.parameters(name)
        return {k: like(t, own[k]) if k in own else t for k, t in state.items()}

    learner.make_optimizer = ShardedOptimizer
    policies.scatter = scatter
    for name in learner.optimizers:
        learner.begin(name)  # by all at once: where it begins is kept in parts
    policies.gather = gather
    learner.sharded = True


def help_learn(config: Config, folder: Path | None = None) -> None:
    """The life of a process other than the first."""
    ignore_signals()
    make_learner(config, folder).serve()


def ignore_signals() -> None:
    """They are for the first process, which then says what to do."""
    for number in interrupt.SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def make_learner(
    config: Config, folder: Path | None = None, learned: Sequence[str] | None = None
) -> Learner:
    """The learner of a run in this folder, with its policies: those in the seats of its games,
    unless `learned` names them; one of several where a launcher started several."""
    check_shard(config)
    fast_allocations()
    device, dtype = choose_device(config.engine.device, config.engine.dtype, config.learn.weights)
    several = rank.size() > 1
    group = world.World(rank.size(), device)
    device = world.own_device(device)
    use_tf32(config.engine.tf32, device)
    learned = learned or learned_policies(config, make_games(config.games).values())
    words: dict[str, Any] = {
        "seed": config.seed,
        "canary": config.canary,
        "max_tokens": config.sampling.max_tokens,
        "critic": make_credit(config.credit).uses_critic,
    }
    options: dict[str, Any] = {"device": device, "dtype": dtype, "template": config.template}
    if config.bases:
        from sparring.models.multi_base import begin_on_bases, check_bases, policies_on_bases

        check_bases(config, learned)
        many = policies_on_bases(config, **options)
        begin_on_bases(config, many, learned, folder)
        policies: Policies = many
    else:
        policies = load_policies(config.policy, config.learn, seed=config.seed, **options)
        begin_with(config, policies, learned, folder)
    learner = (DistributedLearner if several else Learner)(policies, learned, config.learn, **words)
    learner.world = group
    if config.learn.shard:
        spread_out(learner)
    return learner


def check_shard(config: Config) -> None:
    """No process holds sharded weights whole, so none can generate with them alone."""
    if not config.learn.shard:
        return
    if rank.size() < 2:
        raise ConfigError("learn.shard shards weights over processes: say --processes, or launch")
    if not config.ray.replicas:
        raise ConfigError(
            "learn.shard leaves no process with the whole model, which the embedded engine needs: "
            "let replicas speak, with ray.replicas"
        )
    league = config.learn.weights == "full" and config.opponents.kind not in ("self", *PROGRAMS)
    if league or make_credit(config.credit).uses_critic or config.learn.moving_reference:
        raise ConfigError(
            "learn.shard goes with neither a critic (credit.kind: gae), a moving reference, nor, "
            "for full weights, old selves as opponents"
        )
