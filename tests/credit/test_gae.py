"""GAE by hand, by brute force, and along the turns of an episode."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from sparring.core.collect import Job, play
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Episode, Request, Sample, Task, Turn
from sparring.credit.credit import rewards_to_go
from sparring.credit.gae import Gae, centre, gae


def test_a_trajectory_worked_out_by_hand() -> None:
    """γ = 0.5, λ = 0.5. δ_2 = 1 − 0.4 = 0.6; δ_1 = 0.5·0.4 − 0.2 = 0; δ_0 = 0.5·0.2 − 0.1 = 0.
    A_2 = 0.6; A_1 = 0 + 0.25·0.6 = 0.15; A_0 = 0 + 0.25·0.15 = 0.0375."""
    advantages, returns = gae([0, 0, 1], [0.1, 0.2, 0.4], gamma=0.5, trace=0.5)
    assert advantages == pytest.approx([0.0375, 0.15, 0.6])
    assert returns == pytest.approx([0.1375, 0.35, 1.0])


def test_rewards_on_the_way_by_hand() -> None:
    """γ = 0.9, λ = 0: one-step surprises, nothing else."""
    advantages, _ = gae([1, -1], [2.0, 3.0], gamma=0.9, trace=0.0)
    assert advantages == pytest.approx([1 + 0.9 * 3 - 2, -1 - 3])


@pytest.mark.parametrize("seed", range(5))
def test_with_a_full_trace_it_is_the_discounted_return_less_the_value(seed: int) -> None:
    rng = random.Random(seed)
    n, gamma = rng.randrange(1, 12), rng.random()
    rewards, values = ([rng.uniform(-1, 1) for _ in range(n)] for _ in range(2))
    advantages, returns = gae(rewards, values, gamma, trace=1.0)
    brute = [sum(gamma ** (k - t) * rewards[k] for k in range(t, n)) for t in range(n)]
    assert returns == pytest.approx(brute)
    assert advantages == pytest.approx([b - v for b, v in zip(brute, values, strict=True)])


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_weighted_mean_of_n_step_returns(seed: int) -> None:
    """The definition: Σ_n (1 − λ) λ^(n−1) of the n-step returns, the rest of the weight on the
    last."""
    rng = random.Random(seed)
    n, gamma, trace = rng.randrange(2, 9), rng.random(), rng.random()
    rewards, values = ([rng.uniform(-1, 1) for _ in range(n)] for _ in range(2))
    advantages, _ = gae(rewards, values, gamma, trace)
    for t in range(n):
        steps = []
        for k in range(1, n - t + 1):
            gained = sum(gamma**i * rewards[t + i] for i in range(k))
            steps.append(gained + (gamma**k * values[t + k] if t + k < n else 0.0))
        weights = [(1 - trace) * trace**i for i in range(len(steps) - 1)]
        weights.append(trace ** (len(steps) - 1))
        expected = sum(w * s for w, s in zip(weights, steps, strict=True)) - values[t]
        assert advantages[t] == pytest.approx(expected)


def test_advantages_are_centred_as_by_a_critic_that_expects_more() -> None:
    """λ = 0.5, γ = 1, nothing expected, 1 and 0 earned after two tokens each: advantages 0.5, 1 and
    0, 0. Expecting c everywhere takes 0.5 c and c from either: their mean is 0 at c = 1.5 / 3."""
    of_one, _ = gae([0, 0], [1, 1], gamma=1.0, trace=0.5)
    assert of_one == [-0.5, -1.0]
    assert centre([0.5, 1, 0, 0], of_one * 2) == pytest.approx([0.25, 0.5, -0.25, -0.5])
    assert centre([0.5, 1, 0.5, 1], of_one * 2) == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_centred_advantages_are_those_of_shifted_values(seed: int) -> None:
    rng = random.Random(seed)
    n, gamma, trace = rng.randrange(2, 9), rng.random(), rng.random()
    rewards, values = ([rng.uniform(-1, 1) for _ in range(n)] for _ in range(2))
    of_one, _ = gae([0.0] * n, [1.0] * n, gamma, trace)
    advantages, _ = gae(rewards, values, gamma, trace)
    centred = centre(advantages, of_one)
    level = (centred[-1] - advantages[-1]) / of_one[-1]
    shifted, _ = gae(rewards, [v + level for v in values], gamma, trace)
    assert centred == pytest.approx(shifted) and sum(centred) == pytest.approx(0)


def test_with_a_full_trace_centring_subtracts_the_mean() -> None:
    assert centre([1, 2, 3, 6], [-1.0] * 4) == pytest.approx([-2, -1, 0, 3])


def turn(seat: str, prompt: list[int], said: list[int], policy: str = "main") -> Turn:
    logprobs = [-1.0] * len(said)
    return Turn(seat, policy, "", "", 0, prompt, said, logprobs, trainable=bool(policy == "main"))


def test_the_turns_of_a_seat_are_one_trajectory_with_the_reward_at_its_end() -> None:
    turns = [turn("a", [1], [2, 3]), turn("b", [1], [9], "base"), turn("a", [7, 8], [4])]
    episode = Episode("e", "g", Task("t"), 0, turns=turns, rewards={"a": 1.0, "b": 0.0})
    credit = Gae(gamma=0.9, trace=0.8, whitened=False)

    def values(samples: Sequence[Sample]) -> list[list[float]]:
        assert [s.ids for s in samples] == [[1, 2, 3], [7, 8, 4]]  # unlike prompts: two samples
        return [[0.1, 0.2], [0.3]]

    credit.values = values
    first, second = credit.samples([episode])
    advantages, returns = gae([0, 0, 1], [0.1, 0.2, 0.3], 0.9, 0.8)
    assert first.advantages == [0, *advantages[:2]] and second.advantages == [0, 0, advantages[2]]
    assert first.returns == [0, *returns[:2]] and first.values == [0, 0.1, 0.2]
    assert [t.advantages for t in turns] == [advantages[:2], [], advantages[2:]]  # on record


def test_conversations_that_take_turns_are_one_trajectory_as_it_was_spoken() -> None:
    """Spoken: 2 (worth 0.1), then 9 in another conversation (0.4), then 3 in the first (0.2). With
    γ = 0.5, λ = 0.5 and a reward of 1 after the 3:
    δ of 3 = 1 − 0.2 = 0.8; of 9: 0.5·0.2 − 0.4 = −0.3; of 2: 0.5·0.4 − 0.1 = 0.1.
    A of 3 = 0.8; of 9: −0.3 + 0.25·0.8 = −0.1; of 2: 0.1 − 0.25·0.1 = 0.075."""
    turns = [turn("a", [1], [2]), turn("a", [8], [9]), turn("a", [1, 2, 5], [3])]
    credit = Gae(gamma=0.5, trace=0.5, whitened=False)

    def values(samples: Sequence[Sample]) -> list[list[float]]:
        assert [s.ids for s in samples] == [[1, 2, 5, 3], [8, 9]]
        return [[0.1, 0.2], [0.4]]

    credit.values = values
    first, other = credit.samples([Episode("e", "g", Task("t"), 0, turns=turns, rewards={"a": 1})])
    assert first.advantages == pytest.approx([0, 0.075, 0, 0.8])
    assert first.returns == pytest.approx([0, 0.175, 0, 1.0])
    assert first.values == [0, 0.1, 0, 0.2]
    assert other.advantages == pytest.approx([0, -0.1]) and other.values == [0, 0.4]
    assert other.returns == pytest.approx([0, 0.3])


def test_forks_are_one_trajectory_as_it_was_spoken() -> None:
    """2, then fork 3, then fork 4, then 6 on the first fork: the reward comes after the 6, though
    the sample of the second fork is the last. γ = 1, λ = 0: each token against the next one."""
    turns = [turn("a", [1], [2]), turn("a", [1, 2, 7], [3]), turn("a", [1, 2, 7], [4])]
    turns.append(turn("a", [1, 2, 7, 3, 5], [6]))
    credit = Gae(gamma=1.0, trace=0.0, whitened=False)

    def values(samples: Sequence[Sample]) -> list[list[float]]:
        assert [s.ids for s in samples] == [[1, 2, 7, 3, 5, 6], [1, 2, 7, 4]]
        return [[0.1, 0.3, 0.6], [0.4]]

    credit.values = values
    one, two = credit.samples([Episode("e", "g", Task("t"), 0, turns=turns, rewards={"a": -1.0})])
    assert one.advantages == pytest.approx([0, 0.3 - 0.1, 0, 0.4 - 0.3, 0, -1 - 0.6])
    assert two.advantages == pytest.approx([0, 0, 0, 0.6 - 0.4])


def test_the_last_word_of_a_real_table_gets_the_reward() -> None:
    """A game that asks, asks anew, and goes back to the first conversation through a fork."""

    class Returning(Game):
        seats = ("a",)

        async def play(self, task: Task, table: Table) -> Outcome:
            await table["a"].act("one")
            back = table["a"].fork()
            await table["a"].act("two")
            await back.reply("three")
            return Outcome(a=1.0)

    ids = {"one": ([1], [2]), "two": ([8], [9]), "three": ([1, 2, 5], [3])}

    async def speak(request: Request) -> Turn:
        return turn("a", *ids[request.messages[-1]["content"]])

    job = Job("j", "g", Returning(), Task("t"), 0, {"a": "main"}, learned=frozenset({"main"}))
    episode = asyncio.run(play(job, speak))
    credit = Gae(gamma=1.0, trace=0.0, whitened=False)
    credit.values = lambda samples: [[0.0] * sum(sample.mask) for sample in samples]
    found = {tuple(s.ids): s.advantages for s in credit.samples([episode])}
    assert found == {(1, 2, 5, 3): [0, 0, 0, 1.0], (8, 9): [0, 0]}


def test_advantages_are_whitened_per_policy() -> None:
    episodes = [
        Episode("e", "g", Task("t"), 0, turns=[turn("a", [1], [2])], rewards={"a": r})
        for r in (0.0, 1.0, 1.0, 0.0)
    ]
    credit = Gae()
    credit.values = lambda samples: [[0.5] for _ in samples]
    found = [s.advantages[-1] for s in credit.samples(episodes)]
    assert found == pytest.approx([-1, 1, 1, -1])
    credit.values = None
    with pytest.raises(RuntimeError, match="needs a critic"):
        credit.samples(episodes)


def long_replies(rewards: Sequence[float], lengths: Sequence[int]) -> list[Episode]:
    return [
        Episode("e", "g", Task("t"), 0, turns=[turn("a", [1], [2] * n)], rewards={"a": reward})
        for reward, n in zip(rewards, lengths, strict=True)
    ]


@pytest.mark.parametrize(("reward", "expected"), [(1.0, 0.0), (0.98, 0.0), (0.98, 0.3)])
def test_equal_rewards_push_no_token_whatever_the_critic_expects(
    reward: float, expected: float
) -> None:
    """Early and late tokens of long replies alike, though a critic that begins at nothing is
    surprised at the end, and 0.95^300 of that is left at the beginning."""
    credit = Gae(gamma=1.0, trace=0.95)
    credit.use_values(lambda samples: [[expected] * sum(s.mask) for s in samples])
    for sample in credit.samples(long_replies([reward] * 5, [300, 250, 40, 300, 7])):
        assert sample.advantages == [0.0] * len(sample.ids)
        assert sample.returns == sample.values  # nothing for the critic to learn either


def test_rewards_that_differ_push_the_late_tokens_only() -> None:
    """λ = 0.95, so what is learned from the end reaches back some hundred tokens; before those
    there is no push in either direction, whoever won, and in all there is none."""
    rewards = [1.0, 0.4, 0.9, 0.1, 1.0, 0.3]
    credit = Gae(gamma=1.0, trace=0.95)
    credit.use_values(lambda samples: [[0.0] * sum(s.mask) for s in samples])
    samples = credit.samples(long_replies(rewards, [300, 280, 260, 310, 270, 290]))
    mean = sum(rewards) / len(rewards)
    learned = [sample.advantages[1:] for sample in samples]
    for reward, advantages in zip(rewards, learned, strict=True):
        assert max(abs(a) for a in advantages[:100]) < 0.01
        assert abs(advantages[-1]) > 1 and (advantages[-1] > 0) == (reward > mean)
    tokens = [a for advantages in learned for a in advantages]
    assert sum(tokens) == pytest.approx(0, abs=1e-9)
    assert sum(a * a for a in tokens) / len(tokens) == pytest.approx(1)


def test_turns_are_steps_and_may_be_rewarded_by_themselves() -> None:
    """γ = 0.5, λ = 0.5. Values before the turns 0.2 and 0.4; rewards 1, then 0.5 + 2 at the end.
    δ_1 = 2.5 − 0.4 = 2.1; δ_0 = 1 + 0.5·0.4 − 0.2 = 1; A_0 = 1 + 0.25·2.1 = 1.525."""
    turns = [turn("a", [1], [2, 3]), turn("b", [1], [9], "base"), turn("a", [7, 8], [4, 5, 6])]
    turns[0].reward, turns[2].reward = 1.0, 0.5
    episode = Episode("e", "g", Task("t"), 0, turns=turns, rewards={"a": 2.0, "b": 0.0})
    credit = Gae(gamma=0.5, trace=0.5, whitened=False, by_turn=True)
    credit.use_values(lambda samples: [[0.2, 7.0], [0.4, 8.0, 9.0]])
    first, second = credit.samples([episode])
    assert first.advantages == pytest.approx([0, 1.525, 1.525])
    assert second.advantages == pytest.approx([0, 0, 2.1, 2.1, 2.1])
    assert first.returns == pytest.approx([0, 1.725, 1.725])
    assert second.returns == pytest.approx([0, 0, 2.5, 2.5, 2.5])


def test_a_turns_reward_comes_with_its_last_token() -> None:
    turns = [turn("a", [1], [2, 3]), turn("a", [7], [4])]
    turns[0].reward = 1.0
    episode = Episode("e", "g", Task("t"), 0, turns=turns, rewards={"a": 2.0})
    credit = Gae(gamma=1.0, trace=0.0, whitened=False)
    credit.use_values(lambda samples: [[0.1, 0.2], [0.3]])
    first, second = credit.samples([episode])
    assert first.advantages == pytest.approx([0, 0.2 - 0.1, 1 + 0.3 - 0.2])
    assert second.advantages == pytest.approx([0, 2 - 0.3])


def test_what_a_turn_earns_that_is_not_learned_from_counts_for_those_before_it() -> None:
    """As in every other kind of credit: a stage that waits for its own turn to learn."""
    turns = [
        Turn("x", "main", "", "", prompt_ids=[1], token_ids=[5, 6], logprobs=[0.0, 0.0]),
        Turn("x", "main", "", "", prompt_ids=[1, 5, 6, 9], token_ids=[7], logprobs=[0.0]),
    ]
    turns[0].trainable, turns[1].reward = True, 3.0
    credit = Gae(trace=1.0, whitened=False)
    credit.use_values(lambda samples: [[0.0] * sum(sample.mask) for sample in samples])
    (sample,) = credit.samples([Episode("e", "g", Task("t"), 0, turns=turns, rewards={"x": 0.5})])
    assert sample.advantages == [0.0, 3.5, 3.5]
    assert rewards_to_go(Episode("e", "g", Task("t"), 0, turns=turns, rewards={"x": 0.5}))[0] == 3.5
