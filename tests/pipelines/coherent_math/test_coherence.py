"""Coherence in numbers worked out by hand, and fast enough."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from sparring.pipelines.coherent_math.coherence import (
    coherence,
    jaccard,
    length_coherence,
    rewards,
    s_cf,
    s_end,
    s_path,
)
from sparring.run.games import load_game


def test_s_end_is_the_share_of_pairs_that_agree():
    found = s_end(["4", "4", "4", "5"])
    assert found.question == pytest.approx(3 / 6)
    assert found.arms_A == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0])
    assert s_end(["4", "4"]).question == 1.0
    assert s_end([None, None, "4"]).question == 0.0  # the silent do not agree


def test_s_cf_goes_from_none_to_all():
    assert s_cf(["4"] * 11).question == 1.0
    assert s_cf([str(i) for i in range(11)]).question == 0.0
    found = s_cf(["4", "4", "4", "5", "6"])
    assert found.question == pytest.approx(2 / 4)
    assert found.arms_A == pytest.approx([0.5, 0.5, 0.5, 0, 0])
    assert s_cf([None] * 5).question == 0.0 and not s_cf([None] * 5).arms_A.any()


def test_equal_lengths_cohere_and_unequal_ones_less():
    assert length_coherence([7, 7, 7]).question == 1.0
    found = length_coherence([10, 30])  # mean 20, deviation 10
    assert found.question == pytest.approx(1 / 1.5)
    assert found.arms_A == pytest.approx([1 / 1.5, 1 / 1.5])
    assert length_coherence([0, 0]).question == 1.0


def test_jaccard_is_shared_over_either():
    found = jaccard(["Add 2 and 3", "add 2", "", ""])
    assert found[0, 1] == pytest.approx(2 / 4) and found[0, 0] == 1.0
    assert found[0, 2] == 0.0 and found[2, 3] == 0.0
    assert np.array_equal(found, found.T)
    assert jaccard(["1,000.5 + x", "1,000.5 - x"])[0, 1] == pytest.approx(2 / 4)


def test_s_path_weighs_length_and_overlap():
    overlap = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.8], [0.2, 0.8, 1.0]])
    found = s_path([5, 5, 5], overlap)
    assert found.question == pytest.approx(0.4 + 0.6 * (0.5 + 0.2 + 0.8) / 3)
    assert found.arms_A == pytest.approx([0.4 + 0.6 * x for x in (0.35, 0.65, 0.5)])


def test_s_path_can_reward_that_a_rephrased_question_is_solved_alike():
    """A quarter of s_path for the overlap of arms 0 and 2, which is 0.2."""
    overlap = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.8], [0.2, 0.8, 1.0]])
    plain, found = s_path([5, 5, 5], overlap), s_path([5, 5, 5], overlap, (0, 2), 0.25)
    assert found.question == pytest.approx(0.75 * plain.question + 0.25 * 0.2)
    expected = [0.75 * plain.arms_A[0] + 0.05, plain.arms_A[1], 0.75 * plain.arms_A[2] + 0.05]
    assert found.arms_A == pytest.approx(expected)
    assert s_path([5, 5, 5], overlap, (0, 2)).arms_A == pytest.approx(plain.arms_A)
    closer = np.array([[1.0, 0.5, 0.6], [0.5, 1.0, 0.8], [0.6, 0.8, 1.0]])
    assert s_path([5, 5, 5], closer, (0, 2), 0.25).question > found.question
    keys, texts = ["4"] * 3, ["a b", "b c", "a d"]
    both = [coherence(keys, texts, [2, 2, 2], (0, 2), share) for share in (0.0, 0.5)]
    assert both[0].stability == both[1].stability == pytest.approx(1 / 3)
    assert both[1].s_wm.question != both[0].s_wm.question


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stability": 1.5}, "less than or equal to 1"),
        ({"stability": 0.5, "arms": ["wolfram_0", "wolfram_1"]}, "needs the arms wolfram_standard"),
    ],
)
def test_a_share_that_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        load_game("coherent_math", **options)


def test_s_wm_is_the_weighted_sum_and_stability_is_told_alone():
    keys, texts, lengths = ["4", "4", "5"], ["a b", "a c", "a d"], [2, 2, 2]
    found = coherence(keys, texts, lengths, canonical=(0, 2))
    end, path, cf = 1 / 3, 0.4 + 0.6 / 3, 1 / 2
    assert found.s_wm.question == pytest.approx(0.4 * end + 0.3 * path + 0.3 * cf)
    assert found.s_wm.arms_A[2] == pytest.approx(0.3 * path)
    assert found.stability == pytest.approx(1 / 3)
    assert coherence(keys, texts, lengths).stability is None
    with pytest.raises(ValueError, match="between arms, and there is 1"):
        coherence(["4"], ["a"], [1])


def test_a_reward_is_correctness_then_coherence_less_length():
    found = rewards(
        [True, False], np.array([0.5, 1.0]), [128, 256], alpha=2, beta=0.5, length_penalty=0.1
    )
    assert found == pytest.approx([2 + 0.25 - 0.05, 0.5 - 0.1])


def test_five_hundred_questions_of_eleven_arms_take_less_than_five_seconds():
    rng = random.Random(0)
    words = [f"word{i}" for i in range(800)]
    texts = [" ".join(rng.choices(words, k=150)) for _ in range(500 * 11)]
    began = time.process_time()
    for q in range(500):
        own = texts[q * 11 : q * 11 + 11]
        found = coherence([str(len(t) % 3) for t in own], own, [len(t) for t in own], (8, 9))
        assert 0 <= found.s_wm.question <= 1
    spent = time.process_time() - began
    print(f"\n500 questions × 11 arms scored in {spent:.2f} s")
    assert spent < 5
