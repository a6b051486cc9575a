"""Workers that Ray places on many machines; weights travel through its object store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from sparring.core.errors import ConfigError
from sparring.engines.engine import OwnEngine
from sparring.engines.pool import WorkerPool
from sparring.engines.ray_cluster import connect, death
from sparring.engines.shared_weights import last_line
from sparring.engines.worker import Make, Worker
from sparring.run.cluster import RayConfig


def ray_pool(
    own: OwnEngine,
    make: Make,
    config: RayConfig,
    gpus: float = 0.0,
    *,
    jail: str = "bubblewrap",
    whole: bool = True,
) -> WorkerPool:
    """As many workers as the config says, each with an engine that `make` makes."""
    transport = RayTransport(make, config, gpus, jail)
    return WorkerPool(own, transport, patience_s=config.patience_s, whole=whole)


class RayTransport:
    def __init__(self, make: Make, config: RayConfig, gpus: float, jail: str) -> None:
        self.config, self._gpus = config, gpus
        self._arguments = (make, jail, os.getcwd())
        self._started_ray = connect(config, gpus)
        self.lost = death()

    def start(self) -> Any:
        import ray

        options = {"num_cpus": self.config.cpus, "num_gpus": self._gpus}
        actor = ray.remote(Worker).options(scheduling_strategy="SPREAD", **options)
        return actor.remote(*self._arguments)

    def start_all(self, tries: int = 3) -> list[Any]:
        """Wait for all workers to come up, and refuse those of another version."""
        import ray

        here = metadata.version("sparring")
        actors = [self.start() for _ in range(self.config.replicas)]
        try:
            answers = ray.get(
                [actor.ready.remote() for actor in actors], timeout=self.config.patience_s
            )
        except ray.exceptions.GetTimeoutError:
            have = ray.cluster_resources()
            self.close(actors)
            raise ConfigError(
                f"{len(actors)} replicas did not start within {self.config.patience_s:.0f} s: each "
                f"needs {self.config.cpus:g} CPUs and {self._gpus:g} GPUs, and the cluster has "
                f"{have.get('CPU', 0):g} and {have.get('GPU', 0):g}. Ask for less, or add nodes."
            ) from None
        except ray.exceptions.RayError as error:
            if "its node has died" in str(error) and tries > 1:
                # It was sent to a node whose death Ray notices only now, and will not choose again.
                for actor in actors:
                    ray.kill(actor)
                return self.start_all(tries - 1)
            self.close(actors)
            raise ConfigError(f"a replica could not start: {last_line(error)}") from error
        for version, host in answers:
            if version != here:
                self.close(actors)
                raise ConfigError(
                    f"{host} has sparring {version} and this is {here}: install the same on every "
                    "node of the cluster"
                )
        return actors

    def store(self, weights: Any) -> Any:
        import ray

        return ray.put(weights)  # of which each node fetches one copy

    def get(self, call: Any) -> Any:
        import ray

        return ray.get(call)

    def close(self, workers: Sequence[Any]) -> None:
        import ray

        for worker in workers:
            ray.kill(worker)
        if self._started_ray:
            ray.shutdown()
