"""The cache of slots when memory runs out: smaller, or none, and never half of one."""

from types import SimpleNamespace

import pytest
import torch

from sparring.core.types import Sampling
from sparring.engines.local.rows import Row
from sparring.engines.local.slots import Slots

SHAPE = SimpleNamespace(
    num_hidden_layers=2, num_key_value_heads=1, head_dim=4, hidden_size=4, num_attention_heads=1
)


def memory_for(monkeypatch: pytest.MonkeyPatch, rows: int) -> list[int]:
    """A device whose caches hold so many rows; what was asked of it."""
    zeros, asked = torch.zeros, []

    def limited(*shape: int, **options: object) -> torch.Tensor:
        size = shape[0]
        if isinstance(size, tuple) and len(size) == 5:
            asked.append(size[1])
            if size[1] > rows:
                raise torch.OutOfMemoryError("too many")
        return zeros(*shape, **options)

    monkeypatch.setattr(torch, "zeros", limited)
    return asked


def make_slots() -> Slots:
    model = SimpleNamespace(config=SHAPE, device=torch.device("cpu"), dtype=torch.float32)
    return Slots(model)


def row() -> Row:
    return Row(("main", 0), [1, 2, 3], Sampling(max_tokens=4), 0)


def test_a_cache_is_as_large_as_memory_allows_and_that_is_remembered(monkeypatch):
    slots, asked = make_slots(), memory_for(monkeypatch, 3)
    slots.fit(8, 100)
    assert asked == [9, 5, 3], "each with a slot to spare"
    assert (slots.count, slots.places, len(slots.free)) == (2, 128, 2)
    slots.fit(8, 100)
    assert asked == [9, 5, 3]
    seated = [slots.take(row()) for _ in range(3)]
    assert seated == [True, True, False], "the third waits for a slot"


def test_an_allocation_that_fails_leaves_no_cache_and_can_be_tried_again(monkeypatch):
    slots = make_slots()
    slots.fit(4, 100)
    epoch = slots.epoch
    assert slots.take(row())
    with monkeypatch.context() as patch:
        memory_for(patch, 0)
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                slots.fit(4, 300)
    assert (slots.count, slots.places, slots.free, slots.said) == (0, 0, [], {})
    assert slots.epoch > epoch, "whoever looked at the old cache must look again"
    assert not slots.take(row())
    slots.fit(4, 300)
    assert (slots.count, slots.places, slots.keys.shape[1]) == (4, 512, 5)
    assert slots.take(row())


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    slots = make_slots()

    def broken(*shape, **options):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(torch, "zeros", broken)
    with pytest.raises(RuntimeError, match="the device is gone"):
        slots.fit(4, 100)
