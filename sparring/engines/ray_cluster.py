"""The Ray cluster under a pool of engines: joining or starting it, and its kinds of failure."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.core.errors import ConfigError
from sparring.engines.shared_weights import last_line
from sparring.run.interrupt import SIGNALS
from sparring.run.sections import RayConfig


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


def node_address() -> str:
    """By which other nodes of the cluster reach this one."""
    import ray

    return str(ray.util.get_node_ip_address())
