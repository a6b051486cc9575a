"""The engine over its paged cache against transformers' own forward pass, token by token: what is
cached, who else is served and how little memory there is change nothing but the time."""

import asyncio
import logging

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
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.rows import Row
from sparring.engines.local.runner import Drawn, Runner
from sparring.engines.local.scheduler import Span
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


def runner_of(engine: TransformersEngine, name: str = "main") -> Runner:
    runner = engine._runner(name)
    assert isinstance(runner, Runner)
    return runner


class Reading:
    """Counts the tokens that an engine computes."""

    def __init__(self, engine: TransformersEngine) -> None:
        self.tokens = 0
        runner = runner_of(engine)
        self._read, self._decode = runner._read, runner._decode
        runner._read, runner._decode = self._count_read, self._count_decode

    def _count_read(self, spans: list[Span]) -> list[Drawn]:
        self.tokens += sum(span.end - span.start for span in spans)
        return self._read(spans)

    def _count_decode(self, rows: list[Row], steps: int) -> None:
        self.tokens += len(rows)
        self._decode(rows, steps)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.7}])
def test_conversations_go_as_the_plain_way_has_them(policies, sampling):
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 3, **sampling))
    same(asyncio.run(talk(TransformersEngine(policies), 3, **sampling)), plain)


@pytest.mark.parametrize("max_tokens", [1, 2, 100])
def test_replies_of_any_length_can_be_gone_on_with(make_policies, max_tokens):
    """One token: equal prompts are read once. Many: blocks are added while they are drawn."""
    policies = make_policies("full")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2, max_tokens=max_tokens))
    same(asyncio.run(talk(TransformersEngine(policies), 2, max_tokens=max_tokens)), plain)


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


def test_a_reply_that_ends_amid_a_chunk_of_steps_is_gone_on_with(make_policies, monkeypatch):
    """The steps that the others still take leave its last position as it is."""
    policies = make_policies("full", spread=0.3)

    async def uneven(steps: int) -> list[Turn]:
        monkeypatch.setattr(Runner, "_steps", lambda self: steps)
        engine = TransformersEngine(policies)
        first = await together(
            engine, [ask(t, i, max_tokens=2 + 7 * (i % 2)) for i, t in enumerate(OPENINGS)]
        )
        return first + await together(
            engine, [ask("go on", 9 + i, previous=turn) for i, turn in enumerate(first)]
        )

    assert digits(asyncio.run(uneven(8))) == digits(asyncio.run(uneven(1)))


def test_a_prompt_of_no_tokens_is_void_and_nobody_else(make_policies):
    engine = TransformersEngine(make_policies("full"))

    async def both() -> list[Turn | BaseException]:
        asked = [engine.act_on(ask("a", 0), []), engine.act(ask("b", 1))]
        return await asyncio.gather(*asked, return_exceptions=True)

    empty, other = asyncio.run(both())
    assert isinstance(empty, VoidGame) and "has no tokens" in str(empty)
    assert isinstance(other, Turn) and other.token_ids


def test_a_reply_of_less_than_no_tokens_is_refused_and_nobody_else(make_policies):
    """A game may have spent its tokens, and more: it was waited for without end."""
    engine = TransformersEngine(make_policies("full"))

    async def both() -> list[Turn | BaseException]:
        asked = [engine.act(ask("a", number, max_tokens=n)) for number, n in enumerate((-1, 0, 3))]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 60)

    less, empty, other = asyncio.run(both())
    assert isinstance(less, ValueError) and "max_tokens is -1" in str(less)
    assert isinstance(empty, Turn) and (empty.token_ids, empty.finish) == ([], "length")
    assert isinstance(other, Turn) and len(other.token_ids) == 3


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


def test_what_is_cached_changes_no_digit(make_policies):
    """Conversations after others with the same words, of which all, some or nothing is cached."""
    policies = make_policies("full")
    fresh = digits(asyncio.run(talk(TransformersEngine(policies), 2)))
    engine = TransformersEngine(policies)
    asyncio.run(together(engine, [ask(text, i) for i, text in enumerate(OPENINGS[:3])]))
    assert digits(asyncio.run(talk(engine, 2))) == fresh
    reading = Reading(engine)
    assert digits(asyncio.run(talk(engine, 2))) == fresh
    whole, reading.tokens = reading.tokens, 0
    engine.publish()
    assert digits(asyncio.run(talk(engine, 2))) == fresh
    assert whole < reading.tokens


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_request_has_the_same_digits_alone_and_in_any_company(make_policies, kind):
    """Prompts and replies of unlike lengths, one of them longer than a chunk of attention."""
    policies = make_policies(kind, ("main", "rival"), spread=0.1)
    texts = [*OPENINGS, "long " * 60]

    def asked(i: int) -> Request:
        return ask(texts[i], i, ("main", "rival", "base")[i % 3], max_tokens=3 + 5 * (i % 4))

    async def staggered(engine: TransformersEngine) -> list[Turn]:
        waiting = []
        for i in range(len(texts)):
            waiting.append(asyncio.ensure_future(engine.act(asked(i))))
            await asyncio.sleep(0.003 * (i % 3))
        return await asyncio.gather(*waiting)

    async def at_once(engine: TransformersEngine) -> list[Turn]:
        return await together(engine, list(map(asked, range(len(texts)))))

    alone = [
        asyncio.run(together(TransformersEngine(policies), [asked(i)]))[0]
        for i in range(len(texts))
    ]
    for way in (at_once, staggered):
        assert digits(asyncio.run(way(TransformersEngine(policies)))) == digits(alone)
    few = TransformersEngine(policies, max_batch=2)
    assert digits(asyncio.run(at_once(few))) == digits(alone)


