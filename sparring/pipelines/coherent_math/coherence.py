"""How well the arms on one question hold together: do they end alike, go alike, and keep to it when
asked for the trap. Pure functions of arrays; A arms.

Each score is given for the question and for every arm: an arm's is how it stands among the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
END, PATH, COUNTERFACTUAL = 0.4, 0.3, 0.3  # the weights of s_wm
LENGTH, OVERLAP = 0.4, 0.6  # the weights of s_path
_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[-+*/=%$×÷]")


@dataclass(frozen=True)
class Scores:
    """One score for the question, and one for each arm."""

    question: float
    arms_A: Floats


@dataclass(frozen=True)
class Coherence:
    s_end: Scores
    s_path: Scores
    s_cf: Scores
    s_wm: Scores
    stability: float | None  # overlap of the canonical arm with the one that rephrased


def agreement(keys: Sequence[str | None]) -> NDArray[np.bool_]:
    """Which arms give the same answer. An arm without an answer agrees with none."""
    codes: dict[str, int] = {}
    codes_A = np.array(
        [-1 - i if key is None else codes.setdefault(key, len(codes)) for i, key in enumerate(keys)]
    )
    return np.asarray(codes_A[:, None] == codes_A[None, :])


def s_end(keys: Sequence[str | None]) -> Scores:
    """The share of pairs that agree on the final answer; for an arm, of the others."""
    same_AA = agreement(keys)
    arms_A = (same_AA.sum(1) - 1) / (len(keys) - 1)
    return Scores(float(arms_A.mean()), arms_A)


def s_cf(keys: Sequence[str | None]) -> Scores:
    """Consensus over all arms, the counterfactual probe among them: 1 if all give one answer, 0 if
    no two do. An arm outside the consensus has no part in it."""
    sizes_A = agreement(keys).sum(1)
    most = int(sizes_A.max())
    consensus = (most - 1) / (len(keys) - 1)
    readable_A = np.array([key is not None for key in keys])
    return Scores(consensus, np.where((sizes_A == most) & readable_A, consensus, 0.0))


def length_coherence(lengths: Sequence[int]) -> Scores:
    """1 / (1 + the coefficient of variation): 1 where all are equally long. For an arm, its own
    distance from the mean takes the deviation's place."""
    lengths_A = np.asarray(lengths, dtype=np.float64)
    mean = max(float(lengths_A.mean()), 1.0)
    return Scores(
        float(1 / (1 + lengths_A.std() / mean)), 1 / (1 + np.abs(lengths_A - mean) / mean)
    )


def jaccard(texts: Sequence[str]) -> Floats:
    """The overlap of every two texts' tokens: those they share over those either has."""
    sets = [frozenset(_TOKEN.findall(text.lower())) for text in texts]
    columns = {token: i for i, token in enumerate(set().union(*sets))}
    has_AV = np.zeros((len(sets), max(1, len(columns))), dtype=np.float32)
    for i, tokens in enumerate(sets):
        has_AV[i, [columns[token] for token in tokens]] = 1
    shared_AA = (has_AV @ has_AV.T).astype(np.float64)
    size_A = has_AV.sum(1).astype(np.float64)
    either_AA = size_A[:, None] + size_A[None, :] - shared_AA
    # Two empty texts have nothing in common.
    return np.divide(shared_AA, either_AA, out=np.zeros_like(shared_AA), where=either_AA > 0)


def s_path(
    lengths: Sequence[int],
    overlap_AA: Floats,
    canonical: tuple[int, int] | None = None,
    stability: float = 0.0,
) -> Scores:
    """0.4 × coherence of length + 0.6 × mean overlap of the reasoning's tokens. `stability` is the
    share of it that goes to the overlap of A and A′, the canonical arm and the one that rephrases:
    in the question's score, and in those of these two arms."""
    length = length_coherence(lengths)
    others_A = (overlap_AA.sum(1) - np.diagonal(overlap_AA)) / (len(overlap_AA) - 1)
    question = LENGTH * length.question + OVERLAP * float(others_A.mean())
    arms_A = LENGTH * length.arms_A + OVERLAP * others_A
    if canonical is not None:
        close, both = float(overlap_AA[canonical]), list(canonical)
        question = (1 - stability) * question + stability * close
        arms_A[both] = (1 - stability) * arms_A[both] + stability * close
    return Scores(question, arms_A)


def coherence(
    keys: Sequence[str | None],
    reasoning: Sequence[str],
    lengths: Sequence[int],
    canonical: tuple[int, int] | None = None,
    stability: float = 0.0,
) -> Coherence:
    """All scores of one question. `canonical` says which arms are the canonical one and the one
    that rephrases, where both are there; `stability` what share of s_path their overlap has."""
    if len(keys) < 2:
        raise ValueError(f"coherence is between arms, and there is {len(keys)}")
    overlap_AA = jaccard(reasoning)
    path = s_path(lengths, overlap_AA, canonical, stability)
    end, cf = s_end(keys), s_cf(keys)
    both = Scores(
        END * end.question + PATH * path.question + COUNTERFACTUAL * cf.question,
        END * end.arms_A + PATH * path.arms_A + COUNTERFACTUAL * cf.arms_A,
    )
    close = None if canonical is None else float(overlap_AA[canonical])
    return Coherence(end, path, cf, both, close)


def rewards(
    correct: Sequence[bool],
    s_wm_A: Floats,
    lengths: Sequence[int],
    *,
    alpha: float = 1.0,
    beta: float = 0.5,
    length_penalty: float = 0.1,
    length_scale: int = 256,
) -> Floats:
    """α · correct + β · s_wm − a penalty that grows with the tokens used."""
    lengths_A = np.asarray(lengths, dtype=np.float64)
    return (
        alpha * np.asarray(correct, dtype=np.float64)
        + beta * s_wm_A
        - length_penalty * lengths_A / length_scale
    )
