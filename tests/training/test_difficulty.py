"""The difficulty gate: what is too easy or too hard is met less, and a restart changes nothing."""

from __future__ import annotations

import json
import signal
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from lives import Moment, train, whole

from sparring.core.types import Episode, Task, Turn
from sparring.run.config import load_recipe, make_config
from sparring.run.games import make_games
from sparring.run.sections import GateConfig
from sparring.tasks import choose_task
from sparring.training.curriculum import Curriculum
from sparring.training.jobs import DifficultyGate, make_jobs
from sparring.training.opponents import Opponents

TASKS = [Task(str(i), "g") for i in range(10)]
ON = GateConfig(enabled=True, easy_fraction=0.25, hard_fraction=0.0, least=2)


def game(task: Task, reward: float, void: str | None = None) -> Episode:
    turn = Turn("x", "main", "", "", trainable=True)
    rewards = {"x": reward, "opponent": -9.0}
    return Episode("e", "g", task, 0, turns=[turn], rewards=rewards, void=void)


def met() -> DifficultyGate:
    """Tasks 0 to 2 are always solved, 3 never, 4 half of the time, 5 once, the others not met."""
    gate = DifficultyGate(ON)
    for _ in range(2):
        gate.update([game(TASKS[i], 1.0) for i in range(3)])
        gate.update([game(TASKS[3], 0.0), game(TASKS[3], 1.0, void="the judge broke")])
    gate.update([game(TASKS[4], 1.0), game(TASKS[4], 0.0), game(TASKS[5], 1.0)])
    return gate


def test_pools_by_mean_reward() -> None:
    gate = met()
    pools = [gate.pool("g", task) for task in TASKS]
    assert pools == ["easy"] * 3 + ["hard", "normal"] + ["unknown"] * 5
    assert gate.pool("another", TASKS[0]) == "unknown"
    assert gate.metrics({"g": TASKS}) == {
        "tasks/g/unknown": 5,
        "tasks/g/easy": 3,
        "tasks/g/normal": 1,
        "tasks/g/hard": 1,
    }


def test_a_task_that_becomes_easier_leaves_its_pool() -> None:
    gate = met()
    for _ in range(2):
        gate.update([game(TASKS[3], 1.0)])
    assert gate.pool("g", TASKS[3]) == "normal"


def test_easy_and_hard_tasks_are_met_in_their_share_and_others_more() -> None:
    gate, rounds = met(), 400
    drawn = Counter(gate.choose_task("g", TASKS, 7, i).id for i in range(10 * rounds))
    for easy in "012":
        assert drawn[easy] == pytest.approx(0.25 * rounds, rel=0.2)
    assert drawn["3"] == 0
    # What they gave up, 3 · 0.75 + 1 of each round, is shared by six others.
    for other in "456789":
        assert drawn[other] == pytest.approx((1 + 3.25 / 6) * rounds, rel=0.2)


def test_switched_off_or_with_nothing_else_to_play_it_changes_nothing() -> None:
    off = DifficultyGate(GateConfig())
    off.update([game(TASKS[0], 1.0)] * 9)
    assert off.rewards == {} and off.metrics({"g": TASKS}) == {}
    alone = met()
    for i in range(50):
        assert off.choose_task("g", TASKS, 3, i) == choose_task(TASKS, 3, i)
        assert alone.choose_task("g", TASKS[:4], 3, i) == choose_task(TASKS[:4], 3, i)


def test_its_state_goes_through_json_and_draws_the_same() -> None:
    gate, other = met(), DifficultyGate(ON)
    other.load(json.loads(json.dumps(gate.state())))
    assert json.dumps(other.state()) == json.dumps(gate.state())
    drawn = [[one.choose_task("g", TASKS, 5, i) for i in range(60)] for one in (gate, other)]
    assert drawn[0] == drawn[1]


