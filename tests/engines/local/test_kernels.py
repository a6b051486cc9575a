"""The kernels of the decode step against the plain sums they stand for, and the engine on slots
against the one without: on a GPU as compiled, elsewhere in Triton's interpreter."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest
import torch

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton looks
pytest.importorskip("triton", reason="triton is not installed (it comes with torch for CUDA)")

from test_slots import memory_for  # noqa: E402

from sparring.core.types import Request, Sampling, Turn, VoidGame  # noqa: E402
from sparring.engines.local import kernels  # noqa: E402
from sparring.engines.local.engine import TransformersEngine  # noqa: E402
from sparring.engines.local.graphs import Speaker  # noqa: E402
from sparring.engines.local.rows import Row  # noqa: E402
from sparring.models.policies import load_policies  # noqa: E402
from sparring.run.config import LearnConfig  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
B, Q, K, D, S, SLOTS = 5, 4, 2, 48, 96, 7
POSITION = torch.tensor([0, 3, 70, 64, 63], device=DEVICE)
SLOT = torch.tensor([6, 1, 0, 3, 2], device=DEVICE)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def rope() -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.outer(torch.arange(S).float(), 10000.0 ** (-torch.arange(0, D, 2) / D))
    both = torch.cat([angle, angle], -1).to(DEVICE)
    return both.cos(), both.sin()


def turned(x: torch.Tensor) -> torch.Tensor:
    cos, sin = (table[POSITION][:, None] for table in rope())
    return x * cos + torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1) * sin


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def test_norm_adds_first_and_leaves_the_sum() -> None:
    x, delta, weight = noise(B, 192), noise(B, 192, seed=1), noise(192, seed=2)
    total = x + delta
    out = kernels.add_norm(x, delta, weight, 1e-6)
    torch.testing.assert_close(x, total)
    torch.testing.assert_close(out, normed(total, weight))


@pytest.mark.parametrize("with_norms", [False, True])
def test_queries_turn_and_keys_and_values_land_in_their_slots(with_norms: bool) -> None:
    qkv = noise(B, (Q + 2 * K) * D)
    keys, values = noise(SLOTS, K, S, D, seed=1), noise(SLOTS, K, S, D, seed=2)
    norms = (noise(D, seed=3), noise(D, seed=4)) if with_norms else None
    heads = qkv.view(B, Q + 2 * K, D)
    q, k, v = heads[:, :Q], heads[:, Q : Q + K], heads[:, Q + K :]
    if norms:
        q, k = normed(q, norms[0]), normed(k, norms[1])
    expected_keys, expected_values = keys.clone(), values.clone()
    expected_keys[SLOT, :, POSITION] = turned(k)
    expected_values[SLOT, :, POSITION] = v
    found = kernels.rotate(qkv, rope(), POSITION, SLOT, (keys, values), norms, 1e-6)
    torch.testing.assert_close(found, turned(q))
    torch.testing.assert_close(keys, expected_keys)
    torch.testing.assert_close(values, expected_values)


def test_attention_sees_its_own_slot_up_to_its_own_place() -> None:
    q = noise(B, Q, D)
    keys, values = noise(SLOTS, K, S, D, seed=1), noise(SLOTS, K, S, D, seed=2)
    found = kernels.attend(q, (keys, values), POSITION, SLOT)
    for b in range(B):
        end = int(POSITION[b]) + 1
        k, v = (t[SLOT[b], :, :end].repeat_interleave(Q // K, 0) for t in (keys, values))
        weight = ((q[b][:, None] * k).sum(-1) * D**-0.5).softmax(-1)
        torch.testing.assert_close(found[b].view(Q, D), (weight[..., None] * v).sum(1))


def test_gate_times_up() -> None:
    both = noise(3, 2 * 640)
    expected = torch.nn.functional.silu(both[:, :640]) * both[:, 640:]
    torch.testing.assert_close(kernels.silu_times(both), expected)


def test_draws_follow_the_tempered_softmax() -> None:
    rows = 20_000 if CUDA else 200
    logits = noise(1, 8).repeat(rows, 1)
    heat = torch.full((rows,), 0.7, device=DEVICE)
    seeds = torch.arange(rows, device=DEVICE)
    token, logprob = kernels.draw(logits, heat, seeds, torch.zeros_like(seeds))
    expected = (logits[0] / 0.7).log_softmax(-1)
    torch.testing.assert_close(logprob, expected[token])
    share = torch.bincount(token, minlength=8) / rows
    assert 0.5 * float((share - expected.exp()).abs().sum()) < 3 * rows**-0.5
    again, _ = kernels.draw(logits, heat, seeds, torch.zeros_like(seeds))
    other, _ = kernels.draw(logits, heat, seeds, torch.ones_like(seeds))
    assert bool((again == token).all()) and not bool((other == token).all())


def test_greedy_takes_the_likeliest() -> None:
    logits = noise(4, 261)
    zeros = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    token, logprob = kernels.draw(logits, torch.zeros(4, device=DEVICE), zeros, zeros)
    assert token.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(logprob, logits.log_softmax(-1).max(-1).values)


def ask(policy: str, text: str, order: int, previous: Turn | None = None) -> Request:
    plan = Sampling(temperature=0.0, max_tokens=3)
    messages = [{"role": "user", "content": text}]
    return Request("s", policy, messages, plan, order, (order,), previous)


async def two_turns(engine: TransformersEngine, names: list[str]) -> list[Turn]:
    first = await asyncio.gather(
        *[
            engine.act(ask(name, text, i))
            for i, name in enumerate(names)
            for text in ("a", "bc", "a")
        ]
    )
    more = [engine.act(ask(turn.policy, "go on", 9 + i, turn)) for i, turn in enumerate(first)]
    return [*first, *await asyncio.gather(*more)]


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_slots_say_what_the_plain_way_says(weights: str) -> None:
    """Two policies and the bare model, each with two conversations of two turns; adapters share
    one batch, and the second turn reads only what is new."""
    config = LearnConfig(weights=weights, lora_r=4)  # type: ignore[arg-type]
    policies = load_policies("nano", config, device=DEVICE)
    names = ["main", "other", "base"] if weights == "lora" else ["main"]
    for name in names[:2]:
        policies.add(name)
        with torch.no_grad():
            for key, parameter in policies.parameters(name).items():
                parameter.add_(0.1 * noise(*parameter.shape, seed=len(key)))
    plain = asyncio.run(two_turns(TransformersEngine(policies, graphs=False), names))
    quick = TransformersEngine(policies, graphs=True)
    fast = asyncio.run(two_turns(quick, names))
    assert quick._slots is not None  # it did go through the slots
    for a, b in zip(plain, fast, strict=True):
        assert (a.token_ids, a.finish) == (b.token_ids, b.finish)
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_twins_with_one_token_to_say_can_be_gone_on_with() -> None:
    """Their prompt was read in another's slot: what is in their own must not be taken for it."""
    policies = load_policies("nano", LearnConfig(weights="full"), device=DEVICE)
    plan = Sampling(temperature=1.0, max_tokens=1)

    async def talk(engine: TransformersEngine, plain: TransformersEngine) -> None:
        asked = [replace(ask("base", "a", i), sampling=plan) for i in range(6)]
        first = await asyncio.gather(*map(engine.act, asked))
        assert len({turn.token_ids[0] for turn in first}) > 1
        for turn in first:
            more = ask("base", "go on", 9, turn)
            a, b = await engine.act(more), await plain.act(more)
            assert a.token_ids == b.token_ids
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)

    asyncio.run(
        talk(TransformersEngine(policies, graphs=True), TransformersEngine(policies, graphs=False))
    )


