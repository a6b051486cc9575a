"""Groups compare only who spoke, and each policy only with itself."""

from __future__ import annotations

from sparring.core.types import Episode, Task, Turn
from sparring.credit.group_relative import GroupRelative
from sparring.training.metrics import summarize


def episode(
    rewards: dict[str, float], speakers: dict[str, str], facts: dict[str, object] | None = None
) -> Episode:
    turns = [
        Turn(seat, policy, prompt="", text="", token_ids=[1], trainable=policy == "main")
        for seat, policy in speakers.items()
    ]
    return Episode("e", "g", Task("t"), 0, "1", turns=turns, rewards=rewards, facts=facts or {})


def test_a_seat_that_was_not_asked_is_in_nobodys_mean() -> None:
    both = {"author": "main", "predictor": "main"}
    episodes = [
        episode({"author": -1, "predictor": 1}, {"author": "main"}),
        episode({"author": -1, "predictor": 1}, both),
        episode({"author": 1, "predictor": -1}, both),
    ]
    unasked, right, wrong = GroupRelative().advantages(episodes)
    assert len(unasked) == 1
    assert right[1] == 1 and wrong[1] == -1  # their mean is 0, not the third of 1 + 1 - 1
    assert round(wrong[0], 6) == round(4 / 3, 6)


def test_another_policy_in_the_same_seat_is_not_compared_with() -> None:
    episodes = [
        episode({"author": 1}, {"author": "main"}),
        episode({"author": 0}, {"author": "main"}),
        episode({"author": -1}, {"author": "base"}),
    ]
    assert GroupRelative().advantages(episodes) == [[0.5], [-0.5], [0.0]]


def test_reward_metrics_are_those_of_learners_and_of_predictions() -> None:
    both = {"author": "main", "predictor": "base"}
    found = summarize(
        [
            episode({"author": -1, "predictor": 1}, {"author": "main"}, {"predicted": None}),
            episode({"author": -1, "predictor": 1}, both, {"predicted": True}),
            episode({"author": 1, "predictor": -1}, both, {"predicted": False}),
            episode({"author": 1, "predictor": -1}, both, {"predicted": False}),
        ]
    )
    assert found["reward/avg_batch_reward"] == 0
    assert found["reward/successful_predictions_count"] == 1
    by_turn = episode({"author": 0.5}, {"author": "main"})
    by_turn.turns[0].reward = 0.25  # beside the outcome's
    found = summarize([by_turn])
    assert found["reward/avg_batch_reward"] == found["reward/g/author"] == 0.75
    plain = summarize([episode({"author": 0.5}, {"author": "main"})])
    assert plain["reward/avg_batch_reward"] == 0.5
    assert "reward/successful_predictions_count" not in plain
