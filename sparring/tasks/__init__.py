"""Where tasks come from, for games that do not make their own."""

from __future__ import annotations

from sparring.tasks.source import draw, load_tasks, training_tasks

__all__ = ["draw", "load_tasks", "training_tasks"]
