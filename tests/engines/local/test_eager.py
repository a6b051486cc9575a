"""The engine on a CPU against the plain way, token by token: what is kept between turns changes
nothing but the time, is bounded, and is never met by chance."""

import asyncio
import logging
from dataclasses import replace

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from sparring.core.types import Request, Sampling, Turn, VoidGame
from sparring.engines.local import engine as engine_module
from sparring.engines.local.blocks import Kept
from sparring.engines.local.eager import AHEAD
from sparring.engines.local.engine import TransformersEngine
from sparring.models.loading import nano_tokenizer
from sparring.models.policies import FullPolicies

OPENINGS = ["a", "X:01X3O5678", "tell me more, tell me more", "b", "a", "and so on"]


def ask(text: str, number: int, policy: str = "main", previous=None, **sampling) -> Request:
    options = {"max_tokens": 6, **sampling}
    messages = [{"role": "user", "content": text}]
    return Request("s", policy, messages, Sampling(**options), number, (number,), previous)


async def together(engine: TransformersEngine, requests: list[Request]) -> list[Turn]:
    return list(await asyncio.gather(*map(engine.act, requests)))


async def talk(engine: TransformersEngine, turns: int, names=("main",), **sampling) -> list[Turn]:
    """As many conversations as there are openings, each of so many turns; all turns, in order."""
    said: list[Turn] = []
    last: list[Turn | None] = [None] * len(OPENINGS)
    for t in range(turns):
        last = await together(
            engine,
            [
                ask(text if not t else f"go on {t}", i, names[i % len(names)], last[i], **sampling)
                for i, text in enumerate(OPENINGS)
            ],
        )
        said += last
    return said


def same(some: list[Turn], others: list[Turn]) -> None:
    for a, b in zip(some, others, strict=True):
        assert (a.prompt_ids, a.token_ids, a.finish) == (b.prompt_ids, b.token_ids, b.finish)
        assert a.logprobs == pytest.approx(b.logprobs, abs=2e-5)


def digits(turns: list[Turn]) -> list[tuple[list[int], list[float]]]:
    return [(t.token_ids, t.logprobs) for t in turns]


class Reading:
    """Counts the tokens that an engine's voice is made to read."""

    def __init__(self, engine: TransformersEngine, name: str = "main") -> None:
        self.tokens = 0
        with engine.policies.using(name) as model:
            voice = engine._voice(model)
        self._speak, voice._pass = voice._pass, self._count

    def _count(self, block, ids_RT, *rest) -> torch.Tensor:
        self.tokens += ids_RT.numel()
        return self._speak(block, ids_RT, *rest)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.7}])
def test_conversations_go_as_the_plain_way_has_them(policies, sampling):
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 3, **sampling))
    same(asyncio.run(talk(TransformersEngine(policies), 3, **sampling)), plain)


@pytest.mark.parametrize("max_tokens", [1, 2, AHEAD + 40])
def test_replies_of_any_length_can_be_gone_on_with(make_policies, max_tokens):
    """One token: equal prompts have one place. Many: the block grows while they are said."""
    policies = make_policies("full")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2, max_tokens=max_tokens))
    same(asyncio.run(talk(TransformersEngine(policies), 2, max_tokens=max_tokens)), plain)


def test_adapters_share_a_batch_and_keep_their_voices(make_policies):
    policies = make_policies("lora", ("main", "rival"), spread=0.1)
    names = ("main", "rival", "base")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2, names))
    engine = TransformersEngine(policies)
    batches: list[int] = []
    generate = engine._generate
    engine._generate = lambda batch: batches.append(len(batch)) or generate(batch)
    same(asyncio.run(talk(engine, 2, names)), plain)
    assert batches == [len(OPENINGS)] * 2


def test_rows_that_end_early_leave_what_they_said_to_go_on_with(make_policies):
    """They change places with those who still speak."""
    policies = make_policies("full")

    async def uneven(engine: TransformersEngine) -> list[Turn]:
        lengths = (1, 9, 2, 7, 3, 8)
        first = await together(
            engine, [ask(t, i, max_tokens=lengths[i]) for i, t in enumerate(OPENINGS)]
        )
        return first + await together(
            engine, [ask("go on", 9 + i, previous=turn) for i, turn in enumerate(first)]
        )

    plain = asyncio.run(uneven(TransformersEngine(policies, graphs=False)))
    same(asyncio.run(uneven(TransformersEngine(policies))), plain)


def test_a_turn_reads_only_what_is_new(make_policies):
    policies = make_policies("full")
    engine = TransformersEngine(policies)
    first = asyncio.run(together(engine, [ask("tell me " * 40, 0)]))[0]
    reading = Reading(engine)
    second = asyncio.run(together(engine, [ask("go on", 1, previous=first, max_tokens=1)]))[0]
    new = len(second.prompt_ids) - len(first.prompt_ids) - len(first.token_ids)
    assert reading.tokens == new + 1, "the last token of a reply was said, but never read"
    assert new + 1 < 20 < len(first.prompt_ids)


