"""What an engine has loaded is compared with what learns, exactly."""

import pytest
import torch

from sparring.core.types import Episode, Task, Turn
from sparring.engines.published import PublishFailed, check_versions, checksum


def game(*versions: int, void: str | None = None, trainable: bool = True) -> Episode:
    turns = [Turn("s", "main", "", "", version=v, trainable=trainable) for v in versions]
    return Episode("3-7", "g", Task("0"), 0, turns=turns, void=void)


def test_games_of_other_versions_are_not_learned_from():
    check_versions([game(4, 4), game(4)], {"main": 4})
    check_versions([game(3, void="broken"), game(1, trainable=False)], {"main": 4})
    with pytest.raises(PublishFailed, match=r"game 3-7 was played with version 3.*has version 4"):
        check_versions([game(4), game(4, 3)], {"main": 4})
    with pytest.raises(PublishFailed):
        check_versions([game(5)], {"main": 4})


def test_games_played_ahead_may_be_so_many_updates_behind():
    check_versions([game(2), game(4)], {"main": 4}, behind=2)
    with pytest.raises(PublishFailed):
        check_versions([game(1)], {"main": 4}, behind=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_checksum_sees_the_smallest_update_and_nothing_else(dtype):
    weights = torch.linspace(-1, 1, 600).to(dtype).view(60, 10)
    state = {"a": weights, "b": torch.zeros(3)}
    same = {"b": torch.zeros(3), "a": weights.clone().t().contiguous().t()}
    assert checksum(state) == checksum(same), "neither order nor layout matters"
    for index, way in (((0, 0), 9.0), ((59, 9), -9.0)):
        moved = weights.clone()
        moved[index] = torch.nextafter(moved[index], torch.tensor(way, dtype=dtype))
        assert checksum({**state, "a": moved}) != checksum(state)
    swapped = weights.flip(1)
    assert checksum({**state, "a": swapped}) != checksum(state)
    assert checksum({**state, "a": weights.view(10, 60)}) != checksum(state)