def test_jobs_are_drawn_through_the_gate_and_a_group_keeps_one_task() -> None:
    config = load_recipe("kuhn", ["collect={episodes: 40, group: 4}", "iterations=5"])
    parts: Any = SimpleNamespace(
        config=config,
        curriculum=Curriculum(config, make_games(config.games)),
        opponents=Opponents(config.opponents, {}),
        tasks={"kuhn": TASKS},
        steps=[],
        gate=DifficultyGate(ON),
    )
    parts.gate.rewards = {"kuhn": {task.id: (0.0, 5) for task in TASKS[:9]}}
    jobs = make_jobs(parts, 1)
    assert {job.task.id for job in jobs} == {"9"}
    parts.gate = DifficultyGate(config.tasks.gate)
    free = make_jobs(parts, 1)
    assert len({job.task.id for job in free}) == 10
    assert all(len({j.task.id for j in free if j.group == job.group}) == 1 for job in free)
    more = make_jobs(parts, 1, batch=1)
    assert not {j.id for j in more} & {j.id for j in free}
    assert not {j.group for j in more} & {j.group for j in free}


def test_thresholds_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(Exception, match=r"hard_threshold .* must be below easy_threshold"):
        make_config({"tasks": {"gate": {"easy_threshold": 0.1, "hard_threshold": 0.5}}})


LETTERS = '''"""A task has a reward that anything earns, and letters that earn more."""
from sparring import Game, Outcome

class Letters(Game):
    seats = ("speller",)
    problems = "letters"

    async def play(self, task, table):
        turn = await table["speller"].act(task.data["question"])
        right = turn.text in task.data["letters"]
        return Outcome(speller=task.data["reward"] + 0.4 * right)
'''


def test_a_run_with_tasks_meets_easy_and_impossible_ones_less_also_when_it_is_killed(
    tmp_path,
) -> None:
    (tmp_path / "letters.py").write_text(LETTERS)
    every = [chr(i) for i in range(256)]
    tasks = {
        "easy": (1.0, []),
        "impossible": (0.0, []),
        "odd": (0.4, every[1::2]),
        "even": (0.4, every[0::2]),
    }
    rows = [
        {"id": key, "question": key, "reward": reward, "letters": letters}
        for key, (reward, letters) in tasks.items()
    ]
    source = tmp_path / "letters.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "letters.yaml").write_text("games: {'letters.py:Letters': {}}\npolicy: nano\n")
    keys = (
        f"tasks={{source: {source}, holdout: 0, gate: {{enabled: true, least: 4, "
        "easy_threshold: 0.95, hard_threshold: 0.2, easy_fraction: 0, hard_fraction: 0}}",
        *("sampling.max_tokens=1", "learn.weights=full", "credit.kind=prompt_baseline"),
        *("iterations=4", "collect.episodes=32", "evaluate.every=1000000", "checkpoint.every=2"),
    )
    assert train("letters.yaml", tmp_path / "whole", *keys).code == 0
    killed = train("letters.yaml", tmp_path / "killed", *keys, die_at=Moment("000003.jsonl.gz"))
    assert killed.code == -signal.SIGKILL
    assert train("letters.yaml", tmp_path / "killed", *keys, resume=True).code == 0
    one, other = (whole(tmp_path / name) for name in ("whole", "killed"))
    assert one == other
    name = "tasks/letters.py:Letters"
    for line in one["metrics"]:
        pools = [line[f"{name}/{pool}"] for pool in ("unknown", "easy", "normal", "hard")]
        assert pools == [0, 1, 2, 1]
    met = [Counter(episode.task.id for episode in batch) for batch in one["episodes"]]
    assert set(met[0]) == set(tasks)
    assert set(met[-1]) <= {"odd", "even"} and sum(met[-1].values()) == 32


def test_a_strong_opponent_is_the_one_that_each_game_of_a_mixture_has() -> None:
    config = load_recipe("spiral", ["opponents={kind: scripted, share: 1}", "collect.episodes=60"])
    games = make_games(config.games)
    parts: Any = SimpleNamespace(
        config=config,
        curriculum=Curriculum(config, games),
        opponents=Opponents(config.opponents, {}),
        tasks={},
        steps=[],
        gate=DifficultyGate(config.tasks.gate),
    )
    met = {job.name: set(job.seating.values()) for job in make_jobs(parts, 1)}
    assert met["tictactoe"] == {"main", "perfect"} and met["negotiation"] == {"main", "scripted"}


def test_what_single_turns_earned_counts() -> None:
    gate = DifficultyGate(ON)
    for _ in range(2):
        by_turns = game(TASKS[0], 0.0)
        by_turns.turns[0].reward = 1.0
        gate.update([by_turns])
    assert gate.pool("g", TASKS[0]) == "easy"
