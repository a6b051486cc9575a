"""Advantages by hand: role baselines, groups, leave-one-out; void games teach nothing."""

import itertools
import json
import math
import statistics

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Task, Turn
from sparring.credit import make_credit
from sparring.credit.credit import rewards_to_go
from sparring.credit.group_relative import GroupRelative, centred, differing
from sparring.credit.prompt_baseline import PromptBaseline
from sparring.credit.role_baseline import RoleBaseline
from sparring.credit.samples import to_samples
from sparring.run.config import CreditConfig
from sparring.training.lessons import teach


def episode(rewards: dict[str, float], game: str = "g", group: str = "", void: str | None = None):
    turns = [Turn(seat, "main", "", "", 0, [1, 2], [3], [-1.0], trainable=True) for seat in rewards]
    return Episode(
        "e", game, Task("t"), 0, group=group, turns=turns, rewards=dict(rewards), void=void
    )


def test_role_baselines_by_hand():
    credit = RoleBaseline(0.95)
    found = credit.advantages(
        [
            episode({"x": 1.0, "o": -1.0}),
            episode({"x": 1.0, "o": -1.0}),
            episode({"x": -1.5, "o": 0.5}),
            episode({"x": 0.0, "o": 0.0}),
        ]
    )
    # b_x: 0, 0.05, 0.0975, 0.017625 ; b_o: 0, -0.05, -0.0975, -0.067625
    assert [a[0] for a in found] == pytest.approx([1.0, 0.95, -1.5975, -0.017625])
    assert [a[1] for a in found] == pytest.approx([-1.0, -0.95, 0.5975, 0.067625])
    assert credit.baselines == pytest.approx({"g/x": 0.01674375, "g/o": -0.06424375})


def test_turns_keep_the_advantage_that_they_were_learned_from_with():
    one, other = episode({"x": 1.0, "o": -1.0}), episode({"x": 1.0, "o": -1.0})
    other.turns[1].trainable = False
    RoleBaseline(0.95).samples([one, other])
    assert [t.advantages for t in one.turns] == [[1.0], [-1.0]]
    assert [t.advantages for t in other.turns] == [[0.95], []]


def test_role_baselines_are_kept_per_game_and_seat_and_across_iterations():
    credit = RoleBaseline(0.5)
    credit.advantages([episode({"x": 1.0}, "a"), episode({"x": -1.0}, "b")])
    assert credit.baselines == {"a/x": 0.5, "b/x": -0.5}
    assert credit.advantages([episode({"x": 1.0}, "a"), episode({"x": 1.0}, "b")]) == [
        [0.5],
        [1.5],
    ]


def test_a_role_is_compared_once_a_game_however_often_it_speaks():
    credit = RoleBaseline(0.5)
    long = episode({"x": 1.0})
    long.turns *= 3
    assert credit.advantages([long]) == [[1.0, 1.0, 1.0]]
    assert credit.baselines == {"g/x": 0.5}


def test_role_baselines_survive_a_restart():
    games = [episode({"x": float(i % 3), "o": -float(i % 2)}) for i in range(10)]
    straight = RoleBaseline().advantages(games)
    first, second = RoleBaseline(), RoleBaseline()
    head = first.advantages(games[:4])
    second.load(first.state())
    assert head + second.advantages(games[4:]) == straight


KINDS = ("role_baseline", "prompt_baseline", "group_relative", "leave_one_out")


@pytest.mark.parametrize("kind", KINDS)
def test_a_void_game_trains_nobody_and_moves_nothing(kind):
    """Whether it left rewards behind or ended before there were any."""
    fair = [episode({"x": 1.0}), episode({"x": 0.0})]
    unfair = [episode({"x": 100.0}, void="the judge broke"), episode({"x": 100.0}, void="no room")]
    unfair[1].rewards = {}
    clean, mixed = make_credit(CreditConfig(kind=kind)), make_credit(CreditConfig(kind=kind))
    expected = teach(clean, fair)
    assert teach(mixed, [unfair[0], fair[0], unfair[1], fair[1]]) == expected
    assert len(expected) == 2
    assert mixed.state() == clean.state()


def test_a_void_game_makes_no_samples_whatever_advantages_it_was_given():
    games = [episode({"x": 1.0}), episode({"x": -1.0}, void="the judge broke")]
    assert len(to_samples(games, [[1.0], [1.0]])) == 1


def test_prompt_baselines_by_hand():
    credit = PromptBaseline(0.5, prior=4, rate=0.25)

    def advantage(reward: float, prompt: list[int]) -> float:
        game = episode({"x": reward})
        game.turns[0].prompt_ids = prompt
        return credit.advantages([game])[0][0]

    # A prompt met for the first time is compared with its role; the role's b: 0, 0.5, 0.75, 0.375.
    assert advantage(1.0, [1]) == 1.0  # its own b: 0 -> 0.25
    assert advantage(1.0, [1]) == 0.75  # 0.25 -> 0.4375, by a fifth or by the rate, if that is more
    assert advantage(0.0, [2]) == -0.75
    assert advantage(0.0, [1]) == -0.4375


