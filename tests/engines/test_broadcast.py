"""Weights that go to workers arrive bit for bit, through groups that workers may leave by dying."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_workers import FakeActor, FakeTransport, fake_pool, request, with_main

from sparring.engines.broadcast import Group, Member, Root, choose_backend, flatten, unflatten
from sparring.engines.pool import WorkerPool
from sparring.engines.published import PublishFailed


def test_weights_of_any_dtype_arrive_as_they_left(make_policies: Callable[..., Any]) -> None:
    state = make_policies("lora").state("main")
    state |= {"half": torch.randn(3, 5).bfloat16(), "one": torch.tensor(2.5)}
    state |= {"odd": torch.ones(3, dtype=torch.uint8), "wide": torch.randn(7).double()}
    layout, bytes_N = flatten(state)
    before = {key: value.clone() for key, value in state.items()}
    for value in state.values():
        value.zero_()  # learning goes on while they are on their way
    root, received = Root("127.0.0.1"), dict[int, Any]()
    offers = root.offers(2, "gloo", {"main": layout})

    def receive(member: Member, offer: Any) -> None:
        received[offer.rank] = member.receive(offer, None)

    threads = [threading.Thread(target=receive, args=(Member(), offer)) for offer in offers]
    for thread in threads:
        thread.start()
    Group(offers[0], 0, None).broadcast(bytes_N)
    for thread in threads:
        thread.join()
    assert received.keys() == {1, 2}
    for weights in received.values():
        assert weights["main"].keys() == before.keys()
        for key, value in before.items():
            held = weights["main"][key]
            assert held.dtype == value.dtype and torch.equal(held, value), key


def test_nothing_is_a_row_of_no_bytes() -> None:
    layout, bytes_N = flatten({})
    assert layout == [] and len(bytes_N) == 0 and unflatten(layout, bytes_N) == {}


def test_nccl_is_for_members_with_a_gpu_each() -> None:
    assert choose_backend(["a", "b", "c"]) == "nccl"
    assert choose_backend(["a", "a"]) == "gloo"  # two processes share one
    assert choose_backend(["a", None]) == choose_backend([None, None]) == "gloo"


def test_a_group_is_made_once_and_again_when_a_member_has_died() -> None:
    async def scene() -> None:
        actors = [FakeActor() for _ in range(3)]
        pool = WorkerPool(with_main(), FakeTransport(actors), patience_s=60)
        policies: Any = pool.policies

        async def publish(version: int) -> str:
            policies.weights["main"] = float(version)
            policies.set_version("main", version)
            await pool.act(request())
            assert pool.shared._group is not None
            return pool.shared._group[1][0].group

        assert await publish(1) == await publish(2)
        actors[0].die()
        name = await publish(3)
        await asyncio.gather(*pool._replacing)
        assert await publish(4) != name and pool.replaced == 1
        for actor in actors[1:]:
            assert actor.worker.engine.policies.weights == {"main": 4.0}
            assert actor.worker.engine.policies.version("main") == 4

    asyncio.run(scene())


def test_weights_that_change_on_their_way_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Member.receive

    def flip(self: Member, *words: Any) -> Any:
        weights = usual(self, *words)
        weights["main"]["w"] += 1
        return weights

    monkeypatch.setattr(Member, "receive", flip)
    with pytest.raises(PublishFailed, match="what arrived of 'main' is not what was sent"):
        asyncio.run(fake_pool([FakeActor(), FakeActor()]).act(request()))