def test_slots_are_free_again_after_a_batch_that_failed() -> None:
    policies = load_policies("nano", LearnConfig(weights="full"), device=DEVICE)
    engine = TransformersEngine(policies, graphs=True)
    with policies.using("base") as model:
        voice = engine._voice(model)
    assert isinstance(voice, Speaker)
    decode = voice._decode
    sizes: list[int] = []

    def narrow(rows: list[Row]) -> None:
        sizes.append(len(rows))
        if len(rows) > 1:
            raise torch.OutOfMemoryError("too many")
        decode(rows)

    voice._decode = narrow  # type: ignore[method-assign]

    async def both() -> list[Turn]:
        return await asyncio.gather(*[engine.act(ask("base", text, 0)) for text in ("a", "bc")])

    assert [len(turn.token_ids) for turn in asyncio.run(both())] == [3, 3]
    assert sizes == [2, 1, 1]


def test_a_cache_that_does_not_fit_is_made_smaller_and_rows_take_turns(monkeypatch) -> None:
    policies = load_policies("nano", LearnConfig(weights="full"), device=DEVICE)

    async def all_at_once(engine: TransformersEngine) -> list[Turn]:
        asked = [ask("base", text, i) for i, text in enumerate(("a", "bc", "d", "ef"))]
        return await asyncio.gather(*map(engine.act, asked))

    plain = asyncio.run(all_at_once(TransformersEngine(policies, graphs=False)))
    asked = memory_for(monkeypatch, 3)
    fast = asyncio.run(all_at_once(TransformersEngine(policies, graphs=True)))
    assert [t.token_ids for t in fast] == [t.token_ids for t in plain]
    assert asked == [5, 3], "four rows and a spare one, then two"


