"""Turns become samples id for id, and merge only where a prompt extends what was said before."""

from sparring.core.types import Episode, Task, Turn
from sparring.credit.samples import join, to_samples


def turn(prompt: list[int], said: list[int], seat: str = "x", policy: str = "main", **options):
    logprobs = [-i / 10 for i in said]
    return Turn(seat, policy, "", "", 0, prompt, said, logprobs, **{"trainable": True, **options})


def test_a_conversation_is_one_sample():
    (sample,) = join([(turn([1, 2], [3, 4]), 0.5), (turn([1, 2, 3, 4, 5], [6]), -1.0)])
    assert sample.ids == [1, 2, 3, 4, 5, 6]
    assert sample.mask == [0, 0, 1, 1, 0, 1]
    assert sample.advantages == [0.0, 0.0, 0.5, 0.5, 0.0, -1.0]
    assert sample.logprobs == [0.0, 0.0, -0.3, -0.4, 0.0, -0.6]


def test_a_prompt_that_does_not_extend_starts_anew():
    samples = join([(turn([1, 2], [3]), 1.0), (turn([1, 2, 9, 4], [5]), 1.0)])
    assert [s.ids for s in samples] == [[1, 2, 3], [1, 2, 9, 4, 5]]
    assert [s.mask for s in samples] == [[0, 0, 1], [0, 0, 0, 0, 1]]


def test_a_prompt_that_adds_nothing_starts_anew():
    """Two replies in a row without a word between them are two questions, not one answer."""
    assert len(join([(turn([1], [2]), 1.0), (turn([1, 2], [3]), 1.0)])) == 2


def test_forks_share_their_past_but_learn_it_once():
    samples = join(
        [(turn([1], [2]), 1.0), (turn([1, 2, 7], [3]), 1.0), (turn([1, 2, 7], [4]), 1.0)]
    )
    assert [s.ids for s in samples] == [[1, 2, 7, 3], [1, 2, 7, 4]]
    assert [s.mask for s in samples] == [[0, 1, 0, 1], [0, 0, 0, 1]]


def test_interleaved_conversations_find_their_own_past():
    samples = join(
        [
            (turn([1], [2]), 1.0),
            (turn([8], [9]), 2.0),
            (turn([1, 2, 5], [3]), 3.0),
            (turn([8, 9, 5], [4]), 4.0),
        ]
    )
    assert [s.ids for s in samples] == [[1, 2, 5, 3], [8, 9, 5, 4]]
    assert [s.advantages for s in samples] == [[0, 1.0, 0, 3.0], [0, 2.0, 0, 4.0]]


def test_another_policy_or_temperature_is_another_sample():
    first = turn([1], [2])
    assert len(join([(first, 1.0), (turn([1, 2, 3], [4], policy="other"), 1.0)])) == 2
    assert len(join([(first, 1.0), (turn([1, 2, 3], [4], temperature=0.5), 1.0)])) == 2


def test_joining_leaves_the_turns_as_they_were():
    first, second = turn([1], [2]), turn([1, 2, 3], [4])
    join([(first, 1.0), (second, 1.0)])
    assert (first.prompt_ids, first.token_ids, first.logprobs) == ([1], [2], [-0.2])
    assert (second.prompt_ids, second.token_ids) == ([1, 2, 3], [4])


def test_only_trainable_turns_become_samples():
    episode = Episode(
        "e",
        "g",
        Task("t"),
        0,
        turns=[
            turn([1], [2]),
            turn([1], [3], seat="o"),
            turn([1], [4], trainable=False),
        ],
    )
    samples = to_samples([episode], [[1.0, -1.0, 9.0]])
    assert [(s.ids, s.advantages[-1]) for s in samples] == [([1, 2], 1.0), ([1, 3], -1.0)]


def test_seats_never_share_a_sample():
    episode = Episode(
        "e", "g", Task("t"), 0, turns=[turn([1], [2]), turn([1, 2, 3], [4], seat="o")]
    )
    samples = to_samples([episode], [[1.0, -1.0]])
    assert [s.ids for s in samples] == [[1, 2], [1, 2, 3, 4]]


def test_every_turn_keeps_its_own_advantage():
    episode = Episode("e", "g", Task("t"), 0, turns=[turn([1], [2]), turn([1, 2, 3], [4, 5])])
    (sample,) = to_samples([episode], [[0.25, -0.75]])
    assert sample.advantages == [0.0, 0.25, 0.0, -0.75, -0.75]
