"""How the learner's coefficients move over a run."""

from __future__ import annotations

import math

from sparring.run.config import LearnConfig


def learning_rate(config: LearnConfig, position: int, of: int) -> float:
    """Linear warm-up, then constant, or linear or cosine decay to the floor."""
    warm = min(1.0, (position + 1) / max(1, config.warmup))
    progress, floor = min(1.0, position / max(1, of)), config.lr_floor
    decay = 1.0
    if config.schedule == "linear":
        decay = max(floor, 1 - progress)
    elif config.schedule == "cosine":
        decay = floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2
    return config.lr * warm * decay


def linear(begin: float, end: float | None, progress: float) -> float:
    """A coefficient that moves in a straight line from `begin` to `end`, if there is one."""
    return begin if end is None else begin + (end - begin) * progress
