"""reasoning-gym's tasks and scores are its own, here as there."""

import asyncio
from typing import Any

import pytest
from lazily import imported

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.scripted import ScriptedEngine
from sparring.run.config import make_config
from sparring.run.games import load_game

reasoning_gym = imported("reasoning_gym", "reasoning-gym is not installed")
NAMES = [
    "chain_sum",
    "word_sorting",
    "countdown",
    "sudoku",
    "propositional_logic",
    "knights_knaves",
]


def test_tasks_and_scores_are_reasoning_gyms() -> None:
    """Right, wrong and half-right answers to the task of each seed."""
    jobs, expected, replies = [], [], []
    for name in NAMES:
        game = load_game(f"gym:{name}")
        for seed in (3, 4):
            dataset = reasoning_gym.create_dataset(name, size=1, seed=seed)
            entry = dataset[0]
            for answer in (str(entry["answer"]), "17", f"{entry['answer']} or so"):
                jobs.append(Job(f"{len(jobs)}", name, game, game.task(seed), 0, {"solver": "s"}))
                expected.append((entry["question"], dataset.score_answer(answer, entry)))
                replies.append(f"I think it is <answer>{answer}</answer>")
    engine = ScriptedEngine({"s": lambda request: replies[request.order[0]]})
    episodes = asyncio.run(collect(jobs, engine.act))
    assert [e.void for e in episodes] == [None] * len(jobs)
    for episode, (question, score) in zip(episodes, expected, strict=True):
        assert episode.turns[0].prompt.endswith(question)
        assert episode.rewards == {"solver": pytest.approx(score)}
    assert {score for _, score in expected} >= {0.0, 1.0}


def test_a_reply_without_an_answer_scores_nothing_and_settings_are_passed_on() -> None:
    game = load_game("gym:chain_sum", settings={"min_terms": 2, "max_terms": 2}, prompt="direct")
    engine = ScriptedEngine({"s": lambda request: "no idea"})
    job = Job("0", "gym:chain_sum", game, game.task(1), 0, {"solver": "s"})
    (episode,) = asyncio.run(collect([job], engine.act))
    assert episode.rewards == {"solver": 0.0} and game.measures([episode], "s") == {"score": 0.0}
    assert episode.turns[0].prompt.startswith("Answer the question directly.")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'chain_sum'"):
        load_game("gym:chain_sums")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"settings": {"min_term": 2}}, "min_term"),
        ({"settings": {"min_terms": 5, "max_terms": 2}}, "max_terms must be >= min_terms"),
        ({"prompt": "polite"}, "polite"),
    ],
)
def test_settings_that_give_no_task_are_refused_before_a_run(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=f"gym:chain_sum: no task can be made .*{says}"):
        make_config({"games": {"gym:chain_sum": options}})
