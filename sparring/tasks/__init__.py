"""Where tasks come from, for games that do not make their own."""

from __future__ import annotations

from sparring.tasks.source import choose_task, load_tasks, training_tasks

__all__ = ["choose_task", "load_tasks", "training_tasks"]