def test_forks_of_a_conversation_all_find_it(make_policies):
    engine = TransformersEngine(make_policies("full"))
    first = asyncio.run(together(engine, [ask("tell me " * 40, 0)]))[0]
    reading = Reading(engine)
    forks = [ask(f"why {i}?", i, previous=first, max_tokens=1) for i in range(5)]
    asyncio.run(together(engine, forks))
    assert reading.tokens < 5 * 20


def test_nothing_is_met_by_chance(make_policies):
    """The same words in another game: they are read anew, so that what was said before, in a run
    that was not resumed or in an evaluation, cannot move a digit."""
    policies = make_policies("full")
    fresh = asyncio.run(talk(TransformersEngine(policies), 2))
    engine = TransformersEngine(policies)
    asyncio.run(talk(engine, 2))
    # A batch of another shape leaves the same words with other digits behind.
    asyncio.run(together(engine, [ask(text, i) for i, text in enumerate(OPENINGS[:3])]))
    assert digits(asyncio.run(talk(engine, 2))) == digits(fresh)
    copied = replace(fresh[0], prompt_ids=list(fresh[0].prompt_ids))
    reading = Reading(engine)
    asyncio.run(together(engine, [ask("go on", 1, previous=copied, max_tokens=1)]))
    assert reading.tokens > len(copied.prompt_ids)


def test_weights_put_in_the_place_of_others_are_seen_when_they_are_published(make_policies):
    """What speaks is a view of the model's weights, for as long as nobody replaces them."""
    policies = make_policies("full")
    engine = TransformersEngine(policies)
    asyncio.run(together(engine, [ask("tell me", 0)]))
    for parameter in policies.parameters("main").values():
        parameter.data = parameter.data + 0.05 * torch.randn(parameter.shape)
    policies.set_version("main", 1)
    engine.publish()
    plain = asyncio.run(together(TransformersEngine(policies, graphs=False), [ask("tell me", 0)]))
    same(asyncio.run(together(engine, [ask("tell me", 0)])), plain)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_weights_that_moved_read_everything_anew(make_policies, kind):
    policies = make_policies(kind)
    engine = TransformersEngine(policies)
    first = asyncio.run(together(engine, [ask("tell me", 0)]))
    with torch.no_grad():
        for parameter in policies.parameters("main").values():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    policies.set_version("main", 1)
    asked = [ask("go on", 1, previous=first[0])]
    plain = asyncio.run(together(TransformersEngine(policies, graphs=False), asked))
    same(asyncio.run(together(engine, asked)), plain)


def test_learning_lets_go_of_what_was_said_unless_games_are_under_way(make_policies):
    engine = TransformersEngine(make_policies("full"))

    async def learn_between(busy: bool) -> int:
        await talk(engine, 1)
        assert engine._kept.blocks
        if busy:
            with engine.outside():
                async with engine.learning():
                    return len(engine._kept.blocks)
        async with engine.learning():
            return len(engine._kept.blocks)

    assert asyncio.run(learn_between(busy=True)) > 0
    assert asyncio.run(learn_between(busy=False)) == 0
    asyncio.run(talk(engine, 1))
    engine.publish()
    assert engine._kept.blocks == []


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(make_policies):
    policies = make_policies("full")
    engine = TransformersEngine(policies)
    first = asyncio.run(together(engine, [ask("tell me", 0)]))[0]
    size = engine._kept.blocks[0].bytes
    bounded = TransformersEngine(policies, cache_gb=2 * 3.5 * size / 2**30)
    turns = [asyncio.run(together(bounded, [ask("tell me", i)]))[0] for i in range(6)]
    assert len(bounded._kept.blocks) == 3
    reading = Reading(bounded)
    asyncio.run(together(bounded, [ask("go on", 7, previous=turns[5], max_tokens=1)]))
    short, reading.tokens = reading.tokens, 0
    asyncio.run(together(bounded, [ask("go on", 7, previous=turns[0], max_tokens=1)]))
    assert short < len(first.prompt_ids) + len(first.token_ids) < reading.tokens


def test_a_conversation_that_went_on_leaves_its_old_place(make_policies):
    engine = TransformersEngine(make_policies("full"))
    asyncio.run(talk(engine, 4))
    assert len(engine._kept.blocks) == 1


def test_a_batch_larger_than_the_cache_is_spoken_in_parts(make_policies):
    """And a prompt longer than all of it has a part of its own."""
    policies = make_policies("full")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2))
    engine = TransformersEngine(policies, cache_gb=2 * 100 * 1536 / 2**30)  # a hundred tokens
    parts: list[int] = []
    with policies.using("main") as model:
        voice = engine._voice(model)
    speak = voice._speak
    voice._speak = lambda rows, places: parts.append(len(rows)) or speak(rows, places)
    same(asyncio.run(talk(engine, 2)), plain)
    assert len(parts) > 2 and sum(parts) == 2 * len(OPENINGS)
    assert len(asyncio.run(together(engine, [ask("x" * 500, 0)]))[0].token_ids) == 6
    assert sum(block.bytes for block in engine._kept.blocks) <= engine._kept.most


