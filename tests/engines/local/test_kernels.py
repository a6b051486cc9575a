"""Triton's kernels against the same pieces in plain torch, and the engine with them against the one
without: on a GPU as compiled, elsewhere in Triton's interpreter."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

import pytest
import torch

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton looks
pytest.importorskip("triton", reason="triton is not installed (it comes with torch for CUDA)")

from sparring.core.types import Request, Sampling, Turn  # noqa: E402
from sparring.engines.local import dependent_launch, kernels, narrow, torch_ops  # noqa: E402
from sparring.engines.local.decoder import Layer  # noqa: E402
from sparring.engines.local.engine import TransformersEngine  # noqa: E402
from sparring.engines.local.paged_cache import BLOCK  # noqa: E402
from sparring.engines.local.pages import CHUNK, Pages, reading  # noqa: E402
from sparring.models.policies import load_policies  # noqa: E402
from sparring.run.config import LearnConfig  # noqa: E402

DEVICE = torch.device("cuda" if CUDA else "cpu")
CPU = torch.device("cpu")
Q, K, D = 6, 2, 48
LONG = CHUNK + 70  # positions of the longest row: more than one chunk


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def on(device: torch.device, thing: Any) -> Any:
    if isinstance(thing, torch.Tensor):
        return thing.to(device)
    if isinstance(thing, tuple):
        return tuple(on(device, part) for part in thing)
    if isinstance(thing, Pages | Layer):
        return replace(thing, **{k: on(device, v) for k, v in vars(thing).items()})
    return thing


def rope(width: int = D) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.outer(torch.arange(LONG).float(), 100.0 ** (-torch.arange(0, width, 2) / width))
    both = torch.cat([angle, angle], -1)
    return both.cos(), both.sin()


def layer(**options: Any) -> Layer:
    nothing: Any = None
    plain = dict.fromkeys(Layer.__dataclass_fields__, nothing)
    return Layer(**{**plain, "window": 0, "norm": 0, "rope": rope(), **options})


def _decoding(position_B: torch.Tensor, table_BW: torch.Tensor, longest: int) -> Pages:
    """One token for each row."""
    each = torch.arange(len(position_B), device=position_B.device)
    return Pages(position_B, each, table_BW, each, each, torch.ones_like(each), 1, longest)


def some_pages(spans: list[tuple[int, int]], size: int = 0, tile: int = 4) -> tuple[Pages, int]:
    """Rows with blocks in no order, and how many blocks there are."""
    order = torch.randperm(90, generator=torch.Generator().manual_seed(3)).add(1).tolist()
    rows, used = [], 0
    for start, end in spans:
        count = -(-end // BLOCK)
        rows.append((order[used : used + count], start, end))
        used += count
    total = sum(end - start for start, end in spans)
    return reading(rows, size or total, tile, CPU), 91


def cache(blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    return noise(K, blocks, BLOCK, D, seed=1), noise(K, blocks, BLOCK, D, seed=2)


@pytest.mark.parametrize("norm", [0, 1, 2])
def test_norm_adds_first_and_leaves_the_sum(norm: int) -> None:
    x, delta, post, weight = noise(5, 192), noise(5, 192, seed=1), noise(192), noise(192, seed=2)
    for more, after, by in ((delta, None, weight), (delta, post, None), (None, None, weight)):
        theirs, ours = x.clone(), on(DEVICE, x.clone())
        expected = torch_ops.add_norm(theirs, more, after, by, 1e-6, norm)
        found = kernels.add_norm(
            ours, on(DEVICE, more), on(DEVICE, after), on(DEVICE, by), 1e-6, norm
        )
        torch.testing.assert_close(ours.cpu(), theirs)
        torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"head_norms": (noise(D, seed=3), noise(D, seed=4))},
        {"head_norms": (noise(D, seed=3), noise(D, seed=4)), "norm": 2, "rope": rope(32)},
        {"rope": None},
    ],
    ids=["plain", "head norms", "part of the width", "no rotation"],
)
def test_queries_turn_and_keys_and_values_land_in_their_blocks(options: dict[str, Any]) -> None:
    pages, blocks = some_pages([(0, 3), (63, 70), (31, 33)], 16)
    qkv, mine, theirs = noise(16, (Q + 2 * K) * D), layer(**options), cache(blocks)
    ours = on(DEVICE, tuple(t.clone() for t in theirs))
    expected = torch_ops.rotate(qkv, mine, theirs, pages, 1e-6)
    found = kernels.rotate(on(DEVICE, qkv), on(DEVICE, mine), ours, on(DEVICE, pages), 1e-6)
    torch.testing.assert_close(found.cpu()[:12], expected[:12])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.cpu()[:, 1:], b[:, 1:])  # padding is written to the first


@pytest.mark.parametrize("window", [0, 40])
def test_attention_sees_its_own_row_up_to_its_own_position(window: int) -> None:
    pages, blocks = some_pages([(0, 5), (60, 67), (LONG - 6, LONG)])
    q, mine, both = noise(18, Q, D), layer(window=window), cache(blocks)
    expected = torch_ops.attend(q, mine, both, pages, D**-0.5)
    found = kernels.attend(*(on(DEVICE, x) for x in (q, mine, both, pages)), D**-0.5)
    torch.testing.assert_close(found.cpu(), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if CUDA else [torch.float32])
def test_reading_and_decoding_give_a_position_the_same_bits(dtype: torch.dtype) -> None:
    """In a tile with its neighbours, alone, and in a pass where another row is long."""
    pages, blocks = some_pages([(0, 5), (60, 67), (LONG - 6, LONG)], tile=16 if CUDA else 4)
    q, both = noise(18, Q, D).to(DEVICE, dtype), on(DEVICE, cache(blocks))
    both = tuple(t.to(dtype) for t in both)
    whole = kernels.attend(q, layer(), both, on(DEVICE, pages), D**-0.5)
    for token in (0, 4, 7, 11, 12, 17):
        row = int(pages.row_N[token])
        at = pages.position_N[token : token + 1]
        one = _decoding(at, pages.table_BW[row : row + 1], int(at) + 1)
        alone = kernels.attend(q[token : token + 1], layer(), both, on(DEVICE, one), D**-0.5)
        if CUDA:
            assert torch.equal(alone[0], whole[token])
        else:  # numpy's products, the interpreter's, round a row by its place on some processors
            torch.testing.assert_close(alone[0], whole[token], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("gelu", [False, True])
def test_gate_times_up(gelu: bool) -> None:
    both = noise(3, 2 * 640)
    found = kernels.gate(both.to(DEVICE), gelu)
    torch.testing.assert_close(found.cpu(), torch_ops.gate(both, gelu))


def test_draws_follow_the_tempered_softmax() -> None:
    rows = 20_000 if CUDA else 200
    logits = noise(1, 8).repeat(rows, 1).to(DEVICE)
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


def test_draws_reach_every_part_of_a_large_vocabulary() -> None:
    """Logits that leave a handful of tokens, at the ends of parts and of the vocabulary."""
    size, rows = 40_000, 64
    likely = [0, 2047, 2048, 6143, 6144, 20_000, size - 1]
    logits = torch.full((rows, size), -50.0)
    logits[:, likely] = 0.0
    seeds = torch.arange(rows, device=DEVICE)
    heat = torch.ones(rows, device=DEVICE)
    token, logprob = kernels.draw(logits.to(DEVICE), heat, seeds, torch.zeros_like(seeds))
    assert set(token.tolist()) == set(likely)
    torch.testing.assert_close(logprob.cpu(), torch.full((rows,), 7.0).log().neg())


@pytest.mark.parametrize("cap", [None, 3.0])
def test_greedy_takes_the_likeliest(cap: float | None) -> None:
    logits = noise(4, 5000)
    zeros = torch.zeros(4, dtype=torch.int64)
    plan = (torch.zeros(4), zeros, zeros)
    expected, theirs = torch_ops.draw(logits, *plan, 0.5, cap)
    token, logprob = kernels.draw(logits.to(DEVICE), *(x.to(DEVICE) for x in plan), 0.5, cap)
    assert token.tolist() == expected.tolist()
    torch.testing.assert_close(logprob.cpu(), theirs)


def ask(policy: str, text: str, order: int, previous: Turn | None = None, n: int = 3) -> Request:
    plan = Sampling(temperature=0.0, max_tokens=n)
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
    more = [
        engine.act(ask(turn.policy, "go on", 9 + i, turn, 2 + 9 * (i == 1)))
        for i, turn in enumerate(first)
    ]
    return [*first, *await asyncio.gather(*more)]


def test_rows_that_have_drawn_all_they_may_stay_where_they_are() -> None:
    """With the token that stands there, though steps go on for the others."""
    left, steps = [1, 2, 9], 4

    def end_of(advance: Any, device: torch.device) -> list[Any]:
        names = {"token": [7, 8, 9], "position": [3, 4, 5], "drawn": [1, 1, 1], "left": left}
        state = {name: torch.tensor(values, device=device) for name, values in names.items()}
        turn = torch.zeros(3, dtype=torch.int64, device=device)
        tokens = torch.zeros(steps, 3, dtype=torch.int64, device=device)
        logprobs = torch.zeros(steps, 3, device=device)
        for step in range(steps):
            new = torch.arange(3, device=device) + 10 * (step + 1)
            advance(new, -new.float(), state, turn, tokens, logprobs)
        return [state[name].tolist() for name in names] + [tokens.tolist(), logprobs.tolist()]

    ended = end_of(torch_ops.advance, CPU)
    assert ended[:2] == [[7, 11, 42], [3, 5, 9]]
    assert ended == end_of(kernels.advance, DEVICE)


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_kernels_say_what_the_plain_way_says(weights: str) -> None:
    """Two policies and the bare model, each with two conversations of two turns; adapters share
    one batch, and the second turn reads only what is new."""
    config = LearnConfig(weights=weights, lora_r=4)  # type: ignore[arg-type]
    policies = load_policies("nano", config, device=str(DEVICE))
    names = ["main", "other", "base"] if weights == "lora" else ["main"]
    for name in names[:2]:
        policies.add(name)
        with torch.no_grad():
            for key, parameter in policies.parameters(name).items():
                parameter.add_(0.1 * noise(*parameter.shape, seed=len(key)).to(DEVICE))
    plain = asyncio.run(two_turns(TransformersEngine(policies, graphs=False), names))
    fast = asyncio.run(two_turns(TransformersEngine(policies, graphs=True), names))
    for a, b in zip(plain, fast, strict=True):
        assert (a.token_ids, a.finish) == (b.token_ids, b.finish)
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


def test_a_request_has_the_same_bits_alone_and_in_company() -> None:
    policies = load_policies("nano", LearnConfig(weights="full"), device=str(DEVICE))
    texts = ["a", "bc", "tell me more", "x" * (300 if CUDA else 40), "a"]

    async def together(engine: TransformersEngine, numbers: list[int]) -> list[Turn]:
        asked = [replace(ask("base", texts[i], i, n=3 + i), seed=i) for i in numbers]
        for request in asked:
            request.sampling = replace(request.sampling, temperature=1.0)
        return await asyncio.gather(*map(engine.act, asked))

    engine = TransformersEngine(policies, graphs=True)
    engine._runner("base").looks_ahead = True  # type: ignore[union-attr]
    company = asyncio.run(together(engine, list(range(len(texts)))))
    for i in (1, 3):
        fresh = TransformersEngine(policies, graphs=True)
        [alone] = asyncio.run(together(fresh, [i]))
        assert alone.token_ids == company[i].token_ids
        # The interpreter's products are numpy's, whose rows depend on how many there are.
        assert alone.logprobs == (
            company[i].logprobs if CUDA else pytest.approx(company[i].logprobs, abs=1e-5)
        )


@pytest.mark.skipif(not CUDA, reason="captured graphs need a GPU")
def test_bits_in_bfloat16_do_not_depend_on_company_on_a_gpu(monkeypatch) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from sparring.models.loading import nano_tokenizer
    from sparring.models.policies import FullPolicies

    config = Qwen3Config(
        vocab_size=4096, hidden_size=1024, intermediate_size=3072, num_hidden_layers=3,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to("cuda", torch.bfloat16)
    policies = FullPolicies(model, nano_tokenizer())

    def request(i: int) -> Request:
        plan = Sampling(max_tokens=20 + 13 * (i % 7))
        text = "word " * (5 + 41 * (i % 9))
        return Request("s", "base", [{"role": "user", "content": text}], plan, i, (i,))

    async def together(engine: TransformersEngine, numbers: list[int]) -> list[Turn]:
        return await asyncio.gather(*(engine.act(request(i)) for i in numbers))

    company = asyncio.run(together(TransformersEngine(policies), list(range(150))))
    for i in (0, 7, 33, 149):
        [alone] = asyncio.run(together(TransformersEngine(policies), [i]))
        assert (alone.token_ids, alone.logprobs) == (company[i].token_ids, company[i].logprobs)
    # Nor on whether a kernel begins before the one ahead of it has ended.
    assert dependent_launch.launch_early(DEVICE)["EARLY"] == (
        torch.cuda.get_device_capability() >= dependent_launch.HOPPER
    )
    monkeypatch.setattr(dependent_launch, "enabled", False)
    late = asyncio.run(together(TransformersEngine(policies), list(range(150))))
    assert [t.token_ids for t in late] == [t.token_ids for t in company]
    assert [t.logprobs for t in late] == [t.logprobs for t in company]


@pytest.mark.parametrize("rows", narrow.ROWS)
@pytest.mark.parametrize("form", narrow.FORMS, ids=str)
def test_products_of_few_rows(form: narrow.Form, rows: int) -> None:
    dtype = torch.bfloat16 if CUDA else torch.float32  # as they are used: of two bytes on a GPU
    x = noise(rows, 2 * form.depth).to(dtype)
    weight = noise(2 * form.columns, 2 * form.depth, seed=1).to(dtype)
    assert form.fits(weight) and not form.fits(weight[1:]) and not form.fits(weight[:, 1:])
    ours = narrow.product(form, x.to(DEVICE), weight.to(DEVICE))
    expected = (x.float() @ weight.float().T).to(dtype)
    torch.testing.assert_close(ours.cpu(), expected, atol=1e-3, rtol=1e-2 if CUDA else 1e-4)


def test_a_form_is_used_where_it_is_faster_and_has_the_same_bits() -> None:
    swapped, narrower, straight, broken = (
        narrow.Form(True, 64, 128, 5), narrow.Form(True, 64, 64, 8),
        narrow.Form(False, 32, 128, 5), narrow.Form(False, 16, 128, 5),
    )  # fmt: skip
    tried: list[narrow.Form] = []
    refused: set[bool] = set()

    def choice(times: dict[narrow.Form | None, float], differ: bool = False) -> narrow.Form | None:
        def agrees(form: narrow.Form) -> bool:
            tried.append(form)
            if form == broken:
                raise RuntimeError("out of resource: shared memory")
            return not (differ and form.swapped)

        forms = [swapped, narrower, straight, broken]
        return narrow.choose(forms, agrees, times.__getitem__, refused)

    times = {None: 1.0, swapped: 0.7, narrower: 0.6, straight: 0.8}
    assert choice(times) == narrower
    tried.clear()
    assert choice({**times, None: 0.5}) is None
    tried.clear()
    assert choice(times, differ=True) == straight and narrower not in tried
    tried.clear()
    assert choice(times) == straight and tried == [straight, broken], "of another matrix"
