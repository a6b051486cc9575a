"""Samples become tensors without loss, within the budget."""

import torch

from sparring.core.types import Sample
from sparring.learn.batches import by_budget, collate, seen, split


def sample(ids: list[int], masked: int, advantage: float = 1.0) -> Sample:
    free = len(ids) - masked
    return Sample(
        "main",
        ids,
        [0] * free + [1] * masked,
        [0.0] * free + [advantage] * masked,
        [0.0] * free + [-float(i) for i in ids[free:]],
        0.5,
    )


def test_collate_by_hand():
    batch = collate([sample([7, 8, 9], 1), sample([7, 8, 5, 6], 2, -2.0)], pad=0, device="cpu")
    assert batch.ids_RT.tolist() == [[7, 8, 0], [7, 8, 5]]
    assert batch.row_N.tolist() == [0, 1, 1]
    assert batch.position_N.tolist() == [1, 1, 2]
    assert batch.target_N.tolist() == [9, 5, 6]
    assert batch.advantage_N.tolist() == [1.0, -2.0, -2.0]
    assert batch.logprob_N.tolist() == [-9.0, -5.0, -6.0]
    assert batch.temperature_N.tolist() == [0.5] * 3
    assert batch.sample_N.tolist() == [0, 1, 1]


def test_samples_that_differ_in_their_last_token_share_a_row():
    batch = collate([sample([7, 8, last], 1) for last in (1, 2, 3, 1)], pad=0, device="cpu")
    assert batch.ids_RT.tolist() == [[7, 8]]
    assert batch.row_N.tolist() == [0, 0, 0, 0]
    assert batch.target_N.tolist() == [1, 2, 3, 1]


def test_a_mask_with_holes_scores_only_what_was_said():
    holes = Sample("main", [1, 2, 3, 4, 5], [0, 1, 0, 0, 1], [0, 3.0, 0, 0, 4.0], [0, -1, 0, 0, -2])
    batch = collate([holes], pad=0, device="cpu")
    assert batch.position_N.tolist() == [0, 3]
    assert batch.target_N.tolist() == [2, 5]
    assert batch.advantage_N.tolist() == [3.0, 4.0]


def test_a_token_that_nothing_precedes_is_not_learned_from():
    alone = Sample("main", [5], [1], [1.0], [0.0])
    other = Sample("main", [7, 8], [0, 1], [0.0, 2.0], [0.0, -1.0])
    batch = collate([alone, other], pad=0, device="cpu")
    assert batch.target_N.tolist() == [8] and batch.advantage_N.tolist() == [2.0]


def test_the_budget_holds_and_nothing_is_lost(make_samples):
    samples = make_samples(40)
    batches = by_budget(samples, 60)
    assert sorted(s.ids for b in batches for s in b) == sorted(s.ids for s in samples)
    for batch in batches:
        width = max(len(s.ids) for s in batch)
        assert len({seen(s) for s in batch}) * width <= 60 or len(batch) == 1
    assert 1 < len(batches) < len(samples)


def test_a_sample_over_the_budget_goes_alone(make_samples):
    assert [len(b) for b in by_budget(make_samples(3), 1)] == [1, 1, 1]


def test_shared_rows_cost_once():
    samples = [sample([7, 8, last], 1) for last in range(100)]
    assert len(by_budget(samples, 3)) == 1


def test_split_is_a_seeded_partition(make_samples):
    samples = make_samples(10)

    def parts(seed: int, n: int) -> list[list[list[int]]]:
        generator = torch.Generator().manual_seed(seed)
        return [[s.ids for s in part] for part in split(samples, n, generator)]

    assert sorted(ids for part in parts(0, 3) for ids in part) == sorted(s.ids for s in samples)
    assert [len(part) for part in parts(0, 3)] == [4, 3, 3]
    assert parts(0, 3) == parts(0, 3) != parts(1, 3)
    assert len(parts(0, 20)) == 10, "empty parts are left out"
