"""Workers that Ray places on many machines, and the cluster under them: joining or starting it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from sparring.core.errors import ConfigError
from sparring.engines.engine import OwnEngine
from sparring.engines.pool import WorkerPool
from sparring.engines.shared_weights import last_line
from sparring.engines.worker import Make, Worker
from sparring.run.interrupt import SIGNALS
from sparring.run.sections import RayConfig

log = logging.getLogger(__name__)


def ray_pool(
    own: OwnEngine,
    make: Make,
    config: RayConfig,
    gpus: float = 0.0,
    *,
    jail: str = "bubblewrap",
    whole: bool = True,
    device: str = "cpu",
) -> WorkerPool:
    """As many workers as the config says, each with an engine that `make` makes. `device` is the
    learner's: where there are GPUs enough, Ray gives that one to nobody else."""
    transport = RayTransport(make, config, gpus, jail)
    transport.reserve(device)
    return WorkerPool(own, transport, patience_s=config.patience_s, whole=whole)


def own_gpus() -> list[str]:
    """In an actor or a task: the GPUs that Ray gave it."""
    import ray

    return [str(gpu) for gpu in ray.get_gpu_ids()]


class RayTransport:
    def __init__(self, make: Make, config: RayConfig, gpus: float, jail: str) -> None:
        self.config, self._gpus = config, gpus
        self._arguments = (make, jail, os.getcwd())
        self._placement: Any = None  # a placement group: the learner's GPU, then one per worker
        self._started_ray = connect(config, gpus)
        import ray

        self.lost, self.host = death(), str(ray.util.get_node_ip_address())

    def reserve(self, device: str) -> None:
        """Set the learner's GPU and those of the workers apart, if the cluster has so many."""
        import ray

        here = [n for n in ray.nodes() if n["Alive"] and n["NodeManagerAddress"] == self.host]
        wanted = self.config.replicas * self._gpus + 1
        if not device.startswith("cuda") or not self._gpus:
            return
        if not any(n["Resources"].get("GPU") for n in here):
            return  # the learner's GPU is not Ray's to give away
        if ray.cluster_resources().get("GPU", 0) < wanted:
            log.info("fewer than %g GPUs: the learner shares its own with a worker", wanted)
            return
        learner = {"GPU": 1.0, f"node:{self.host}": 0.001}
        worker = {"CPU": self.config.cpus, "GPU": self._gpus}
        self._placement = ray.util.placement_group([learner, *[worker] * self.config.replicas])
        ray.get(self._placement.ready(), timeout=self.config.patience_s)
        given = ray.get(
            ray.remote(own_gpus).options(**self._at(0), num_cpus=0, num_gpus=1).remote()
        )
        index = device.partition(":")[2] or "0"
        if given != [index]:
            log.warning(
                "the learner computes on cuda:%s, and Ray keeps GPU %s free for it: a worker may "
                "share its GPU. Say engine.device=cuda:%s",
                *(index, given[0], given[0]),
            )

    def _at(self, bundle: int) -> dict[str, Any]:
        """Where an actor or a task goes."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if self._placement is None:
            return {"scheduling_strategy": "SPREAD"}
        place = PlacementGroupSchedulingStrategy(self._placement, bundle)
        return {"scheduling_strategy": place}

    def start(self, index: int) -> Any:
        import ray

        options = {"num_cpus": self.config.cpus, "num_gpus": self._gpus}
        actor = ray.remote(Worker).options(**self._at(index + 1), **options)
        return actor.remote(*self._arguments)

    def start_all(self, tries: int = 3) -> list[Any]:
        """Wait for all workers to come up, and refuse those of another version."""
        import ray

        here = metadata.version("sparring")
        actors = [self.start(index) for index in range(self.config.replicas)]
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

    def get(self, call: Any) -> Any:
        import ray

        return ray.get(call)

    def close(self, workers: Sequence[Any]) -> None:
        import ray

        for worker in workers:
            ray.kill(worker)
        if self._placement is not None:
            ray.util.remove_placement_group(self._placement)
        if self._started_ray:
            ray.shutdown()


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Ray handles SIGTERM by printing frames of C++ and dying; a run leaves in good order."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


def connect(config: RayConfig, gpus: float) -> bool:
    """Join the cluster that is named, or start one here; whether it was started."""
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "ray.replicas asks for Ray, which is missing: pip install 'sparring[ray]'"
        ) from None
    started = not ray.is_initialized()
    if started:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            with _own_signal_handlers():
                ray.init(address=config.address or "local", **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"there is no Ray cluster at {config.address!r}: {last_line(error)}. Start one "
                "(`ray start --head --port PORT`; a port that is in use: choose another), or leave "
                "ray.address empty to use this machine alone."
            ) from error
    if gpus and not ray.cluster_resources().get("GPU"):
        if started:
            ray.shutdown()
        raise ConfigError(
            "the replicas want GPUs and the Ray cluster has none: start its nodes where there are "
            "GPUs, or say engine.device=cpu"
        )
    return started


def death() -> tuple[type[Exception], ...]:
    """What is raised when a replica, its process or its node is no more."""
    from ray import exceptions

    return (
        exceptions.RayActorError,
        exceptions.ObjectLostError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
    )
