"""The section of a config that says how a run is spread over machines."""

from __future__ import annotations

from pydantic import Field

from sparring.run.section import Section


class RayConfig(Section):
    """Engines, and judges, on many machines through Ray."""

    replicas: int = Field(0, ge=0)  # copies of the engine; 0: the one in the learner's process
    address: str = ""  # of a cluster: `auto`, or HOST:PORT; empty: this machine alone
    cpus: float = Field(1.0, gt=0)  # of each replica
    gpus: float | None = Field(None, ge=0)  # of each; None: one, where the device is a GPU
    judges: bool = False  # whether judges rule in Ray's tasks too
    patience_s: float = Field(300.0, gt=0)  # for replicas to come up