def make(kind: str) -> FullPolicies:
    common = {"vocab_size": 261, "eos_token_id": 1, "bos_token_id": None, "pad_token_id": 0}
    shape = {
        **common,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }
    torch.manual_seed(0)
    if kind == "qwen2":  # biases on queries, keys and values
        model = Qwen2ForCausalLM(Qwen2Config(**shape))
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.q_proj.bias)
            torch.nn.init.normal_(layer.self_attn.k_proj.bias)
    elif kind == "qwen3":  # norms of queries and keys, and heads of a width of their own
        model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=32))
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.q_norm.weight)
            torch.nn.init.normal_(layer.self_attn.k_norm.weight)
    else:
        model = GPT2LMHeadModel(GPT2Config(**common, n_embd=64, n_layer=2, n_head=4))
    return FullPolicies(model, nano_tokenizer())


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gpt2"])
def test_other_families(kind, caplog):
    """Qwen's shapes as the plain way has them; any other goes that way, and the log says so."""
    policies = make(kind)
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2, ("base",)))
    caplog.clear()
    engine_module._say.cache_clear()  # it is said once
    with caplog.at_level(logging.INFO):
        same(asyncio.run(talk(TransformersEngine(policies), 2, ("base",))), plain)
    if kind == "gpt2":
        assert "transformers' own forward pass: gpt2 is not one of llama" in caplog.text
    else:
        assert "step by step" in caplog.text


class Narrow:
    """A device that has room for so many rows: more run out of memory halfway."""

    def __init__(self, engine: TransformersEngine, most: int, error: RuntimeError) -> None:
        self.most, self.error, self.sizes = most, error, []
        with engine.policies.using("main") as model:
            voice = engine._voice(model)
        self._speak, voice._pass = voice._pass, self._try

    def _try(self, block, ids_RT, *rest) -> torch.Tensor:
        if ids_RT.shape[1] == 1 and len(ids_RT) > self.most:  # the prompts have been read
            self.sizes.append(len(ids_RT))
            raise self.error
        return self._speak(block, ids_RT, *rest)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_batch_that_runs_out_of_memory_goes_in_halves(make_policies, error, caplog):
    policies = make_policies("full")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2))
    engine = TransformersEngine(policies)
    narrow = Narrow(engine, 2, error)
    same(asyncio.run(talk(engine, 2)), plain)
    assert narrow.sizes[:2] == [6, 3]
    assert "a batch of 6 requests does not fit the memory: it goes in halves" in caplog.text


def test_a_request_that_does_not_fit_alone_fails_by_itself(make_policies):
    engine = TransformersEngine(make_policies("full"))
    Narrow(engine, 0, torch.OutOfMemoryError("9 GiB"))

    async def both() -> list[Turn | BaseException]:
        asked = [ask("a", 0), ask("b", 1, max_tokens=1)]
        return await asyncio.gather(*map(engine.act, asked), return_exceptions=True)

    alone, other = asyncio.run(both())
    assert isinstance(alone, VoidGame)
    assert "one request alone does not fit the device's memory: 9 GiB" in str(alone)
    assert isinstance(other, Turn) and len(other.token_ids) == 1


def test_another_error_is_not_taken_for_memory(make_policies):
    engine = TransformersEngine(make_policies("full"))
    narrow = Narrow(engine, 0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        asyncio.run(together(engine, [ask("a", 0), ask("b", 1)]))
    assert len(narrow.sizes) == 1


def test_an_adapter_of_another_rank_is_refused_and_nothing_moves(make_policies):
    from sparring.models.loading import load_model
    from sparring.models.policies import LoraPolicies

    policies = make_policies("lora", ("main", "rival"))
    wide = LoraPolicies(*load_model("nano"), r=8, alpha=8)
    wide.add("main")
    engine = TransformersEngine(policies)
    before = asyncio.run(talk(engine, 1, ("main", "rival")))
    with pytest.raises(ValueError, match=r"lora_A.* is \(8, 192\) there and \(4, 192\) here"):
        policies.load("main", wide.state("main"))
    assert digits(asyncio.run(talk(engine, 1, ("main", "rival")))) == digits(before)


def test_blocks_too_large_to_keep_push_nothing_out():
    from sparring.engines.local.blocks import Place, make_block
    from sparring.engines.local.rows import Row

    kept = Kept(most=1000)
    small, large = (make_block((1, 1, 1), 1, places, torch.zeros(1)) for places in (100, 1000))
    row = Row(("main", 0), [1, 2], Sampling(), 0)
    kept.add(small, [Place(row.prompt, row.policy, small, row, 2)])
    kept.add(large, [Place([3], row.policy, large, row, 2)])
    assert kept.blocks == [small]