def test_a_finished_game_does_not_wait_for_the_longest_reply(make_policies):
    """Its next turn begins while another's first is still being drawn."""
    engine = TransformersEngine(make_policies("full"))
    ended: list[str] = []

    async def game(name: str, turns: int, tokens: int) -> None:
        last = None
        for _ in range(turns):
            last = await engine.act(ask("go", 1, previous=last, max_tokens=tokens))
        ended.append(name)

    async def both() -> None:
        await asyncio.gather(game("long", 1, 200), game("short", 4, 3))

    asyncio.run(both())
    assert ended == ["short", "long"]


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


def cached(engine: TransformersEngine) -> int:
    """Blocks that hold something that may be found again."""
    return sum(len(runner.cache._nodes) for runner in engine._all_runners())


def test_learning_drops_what_was_computed_unless_games_are_under_way(make_policies):
    engine = TransformersEngine(make_policies("full"))

    async def learn_between(busy: bool) -> int:
        await talk(engine, 1)
        assert cached(engine)
        if busy:
            with engine.outside():
                async with engine.learning():
                    return cached(engine)
        async with engine.learning():
            return cached(engine)

    assert asyncio.run(learn_between(busy=True)) > 0
    assert asyncio.run(learn_between(busy=False)) == 0
    asyncio.run(talk(engine, 1))
    engine.publish()
    assert cached(engine) == 0


BLOCK_GB = 32 * 1536 / 2**30  # what a block of nano takes


def test_a_cache_that_holds_few_rows_changes_no_digit(make_policies):
    """Rows make room for others in the middle of their replies, and go on later."""
    policies = make_policies("full")
    free = digits(asyncio.run(talk(TransformersEngine(policies), 2, max_tokens=70)))
    engine = TransformersEngine(policies, cache_gb=13 * BLOCK_GB)
    runner, preempted = runner_of(engine), list[int]()
    preempt = runner.scheduler._preempt
    runner.scheduler._preempt = lambda: preempted.append(1) or preempt()
    assert digits(asyncio.run(talk(engine, 2, max_tokens=70))) == free
    assert preempted and runner.cache.size <= 13


def test_a_request_larger_than_the_whole_cache_fails_by_itself(make_policies):
    engine = TransformersEngine(make_policies("full"), cache_gb=9 * BLOCK_GB)

    async def three() -> list[Turn | BaseException]:
        asked = [ask("a", 0), ask("x" * 300, 1), ask("b", 2)]
        return await asyncio.gather(*map(engine.act, asked), return_exceptions=True)

    first, large, last = asyncio.run(three())
    assert isinstance(large, VoidGame)
    assert "a reply of up to 6 does not fit: the cache has 256 positions" in str(large)
    assert isinstance(first, Turn) and isinstance(last, Turn)


def test_a_cache_that_cannot_grow_serves_with_what_it_has(make_policies, monkeypatch, caplog):
    policies = make_policies("full")
    free = digits(asyncio.run(talk(TransformersEngine(policies), 1, max_tokens=70)))
    engine = TransformersEngine(policies)
    runner = runner_of(engine)
    zeros = torch.zeros

    def scarce(shape, *rest, **options):
        if isinstance(shape, tuple) and len(shape) == 6 and shape[3] > 9:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return zeros(shape, *rest, **options)

    monkeypatch.setattr("sparring.engines.local.cache_tensors.FIRST_BLOCKS", 8)
    with torch.inference_mode():
        assert runner.memory.grow(8)
    monkeypatch.setattr(torch, "zeros", scarce)
    assert digits(asyncio.run(talk(engine, 1, max_tokens=70))) == free
    assert runner.cache.size == 9 and "no memory for a cache of" in caplog.text

    async def too_long() -> Turn:
        return await engine.act(ask("x" * 300, 1))

    with pytest.raises(VoidGame, match="no memory is left for a larger cache"):
        asyncio.run(too_long())


def make(kind: str, head_dim: int = 32) -> FullPolicies:
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
        model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=head_dim))
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
        assert "plain torch over a paged cache" in caplog.text
