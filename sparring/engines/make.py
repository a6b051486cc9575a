"""Makes the engine that a config names, and spreads it over a cluster where that is asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sparring.engines.engine import OwnEngine
from sparring.run.config import Config

if TYPE_CHECKING:
    from sparring.models.policies import Policies


def make_engine(config: Config, policies: Policies, dtype: str) -> OwnEngine:
    """The engine that a config names, in this process; where replicas speak instead, the embedded
    one is enough."""
    if config.engine.kind == "vllm" and not config.ray.replicas:
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


def replicated(config: Config, own: OwnEngine, device: str) -> OwnEngine:
    """The run's own engine, or a pool of its replicas in front of it."""
    if not config.ray.replicas:
        return own
    from sparring.engines.ray import ray_pool

    asked = config.ray.gpus
    gpus = asked if asked is not None else float(device.startswith("cuda"))
    make = partial(make_replica, config)
    whole = not config.learn.shard
    return ray_pool(own, make, config.ray, gpus, jail=config.jail, whole=whole)


def make_replica(config: Config) -> OwnEngine:
    """In a replica's process: the base model with an engine of its own. Weights come later."""
    from sparring.models.device import choose_device, fast_allocations, use_tf32
    from sparring.models.policies import load_policies

    fast_allocations()
    device, dtype = choose_device(config.engine.device, config.engine.dtype, config.learn.weights)
    use_tf32(config.engine.tf32, device)
    policies = load_policies(
        config.policy,
        config.learn,
        device=device,
        dtype=dtype,
        seed=config.seed,
        template=config.template,
    )
    # Not in lockstep: a replica sees a share of the games, and which share depends on the clock.
    config.engine.lockstep, config.ray.replicas, config.learn.shard = False, 0, False
    return make_engine(config, policies, dtype)
