"""In a mixture of games each one is dealt as it would be alone."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats

from sparring.run.config import load_recipe
from sparring.run.games import make_games
from sparring.training.curriculum import Curriculum
from sparring.training.imitation import _job
from sparring.training.jobs import DifficultyGate, make_jobs
from sparring.training.opponents import Opponents


@pytest.fixture(scope="module")
def tasks() -> dict[str, list[Any]]:
    config = load_recipe("spiral", ["collect.episodes=3000", "begin.main=scripted:3000"])
    games = make_games(config.games)
    parts: Any = SimpleNamespace(
        config=config,
        games=games,
        curriculum=Curriculum(config, games),
        opponents=Opponents(config.opponents, {}),
        tasks={},
        steps=[],
        gate=DifficultyGate(config.tasks.gate),
    )
    jobs = {
        "training": make_jobs(parts, 1),
        "imitation": [_job(parts, "main", "scripted", i) for i in range(3000)],
    }
    return {name: [(job.name, job.task.data) for job in own] for name, own in jobs.items()}


@pytest.mark.parametrize("where", ["training", "imitation"])
def test_games_and_deals_are_even(tasks, where: str) -> None:
    own = tasks[where]
    even = [
        Counter(name for name, _ in own),
        Counter(data["cards"] for name, data in own if name == "kuhn"),
        Counter(data["holdings"]["first"]["Wood"] for name, data in own if "holdings" in data),
    ]
    assert [len(counts) for counts in even[:2]] == [3, 6]
    for counts in even:
        assert stats.chisquare(list(counts.values())).pvalue > 0.001, counts
