"""Each sign of a collapse, on its own: when it fires, and when it must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparring.core.types import Episode, Task
from sparring.run.config import GuardConfig
from sparring.training.guard import Guard

WELL = {"learn/entropy": 1.0, "rate/invalid": 0.05, "length/tokens": 20.0}


def watch(guard: Guard, first: int, *many: dict[str, Any]) -> list[str | None]:
    return [guard.watch({"iteration": first + i, **WELL, **each}) for i, each in enumerate(many)]


def guard(**settings: Any) -> Guard:
    return Guard(GuardConfig(**{"window": 2, "grace": 0, **settings}))


def test_a_run_that_is_well_is_left_alone() -> None:
    assert watch(guard(entropy_floor=0.5), 1, *[{}] * 50) == [None] * 50


@pytest.mark.parametrize(
    ("sick", "settings", "reason"),
    [
        ({"learn/entropy": 0.1}, {"entropy_floor": 0.5}, "entropy fell to 0.1000"),
        ({"rate/invalid": 0.9}, {}, "90% of the games end in an invalid action"),
        ({"length/tokens": 200.0}, {}, "200.0 tokens long where 20.0 was usual"),
        ({"length/tokens": 1.0}, {}, "1.0 tokens long where 20.0 was usual"),
    ],
)
def test_each_sign_fires_once_it_has_lasted_for_the_window(
    sick: dict[str, float], settings: dict[str, float], reason: str
) -> None:
    watched = guard(**settings)
    assert watch(watched, 1, *[{}] * 6) == [None] * 6
    early = watch(watched, 7, sick)[0]  # half of the window is well: the mean decides
    later = watch(watched, 8, sick)[0]
    assert later is not None and reason in later
    assert early is None or reason not in early


def test_a_floor_of_zero_watches_no_entropy() -> None:
    assert watch(guard(), 1, *[{"learn/entropy": 0.0}] * 9) == [None] * 9


LEARNING = {  # its rules: by default nothing of this is a collapse
    "never valid": [{"rate/invalid": 1.0}] * 30,
    "one lucky iteration": [{"rate/invalid": 0.9}] * 12
    + [{"rate/invalid": 0.0}]
    + [{"rate/invalid": 0.9}] * 12,
    "chatter, then an action": [{"rate/invalid": 1.0, "length/tokens": 200.0}] * 20
    + [{"rate/invalid": 0.1, "length/tokens": 4.0}] * 20,
    "a lucky evaluation": [{"rate/invalid": 0.6, "eval/score": 0.0}] * 20,
}


@pytest.mark.parametrize("lines", LEARNING.values(), ids=list(LEARNING))
def test_who_still_learns_the_rules_has_not_collapsed(lines: list[dict[str, float]]) -> None:
    watched = Guard(GuardConfig())
    watched.improved(0.5, 0)
    assert watch(watched, 1, *lines) == [None] * len(lines)


def test_a_worse_evaluation_fires_at_once_and_a_little_worse_does_not() -> None:
    watched = guard(score_drop=0.3)
    assert watch(watched, 1, {"eval/score": 0.2}) == [None]
    assert watched.improved(0.9, 1)
    assert watch(watched, 2, {"eval/score": 0.61}, {}) == [None, None]
    (found,) = watch(watched, 4, {"eval/score": 0.5})
    assert found is not None and "fell to 0.500 from its best, 0.900" in found


def test_nothing_is_watched_in_the_days_of_grace_or_when_told_not_to() -> None:
    sick = {"learn/entropy": 0.0}
    watched = guard(entropy_floor=0.5, grace=5)
    found = watch(watched, 1, *[sick] * 6)
    assert found[:5] == [None] * 5 and found[5] is not None
    assert watch(guard(entropy_floor=0.5, enabled=False), 1, *[sick] * 9) == [None] * 9


def test_after_a_roll_back_the_past_is_forgotten_and_the_best_is_not() -> None:
    watched = guard(entropy_floor=0.5)
    watched.improved(0.7, 3)
    assert watch(watched, 1, *[{"learn/entropy": 0.1}] * 2)[-1]
    watched.rolled_back()
    assert (watched.rollbacks, watched.best_step, watched.best_score) == (1, 3, 0.7)
    assert watch(watched, 3, {"learn/entropy": 0.1}) == [None]  # a window has to pass again


def test_the_best_is_the_latest_of_the_highest() -> None:
    watched = guard()
    assert [watched.improved(score, i) for i, score in enumerate([0.1, 0.1, 0.05, 0.2])] == [
        *(True, True, False, True),
    ]
    assert (watched.best_score, watched.best_step) == (0.2, 3)


def test_a_guard_goes_on_from_its_state_as_if_nothing_had_been() -> None:
    one, other = guard(entropy_floor=0.5), guard(entropy_floor=0.5)
    sick = [{}, {}, {"learn/entropy": 0.3}, {"learn/entropy": 0.2}, {}]
    whole = watch(one, 1, *sick)
    half = guard(entropy_floor=0.5)
    head = watch(half, 1, *sick[:3])
    other.load(json.loads(json.dumps(half.state())))
    assert head + watch(other, 4, *sick[3:]) == whole
    assert any(whole)


def test_the_entropy_of_each_policy_is_watched() -> None:
    """Where two learn, their metrics carry their names."""
    watched = guard(entropy_floor=0.5)
    both = {"learn/alice/entropy": 1.0, "learn/bob/entropy": 0.1}
    lines = [{"iteration": i, "rate/invalid": 0.0, "length/tokens": 20.0, **both} for i in (1, 2)]
    reasons = [watched.watch(line) for line in lines]
    assert reasons == [None, "entropy of 'bob' fell to 0.1000 nats per token (floor 0.5)"]


def games(fair: int, *void: str) -> list[Episode]:
    reasons = [None] * fair + list(void)
    return [Episode(str(i), "g", Task("0"), 0, void=reason) for i, reason in enumerate(reasons)]


def test_too_many_void_games_are_noticed_with_their_reasons() -> None:
    watched = guard(enabled=False, grace=9)  # void games are no collapse
    assert watched.watch_voids(games(40, *["the server is gone"] * 10)) is None
    reason = watched.watch_voids(games(2, *["the server is gone"] * 60, *"abcd"))
    assert reason is not None
    assert reason.startswith("74 of the last 116 games are void (guard.void_ceiling 50%): ")
    assert "70 × 'the server is gone'" in reason and reason.endswith("; 2 others")


def test_few_void_games_prove_nothing_and_one_that_is_off_stops_nothing() -> None:
    assert guard().watch_voids(games(0, *["x"] * 3)) is None
    assert guard().watch_voids(games(0, *["x"] * 4)) is not None
    assert guard(void_ceiling=1.0).watch_voids(games(0, *["x"] * 400)) is None
    assert guard().watch_voids([]) is None


def test_only_the_window_counts_and_goes_through_a_checkpoint() -> None:
    one, other = guard(), guard()
    assert one.watch_voids(games(50)) is None
    other.load(json.loads(json.dumps(one.state())))
    for watched in (one, other):
        assert watched.watch_voids(games(0, *["x"] * 50)) is None, "half of them"
        assert watched.watch_voids(games(10, *["x"] * 20)) is not None


def test_an_iteration_without_a_fair_game_is_no_sign_of_a_collapse() -> None:
    """One game an iteration, as a broken judge leaves them: no tokens, and no invalid action."""
    watched, nothing = guard(window=5), {"rate/void": 1.0, "rate/invalid": 0.0, "length/tokens": 0}
    assert watch(watched, 1, *[{"rate/void": 0.0}] * 20, *[nothing] * 4) == [None] * 24
    learning = guard(window=5)  # and its rules are not known by that
    assert watch(learning, 1, *[nothing] * 5, *[{"rate/invalid": 1.0}] * 9) == [None] * 14