def test_slots_without_any_memory_can_be_asked_again(monkeypatch) -> None:
    """An allocation that failed leaves nothing behind that looks like a cache."""
    policies = load_policies("nano", LearnConfig(weights="full"), device=DEVICE)
    engine = TransformersEngine(policies, graphs=True)

    async def one(text: str) -> Turn:
        return await engine.act(ask("base", text, 0))

    before = asyncio.run(one("a"))
    with monkeypatch.context() as patch:
        memory_for(patch, 0)
        for _ in range(2):
            with pytest.raises(VoidGame, match="one request alone does not fit"):
                asyncio.run(one("b" * 200))
    assert engine._slots is not None and engine._slots.count == engine._slots.places == 0
    assert asyncio.run(one("a")).token_ids == before.token_ids


def test_no_position_lies_past_the_rotary_table(monkeypatch) -> None:
    """Of a conversation that fills the context, beside a shorter one that goes on: neither padding
    nor the steps after a row's end may look behind the table."""
    policies = load_policies("nano", LearnConfig(weights="full"), device=DEVICE)
    policies.config.max_position_embeddings = limit = 64
    furthest: list[tuple[int, int]] = []
    rotate = kernels.rotate

    def noted(qkv, rope, position, *rest):
        furthest.append((int(position.max()), len(rope[0])))
        return rotate(qkv, rope, position, *rest)

    monkeypatch.setattr(kernels, "rotate", noted)

    async def talk(engine: TransformersEngine) -> list[Turn]:
        first = [await engine.act(ask("base", "a" * n, 0)) for n in (33, 1)]
        room = limit - 3 - len(engine.chat.prompt_ids(ask("base", "", 0, first[0])))
        more = [
            engine.act(replace(ask("base", "b" * n, i, turn), sampling=Sampling(0.0, max_tokens=3)))
            for i, (turn, n) in enumerate(zip(first, (room, room + 20), strict=True))
        ]
        return [*first, *await asyncio.gather(*more)]

    turns = asyncio.run(talk(TransformersEngine(policies, graphs=True)))
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False)))
    assert max(len(t.prompt_ids) for t in turns) + 3 == limit, "the context is full"
    assert [t.token_ids for t in turns] == [t.token_ids for t in plain]
    assert all(position < length for position, length in furthest)


@pytest.mark.parametrize("graphs", [True, None])
def test_a_row_that_is_longer_than_the_context_is_refused(graphs) -> None:
    policies = load_policies("nano", LearnConfig(weights="full"), device=DEVICE)
    policies.config.max_position_embeddings = 64
    with policies.using("base") as model:
        voice = TransformersEngine(policies, graphs=graphs)._voice(model)
    assert voice is not None
    row = Row(("base", 0), [5] * 60, Sampling(max_tokens=5), 0)
    with pytest.raises(ValueError, match="need 65 positions, and the model has 64"):
        voice.speak([row], [None], {1})
