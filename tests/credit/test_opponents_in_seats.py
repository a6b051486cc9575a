"""What an opponent earned in a seat is no measure of what a learner can expect there."""

from __future__ import annotations

import pytest

from sparring.credit.prompt_baseline import PromptBaseline
from sparring.credit.role_baseline import RoleBaseline
from sparring.types import Episode, Task, Turn


def game(x: str, o: str, rewards: dict[str, float], silent: str = "") -> Episode:
    """One turn for each seat that is not silent; only `main` learns."""
    seating = {"x": x, "o": o}
    turns = [
        Turn(seat, policy, "", "", 0, [ord(seat)], [3], [-1.0], trainable=policy == "main")
        for seat, policy in seating.items()
        if seat != silent
    ]
    return Episode("e", "g", Task("t"), 0, seating=seating, turns=turns, rewards=rewards)


@pytest.mark.parametrize("opponent", ["random", "base", "main@20"])
def test_only_seats_that_learners_hold_move_a_baseline(opponent: str) -> None:
    episodes = [
        game("main", opponent, {"x": 1.0, "o": -1.0}),
        game(opponent, "main", {"x": 1.0, "o": -1.0}),
        game("main", opponent, {"x": 0.0, "o": 0.0}),
    ]
    credit = RoleBaseline(0.5)
    found = credit.advantages(episodes)
    assert credit.baselines == {"g/x": 0.25, "g/o": -0.5}  # x: 0 → ½ → ¼ ; o: 0 → −½
    assert [found[0][0], found[1][1], found[2][0]] == [1.0, -1.0, -0.5]


def test_a_learner_that_was_never_asked_still_moves_its_own() -> None:
    credit = RoleBaseline(0.5)
    credit.advantages([game("main", "main", {"x": -1.5, "o": 0.5}, silent="o")])
    assert credit.baselines == {"g/x": -0.75, "g/o": 0.25}
    other = RoleBaseline(0.5)
    other.advantages([game("main", "random", {"x": -1.5, "o": 0.5}, silent="o")])
    assert other.baselines == {"g/x": -0.75}


def test_prompts_that_only_opponents_saw_are_not_remembered() -> None:
    credit = PromptBaseline(0.5)
    credit.advantages([game("main", "random", {"x": 1.0, "o": -1.0})])
    assert set(credit.roles.baselines) == {"g/x"}
    assert len(credit.prompts) == 1 and next(iter(credit.prompts)).startswith("g/x/")