def test_prompt_baselines_survive_a_restart_through_json():
    games = [episode({"x": float(i % 3), "o": -float(i % 2)}) for i in range(10)]
    straight = PromptBaseline().advantages(games)
    first, second = PromptBaseline(), PromptBaseline()
    head = first.advantages(games[:4])
    second.load(json.loads(json.dumps(first.state())))
    assert head + second.advantages(games[4:]) == straight


def test_groups_by_hand():
    rewards = [1.0, 0.0, 0.0, -1.0]
    assert centred(rewards) == [1.0, 0.0, 0.0, -1.0]
    deviation = (2 / 3) ** 0.5
    assert centred(rewards, scale="group") == pytest.approx(
        [1 / (deviation + 1e-4), 0, 0, -1 / (deviation + 1e-4)]
    )
    assert centred([3.0, 1.0, 2.0]) == [1.0, -1.0, 0.0]


def test_leave_one_out_compares_with_the_mean_of_the_others():
    rewards = [4.0, 1.0, 0.0, -2.0]
    expected = [r - (sum(rewards) - r) / 3 for r in rewards]
    assert centred(rewards, leave_one_out=True) == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["group", "none", "mean"])
def test_a_group_that_agrees_or_is_alone_has_nothing_to_learn(scale):
    assert centred([0.7] * 4, scale=scale) == pytest.approx([0.0] * 4)
    assert centred([5.0], scale=scale) == [0.0]
    assert centred([], scale=scale) == []


def test_groups_and_seats_are_compared_within_themselves():
    games = [
        episode({"x": 1.0, "o": 10.0}, group="s"),
        episode({"x": 5.0, "o": 0.0}, group="t"),
        episode({"x": 0.0, "o": 20.0}, group="s"),
        episode({"x": 7.0, "o": 0.0}, group="t"),
    ]
    assert GroupRelative().advantages(games) == [
        [0.5, -5.0],
        [-1.0, 0.0],
        [-0.5, 5.0],
        [1.0, 0.0],
    ]


def test_kinds_of_credit_by_name():
    games = [episode({"x": r}, group="t") for r in (1.0, 0.0, 0.0)]

    def first(kind, **options) -> float:
        return make_credit(CreditConfig(kind=kind, **options)).advantages(games)[0][0]

    assert first("role_baseline") == first("prompt_baseline") == 1.0
    assert first("group_relative") == pytest.approx(2 / 3)
    assert first("group_relative", scale_rewards="group") == pytest.approx(
        2 / 3 / ((1 / 3) ** 0.5 + 1e-4)
    )
    assert first("leave_one_out") == pytest.approx(1.0)


def dialogue(rewards, turns, group="g", seating=None):
    """A game of (seat, turn's reward) pairs."""
    spoken = [
        Turn(seat, "main", "", "", 0, [1, 2], [3], [-1.0], trainable=True, reward=reward)
        for seat, reward in turns
    ]
    seating = seating or {seat: "main" for seat in rewards}
    return Episode(
        "e", "g", Task("t"), 0, group=group, seating=seating, turns=spoken, rewards=dict(rewards)
    )


def test_rewards_to_go_by_hand():
    game = dialogue({"x": 1.0, "o": -1.0}, [("x", 0.5), ("o", 0.0), ("x", 0.25), ("o", 2.0)])
    assert rewards_to_go(game) == [1.75, 1.0, 1.25, 1.0]
    assert rewards_to_go(game, 0.5) == [0.5 + 0.5 * 1.25, 0.5, 1.25, 1.0]


def test_a_turns_own_reward_counts_for_it_and_the_turns_before_it():
    game = dialogue({"x": 1.0}, [("x", 0.5), ("x", 0.25)])
    role = RoleBaseline(0.5)
    assert role.advantages([game]) == [[1.75, 1.25]] and role.baselines == {"g/x": 0.875}
    assert role.advantages([game]) == [[0.875, 0.375]]
    assert PromptBaseline().advantages([game]) == [[1.75, 1.25]]


def test_turn_level_groups_compare_the_k_th_turns():
    """The first game has two turns; the only other second turn is the third game's."""
    games = [
        dialogue({"x": 0.0}, [("x", 1.0), ("x", 0.0)]),
        dialogue({"x": 0.0}, [("x", 0.0)]),
        dialogue({"x": 0.0}, [("x", 0.0), ("x", 4.0)]),
    ]
    # To go: 1, 0 | 0 | 4, 4. First turns: mean 5/3; second turns: mean 2.
    found = GroupRelative(level="turn").advantages(games)
    assert found[0] == pytest.approx([1 - 5 / 3, -2])
    assert found[1] == pytest.approx([-5 / 3])
    assert found[2] == pytest.approx([4 - 5 / 3, 2])
    # Discounted by a half: 1, 0 | 0 | 2, 4.
    assert GroupRelative(level="turn", gamma=0.5).advantages(games)[2] == pytest.approx([1, 2])


