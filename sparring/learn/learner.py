"""The one learner. It sees lessons (samples with advantages, demonstrations, pairs) and moves
weights; which algorithm made them it does not know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from sparring.core.types import BASE, Lesson, Sample, derive, members
from sparring.learn.activation_checkpointing import layers_of
from sparring.learn.batches import Batch, by_budget, collate, optimizer_batches, pack, prefetched
from sparring.learn.canary import CanaryError as CanaryError
from sparring.learn.canary import check_canary
from sparring.learn.critic import Critic
from sparring.learn.distributed.world import World
from sparring.learn.graphs import TOKENS, Graphs
from sparring.learn.head_check import check_head
from sparring.learn.losses import Totals
from sparring.learn.objectives import (
    Result,
    Stats,
    likelihood_objective,
    means_of,
    policy_objective,
    preference_objective,
    sums_of,
)
from sparring.learn.optimizer import Optimizer, make_masters
from sparring.learn.packing import check_packing
from sparring.learn.passes import Passes, same_bits
from sparring.learn.reference import copy_rounded, follow, follow_rate
from sparring.learn.schedules import learning_rate, linear
from sparring.learn.scoring import score_logprobs, score_tokens
from sparring.models.device import out_of_memory
from sparring.models.policies import REFERENCE as REFERENCE
from sparring.models.policies import Policies
from sparring.run import interrupt
from sparring.run.config import LearnConfig

log = logging.getLogger(__name__)
Work = Callable[[], object] | None
UPDATES = "updates"  # among a reference's weights in a checkpoint: how often it has followed


class Learner(Passes):
    make_optimizer: type[Optimizer] = Optimizer
    sharded = False  # whether the weights are sharded over processes

    def __init__(
        self,
        policies: Policies,
        learned: Sequence[str],
        config: LearnConfig,
        *,
        seed: int = 0,
        canary: float | None = None,
        max_tokens: int = 1,
        critic: bool = False,
    ) -> None:
        self.policies, self.config, self.seed, self.canary = policies, config, seed, canary
        self.max_tokens = max_tokens
        self.budget = config.tokens_per_batch  # halved where the memory does not hold it
        self.world = World()
        self._entropy_bonus, self._kl = config.entropy, config.kl
        self.lr_scale = 1.0  # lowered by the collapse guard
        self.optimizers: dict[str, Optimizer] = {}
        self.references: dict[str, dict[str, Tensor]] = {}  # of moving references, in float32
        self.reference_updates: dict[str, int] = {}  # since they began
        self.beginnings: dict[str, dict[str, Tensor]] = {}  # where each iteration restarts from
        self.critics: dict[str, Critic] = {}
        self.critic_optimizers: dict[str, Optimizer] = {}
        for name in learned:
            if name not in policies.names():
                policies.add(name)
        # By one policy of each base, which may not be in memory itself.
        firsts = {id(policies.home(name)): name for name in learned} or {0: BASE}
        with ExitStack() as stack:
            models = [stack.enter_context(policies.using(name)) for name in firsts.values()]
            Passes.__init__(self, models, config)
            for model in models:
                check_head(model)
                if config.gradient_checkpointing:
                    layers_of(model)
                if config.packing:
                    check_packing(model)
        for name in learned:
            if critic:
                own = policies.home(name)
                self.critics[name] = Critic(own.config.hidden_size, own.device)
                self.critic_optimizers[name] = Optimizer(self.critics[name].parameters(), config)
            self.begin(name)

    def begin(self, name: str) -> None:
        """The optimizer and the moving reference of a policy, from the weights that it has."""
        policies, config = self.policies, self.config
        self.optimizers[name] = self.make_optimizer(policies.parameters(name), config)
        self.capture(name, self.optimizers[name])
        if config.restart:
            first = {key: p.detach().clone() for key, p in policies.state(name).items()}
            self.beginnings[name] = first
        if config.moving_reference:
            reference = self.reference(name)
            if reference in policies.names():
                policies.load(reference, policies.state(name))
            else:
                policies.add(reference, name)
            self.references[name] = make_masters(policies.parameters(reference))
            self.reference_updates[name] = 0

    def restart(self, config: LearnConfig) -> None:
        """Learn by this config from now on; optimizers and moving references begin anew at the
        weights that the policies have."""
        self.config = config
        for name in self.optimizers:
            self.begin(name)

    def reference(self, name: str) -> str:
        """The policy that the divergence is measured to."""
        return f"{REFERENCE}_{name}" if self.config.moving_reference else BASE

    @property
    def supervised(self) -> bool:
        """Whether the lessons were not sampled: then there is no canary, and dropout is on."""
        return self.config.objective != "policy"

    @property
    def by_steps(self) -> bool:
        """Whether the learning rate goes by optimizer steps. Weights that begin anew in every
        iteration begin the schedule anew as well."""
        return self.supervised or self.config.restart

    def lr(self, position: int, of: int) -> float:
        """The learning rate at one of so many iterations, or optimizer steps, see `by_steps`."""
        return self.lr_scale * learning_rate(self.config, position, of)

    def fit(
        self, lessons: Sequence[Lesson], iteration: int, iterations: int = 1, meanwhile: Work = None
    ) -> dict[str, float]:
        """Learn from one iteration's lessons; returns means over its optimizer steps. `meanwhile`
        is called whenever a policy's steps are queued: a GPU is still busy with them then."""
        stats: dict[str, float] = {}
        iterations = self.config.horizon or iterations
        progress = min(1.0, iteration / max(1, iterations))
        self._entropy_bonus = linear(self.config.entropy, self.config.entropy_end, progress)
        self._kl = linear(self.config.kl, self.config.kl_end, progress)
        for name in self.optimizers:
            mine = [x for x in lessons if x.policy == name and all(any(s.mask) for s in members(x))]
            if not mine:
                continue
            if self.config.restart:
                self.policies.load(name, self.beginnings[name])
                parameters = self.policies.parameters(name)
                self.optimizers[name] = self.make_optimizer(parameters, self.config)
            prefix = "" if len(self.optimizers) == 1 else f"{name}/"
            own = self._fit_policy(name, mine, iteration, iterations, meanwhile)
            stats |= {f"learn/{prefix}{key}": value for key, value in own.items()}
            self._move_reference(name)
            self.policies.set_version(name, self.policies.version(name) + 1)
        return stats

    def _fit_policy(
        self, name: str, lessons: list[Lesson], iteration: int, iterations: int, meanwhile: Work
    ) -> dict[str, float]:
        rows: list[Stats] = []
        gap: Tensor | None = None
        refused: Tensor | None = None
        far = False
        waits = self.policies.device.type == "cpu"  # whether reading a number costs nothing
        lr = self.lr(iteration, iterations)
        # Steps are counted by the optimizer, whose state is in the checkpoint: earlier iterations
        # may have had more of them, or fewer.
        taken = self.optimizers[name].steps() if self.by_steps else 0
        left = 1 if self.config.restart else iterations - iteration
        for epoch in range(self.config.epochs):
            seed = derive(self.seed, iteration, epoch, name)
            parts = [] if far else optimizer_batches(lessons, self.config, seed)
            if epoch == 0 and self.config.corrects and len(parts) * self.config.epochs > 1:
                self._keep_logprobs(name, lessons)
            for number, part in enumerate(parts):
                if self.by_steps:
                    position = taken + epoch * len(parts) + number
                    lr = self.lr(position, taken + left * self.config.epochs * len(parts))
                if self.world.size == 1:  # several must not be left by one of them
                    interrupt.check()
                stats = self._gather(name, part, iteration, epoch, number)
                if gap is None and not self.supervised:
                    gap = stats["canary"]
                    if self.canary is not None and waits:
                        check_canary(float(gap), self.canary, name)
                    elif self.canary is not None:  # the device takes no step; the host hears later
                        refused = ~(gap <= self.canary)
                kl_stop = None if self.supervised else self.config.kl_stop
                far = kl_stop is not None and float(stats["moved"]) > kl_stop
                if far:  # from the policy that sampled: its samples teach nothing more
                    break
                rows.append({**stats, "grad_norm": self._step(name, lr, refused)})
        if meanwhile is not None:
            meanwhile()
        first = {} if self.supervised else {"canary": 0.0 if gap is None else float(gap)}
        if refused is not None and self.canary is not None:
            check_canary(first["canary"], self.canary, name)
        means, steps = means_of(rows)
        if self.config.kl_stop is not None and not self.supervised:
            first["stopped"] = float(far)
        skipped = float(len(rows) - steps)
        return {**means, **first, "lr": lr, "steps": float(steps), "skipped": skipped}

    def _step(self, name: str, lr: float, refused: Tensor | None = None) -> Tensor:
        """One step of the policy, and of its critic; the norm of the policy's gradient."""
        most = self.config.max_grad_norm
        norm = self.optimizers[name].step(lr, most, refused)
        if name in self.critics:
            skipped = ~norm.isfinite() if refused is None else ~norm.isfinite() | refused
            rate = self.config.critic_lr * self.lr_scale
            self.critic_optimizers[name].step(rate, most, skipped)
        return norm

    def values(self, samples: Sequence[Sample]) -> list[list[float]]:
        """What the critics expect before each token that is learned from, per sample."""
        values: dict[int, list[float]] = {id(sample): [] for sample in samples}
        for name, critic in self.critics.items():
            mine = [s for s in samples if s.policy == name and any(s.mask)]

            def value(model: Any, batch: Batch, critic: Critic = critic) -> Tensor:
                return critic(self.hidden(model, batch))

            for sample, of_sample in score_tokens(self, name, mine, value):
                values[id(sample)] = of_sample
        return [values[id(sample)] for sample in samples]

    def _keep_logprobs(self, name: str, lessons: Sequence[Lesson]) -> None:
        """Note the policy's own logprobs of the sampled tokens, before the first step."""
        samples = [sample for lesson in lessons for sample in members(lesson)]
        for sample, logprobs in score_logprobs(self, name, samples):
            sample.old_logprobs = logprobs

    @contextmanager
    def _dropout(self, *step: object) -> Iterator[None]:
        """Dropout drawn by the run's seed and the step's number, so that a resumed run draws the
        same; nothing else here is left to chance."""
        if not self.supervised:
            yield
            return
        device = torch.device(self.policies.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            # Several processes read different lessons, and drop different things.
            mine = (self.world.rank,) if self.world.size > 1 else ()
            torch.manual_seed(derive(self.seed, "dropout", *step, *mine))
            yield

    def _gather(self, name: str, lessons: list[Lesson], *step: object) -> Stats:
        """The gradient of one optimizer batch. Where the memory runs out it is begun again in
        smaller micro-batches, which change nothing but the time it takes."""
        longest = max(len(s.ids) for lesson in lessons for s in members(lesson))
        while True:
            try:
                device = torch.device(self.policies.device)
                with self._dropout(*step, name), same_bits(self.config.deterministic, device):
                    return self._accumulate(name, lessons)
            except RuntimeError as error:
                if not out_of_memory(error) or self.world.size > 1 or self.budget <= longest:
                    raise
            # Out of the handler: what was being computed is held by the error until here.
            self.drop_graphs()
            torch.cuda.empty_cache()
            self.budget //= 2
            log.warning("out of memory: micro-batches of %s tokens from now on", self.budget)

    def _accumulate(self, name: str, lessons: list[Lesson]) -> Stats:
        """Forward and backward over one optimizer batch, in micro-batches."""
        most = self.world.most(len(lessons), self.config.micro_batch)
        pad, device = self.policies.home(name).tokenizer.pad_token_id, self.policies.device
        graphs = self.graphs.get(name) if self.world.size == 1 else None
        width_of = self.row_width(graphs, device)
        if self.config.packing:
            micro_batches, width = pack(lessons, self.budget, most)
        else:
            budget = self.budget if graphs is None else min(self.budget, TOKENS)
            micro_batches, width = by_budget(lessons, budget, most, width_of), None
        totals = Totals(
            sequences=len(lessons),
            tokens=sum(sum(s.mask) for lesson in lessons for s in members(lesson)),
            micro_batches=len(micro_batches),
            max_tokens=self.max_tokens,
        )

        def make(micro: list[Lesson]) -> Batch:
            samples = [sample for lesson in micro for sample in members(lesson)]
            return collate(samples, pad, device, width, width_of)

        parts: list[tuple[Stats, float]] = []
        fuse = self.worth_compiling(lessons)
        self.optimizers[name].zero_grad()
        if name in self.critics:
            self.critic_optimizers[name].zero_grad()
        for batch, counts in prefetched(self.world.share(micro_batches), make, device):
            loss, stats = self._loss(name, batch, totals, fuse, graphs)
            (loss * counts).backward()
            parts.append((stats, counts))
        self.world.add_up(self.optimizers[name].parameters.values())
        if name in self.critics:
            self.world.add_up(self.critic_optimizers[name].parameters.values())
        return self.world.add_up_numbers(sums_of(parts), device)

    def _loss(
        self,
        name: str,
        batch: Batch,
        totals: Totals,
        fuse: bool | None = None,
        graphs: Graphs | None = None,
    ) -> Result:
        config = self.config
        if self.supervised:
            with self.policies.fitting(name) as model:
                logprobs, _ = self.logprobs(model, batch, fuse, graphs)
            objective = (
                likelihood_objective if config.objective == "likelihood" else preference_objective
            )
            return objective(logprobs, batch, totals, config)
        reference = None
        if self._kl > 0 and config.reference != "uniform":
            # Before the policy's own pass: peft freezes whichever adapter was in use before, and
            # a frozen one gets no gradient.
            base = self.policies.home(name)
            with torch.no_grad(), base.using(self.reference(name)) as model:
                reference, _ = self.logprobs(model, batch, fuse)
        with self.policies.using(name) as model:
            hidden = self.hidden(model, batch, fuse, graphs)
            logprobs, entropy = self.head_logprobs(model, hidden, batch, fuse)
        return policy_objective(
            logprobs,
            entropy,
            batch,
            totals,
            config,
            reference=reference,
            values=self.critics[name](hidden) if name in self.critics else None,
            kl_weight=self._kl,
            vocabulary=len(model.get_output_embeddings().weight),
            entropy_bonus=self._entropy_bonus,
        )

    def _move_reference(self, name: str) -> None:
        """Let the reference follow the policy, which keeps self-play from cycling."""
        if name in self.references and self.config.moving_reference:
            rate = follow_rate(self.config, self.reference_updates[name])
            self.reference_updates[name] += 1
            self._follow(name, self.optimizers[name].masters, rate)

    def _follow(self, name: str, weights: dict[str, Tensor], rate: float) -> None:
        follow(self.references[name], weights, rate)
        copy_rounded(self.references[name], self.policies.parameters(f"{REFERENCE}_{name}"))

    def all_do(self, verb: str, *words: Any) -> AbstractContextManager[None]:
        """For learners in several processes: the others do the same while this lasts."""
        return nullcontext()

    def serve(self) -> None:
        """For learners in several processes: do what the first one says."""

    def dismiss(self) -> None:
        """Nothing more will be learned; for learners that others wait for."""

    def state(self) -> dict[str, dict[str, Tensor]]:
        """All tensors that shape the next step, by file."""
        state: dict[str, dict[str, Tensor]] = {}
        for name, optimizer in self.optimizers.items():
            state[f"{name}.policy"] = self.policies.state(name)
            state[f"{name}.optimizer"] = optimizer.state()
            if name in self.references:
                own = self.references[name]
                updates = torch.tensor(float(self.reference_updates[name]))
                state[f"{name}.reference"] = {
                    UPDATES: updates,
                    **{key: tensor.detach() for key, tensor in own.items()},
                }
            if name in self.critics:
                state[f"{name}.critic"] = self.critics[name].state()
                state[f"{name}.critic_optimizer"] = self.critic_optimizers[name].state()
        return state

    def load(self, state: dict[str, dict[str, Tensor]]) -> None:
        for name, optimizer in self.optimizers.items():
            self.policies.load(name, state[f"{name}.policy"])
            optimizer.load(state[f"{name}.optimizer"])
            if name in self.critics:
                self.critics[name].load(state[f"{name}.critic"])
                self.critic_optimizers[name].load(state[f"{name}.critic_optimizer"])
            if name in self.references:
                self.reference_updates[name] = int(state[f"{name}.reference"][UPDATES])
                self._follow(name, state[f"{name}.reference"], 1.0)
