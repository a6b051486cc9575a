"""Makes the engine that a config names, and spreads it over a cluster where that is asked for."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from sparring.engines.engine import OwnEngine
from sparring.models.compute_thread import threads, use_threads
from sparring.run.config import Config

if TYPE_CHECKING:
    from sparring.engines.worker import Make
    from sparring.models.policies import Policies


def make_engine(config: Config, policies: Policies, dtype: str) -> OwnEngine:
    """The engine that a config names, in this process; where workers play instead, the embedded
    one is enough."""
    if config.engine.kind == "vllm" and not (config.ray.replicas or config.collect.ahead):
        from sparring.engines.vllm import make_vllm

        return make_vllm(config, policies, dtype)
    return make_embedded(config, policies)


def make_embedded(config: Config, policies: Policies) -> OwnEngine:
    from sparring.engines.local.multi_base import embedded

    return embedded(
        policies,
        max_batch=config.engine.max_batch,
        lockstep=config.engine.lockstep,
        graphs=config.engine.graphs,
        cache_gb=config.engine.cache_gb,
    )


def with_workers(config: Config, own: OwnEngine, device: str) -> OwnEngine:
    """The engine that plays what is learned from: the run's own; workers that Ray places; or, where
    games are played while others are learned from, a worker in a second process."""
    if config.ray.replicas:
        from sparring.engines.ray import ray_pool

        asked = config.ray.gpus
        gpus = asked if asked is not None else float(device.startswith("cuda"))
        make, whole = partial(make_for_worker, config), not config.learn.shard
        options = {"jail": config.jail, "whole": whole, "device": device}
        return ray_pool(own, make, config.ray, gpus, **options)  # type: ignore[arg-type]
    if not config.collect.ahead:
        return own
    if config.engine.kind == "vllm":
        from sparring.engines.vllm import check_vllm

        check_vllm(config, own.policies)
    from sparring.engines.pool import WorkerPool
    from sparring.engines.process import ProcessTransport

    def make_in_process() -> Make:
        # The same number of threads gives the same last digits; one worker has all games.
        return partial(make_for_worker, config, threads(), alone=True)

    transport = ProcessTransport(make_in_process, config.jail, other_gpu(device))
    return WorkerPool(own, transport, whole=False)


def other_gpu(device: str) -> dict[str, str]:
    """The environment of a process that is to use another GPU than this, where there is one."""
    import torch

    if not device.startswith("cuda") or torch.cuda.device_count() < 2:
        return {}
    count, mine = torch.cuda.device_count(), int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = visible if len(visible) == count else [str(i) for i in range(count)]
    return {"CUDA_VISIBLE_DEVICES": names[(mine + 1) % count]}


def make_for_worker(
    config: Config, computing: int | None = None, *, alone: bool = False
) -> OwnEngine:
    """In a worker's process: the base model with an engine of its own. Weights come later."""
    from sparring.models.device import choose_device, fast_allocations, use_tf32
    from sparring.models.policies import load_policies

    if computing is not None:
        use_threads(computing)
    fast_allocations()
    config = config.model_copy(deep=True)
    kind = config.engine.device.partition(":")[0]  # a worker sees its own GPUs alone
    device, dtype = choose_device(kind, config.engine.dtype, config.learn.weights)
    use_tf32(config.engine.tf32, device)
    policies = load_policies(
        config.policy,
        config.learn,
        device=device,
        dtype=dtype,
        seed=config.seed,
        template=config.template,
    )
    # One of several workers sees a share of the games, and which share depends on the clock.
    config.engine.lockstep &= alone
    config.ray.replicas, config.collect.ahead, config.learn.shard = 0, 0, False
    return make_engine(config, policies, dtype)