def test_agents_are_normalised_by_their_own_turns():
    """Dr. MAS: each turn of an agent counts in its mean and deviation, the other agent's do not."""
    games = [
        dialogue({"x": 1.0, "o": 9.0}, [("x", 0.0), ("x", 0.0), ("o", 0.0)]),
        dialogue({"x": 0.0, "o": 5.0}, [("x", 0.0), ("o", 0.0)]),
    ]
    rewards = [1.0, 1.0, 0.0]  # one for each turn of x
    mean, deviation = 2 / 3, statistics.stdev(rewards) + 1e-4
    found = GroupRelative(level="agent", scale="group").advantages(games)
    assert found[0][:2] == pytest.approx([(1 - mean) / deviation] * 2)
    assert found[1][0] == pytest.approx(-mean / deviation)
    assert found[0][2] == pytest.approx(2 / (8**0.5 + 1e-4)) == -found[1][1]


def test_maxrl_divides_by_the_mean_and_refuses_negative_rewards():
    assert centred([1.0, 0.0, 0.0, 0.0], scale="mean") == [3.0, -1.0, -1.0, -1.0]
    assert centred([0.0, 0.0], scale="mean") == [0.0, 0.0]
    with pytest.raises(ConfigError, match="rewards of 0 and above"):
        centred([1.0, -1.0], scale="mean")


@pytest.mark.parametrize(("p", "k"), [(0.3, 2), (0.1, 4), (0.6, 5)])
def test_maxrl_has_the_gradient_of_the_truncated_log_likelihood(p, k):
    """Over all outcomes of k tries that succeed with chance p = sigmoid(θ). The gradient of
    −Σ_{i≤k} (1 − p)^i / i is (1 − p)(1 − (1 − p)^k); groups without a success are left out, so
    their share of the control variate, p (1 − p)^k, is missing."""
    total = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=k):
        chance = math.prod(p if r else 1 - p for r in outcome)
        scores = [1 - p if r else -p for r in outcome]
        values = centred(outcome, scale="mean")
        total += chance * sum(a * s for a, s in zip(values, scores, strict=True)) / k
    q = 1 - p
    assert total == pytest.approx(q * (1 - q**k) - p * q**k)


def test_groups_that_agree_are_left_out():
    same = [dialogue({"x": 1.0}, [("x", 0.0)], group="a") for _ in range(2)]
    apart = [dialogue({"x": float(i)}, [("x", 0.0)], group="b") for i in range(2)]
    by_turn = [dialogue({"x": 1.0}, [("x", float(i))], group="c") for i in range(2)]
    void = dialogue({"x": 0.0}, [("x", 0.0)], group="a")
    void.void = "judge"
    for credit in (GroupRelative(), GroupRelative(level="turn"), RoleBaseline(0.95)):
        found = differing([*same, *apart, void, *by_turn], credit)
        assert [e.group for e in found] == ["b", "b", "c", "c"]


def test_games_of_other_lengths_that_are_rewarded_alike_do_not_differ():
    """Three turns won what four won: every advantage is 0, and the group takes the place of one
    that would teach something."""
    turns = [("x", 0.0)] * 4
    games = [dialogue({"x": 1.0}, turns[:n], group="a") for n in (3, 4)]
    for credit in (GroupRelative(), GroupRelative(level="turn"), RoleBaseline(0.95)):
        assert differing(games, credit) == []
    # With a reward that is worth less the longer it takes, they do.
    assert differing(games, GroupRelative(level="turn", gamma=0.9)) == games


def test_what_differs_goes_by_who_is_compared():
    """What a turn earned or the outcome is one, where whole games are compared; and where all
    seats are one group, seats differ that always earn the same themselves."""
    split = [dialogue({"x": 1.0 - r}, [("x", r)], group="a") for r in (0.0, 0.5)]
    split[0].turns.append(Turn("x", "main", "", "", 0, [1], [2], [-1.0], trainable=True))
    assert differing(split, GroupRelative()) == []
    seats = [dialogue({"x": 1.0, "o": 0.0}, [("x", 0.0), ("o", 0.0)], group="a") for _ in range(2)]
    assert differing(seats, GroupRelative()) == []
    assert differing(seats, GroupRelative(together=True)) == seats


@pytest.mark.parametrize("scale", ["none", "group", "batch", "mean"])
def test_equal_rewards_have_advantages_of_zero_to_the_last_digit(scale):
    assert sum([0.1] * 3) / 3 != 0.1
    assert centred([0.1] * 3, scale=scale, batch=[0.1, 0.9]) == [0.0, 0.0, 0.0]
