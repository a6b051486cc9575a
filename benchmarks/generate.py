"""Tokens per second of generation with logprobs: this project's engine beside its plain way,
`model.generate` and, where it is installed, vLLM. One run, same prompts, same numbers of new
tokens, prefill and scheduling included; the ways take turns, round by round.

    python benchmarks/generate.py --policy smollm2 --batch 512 --tokens 128 [--json]
    python benchmarks/generate.py --policy smollm2 --batch 16 --tokens 16 --turns 6
    python benchmarks/generate.py --shape qwen3-8b --tokens 256 --lengths varied --vllm DIR
    python benchmarks/generate.py --shape qwen3-1.7b --games --vllm DIR

--shape makes random weights on the device, and writes them to --vllm's folder if that is empty.
With --lengths varied replies are exponential around --tokens, of at most eight times as many. With
--turns every prompt is a game: each turn's prompt extends the last prompt and its reply, all games
step by step; with --games six turns each of varied length, every game at its own pace.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import json
import random
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from sparring.core.types import BASE, Request, Sampling, Turn
from sparring.engines.local.engine import TransformersEngine
from sparring.models.device import choose_device
from sparring.models.loading import nano_tokenizer
from sparring.models.policies import FullPolicies, load_policies
from sparring.run.config import LearnConfig

WORDS = ("seven", "and", "nine", "are", "not", "prime", "but", "odd", "says", "who", "counts")
COMPARED = 32  # greedy replies, and tokens of each
APART = 8  # the other batch size of the control
GAME_TURNS = 6
# Of vLLM's: somewhat fewer than by itself, to start sooner, and as many where batches are small.
CAPTURED = [1, 2, 4, *range(8, 129, 8), *range(144, 257, 16), *range(288, 513, 32)]
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-1.7b": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
                   "num_attention_heads": 16, "num_key_value_heads": 8},
    "qwen3-8b": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                 "num_attention_heads": 32, "num_key_value_heads": 8},
    "smollm2": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
                "num_attention_heads": 9, "num_key_value_heads": 3},
    "tiny": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2},
}  # fmt: skip
Ways = dict[str, Callable[[], int]]
Reply = tuple[list[int], list[int], Any]  # prompt ids, token ids, and what a next turn goes on with
Ask = Callable[[str, int, int, Any], Awaitable[Reply]]  # text, tokens, seed, the turn before


def random_policies(shape: str, device: str, dtype: str) -> Any:
    """Policies of this shape with random weights, made on the device; ids up to 261 are asked."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    options = {**SHAPES[shape], "max_position_embeddings": 8192, "pad_token_id": 0}
    options |= {"bos_token_id": None, "eos_token_id": None}
    options["tie_word_embeddings"] = shape != "qwen3-8b"
    torch.set_default_dtype(getattr(torch, dtype))
    with torch.device(device):
        torch.manual_seed(0)
        if shape.startswith("qwen3"):
            config = Qwen3Config(vocab_size=151936, head_dim=128, **options)
            model: Any = Qwen3ForCausalLM(config)
        else:
            words = 49152 if shape == "smollm2" else 300
            model = LlamaForCausalLM(LlamaConfig(vocab_size=words, **options))
    torch.set_default_dtype(torch.float32)
    return without_end(FullPolicies(model.eval().requires_grad_(False), nano_tokenizer()))


def without_end(policies: Any) -> Any:
    """Policies without an end, so that every way draws the same number of tokens."""
    with policies.using(BASE) as model:
        model.generation_config.eos_token_id = None
    policies.tokenizer.eos_token_id = None
    return policies


def load(args: argparse.Namespace, device: str, dtype: str) -> Any:
    if args.shape:
        return random_policies(args.shape, device, dtype)
    return without_end(
        load_policies(args.policy, LearnConfig(weights="full"), device=device, dtype=dtype)
    )


_calls = itertools.count()


def prompts(count: int, words: int) -> list[str]:
    """Prompts that differ in their first word from each other and from those of any other call, so
    that nothing has been read before: in each round all of them are."""
    call = next(_calls)
    return [
        f"{call}.{i} " + " ".join(WORDS[(i + j) % len(WORDS)] for j in range(words))
        for i in range(count)
    ]


def reply_lengths(args: argparse.Namespace) -> list[list[int]]:
    """Tokens of each turn of each game."""
    rng = random.Random(0)
    turns = GAME_TURNS if args.games else args.turns

    def one() -> int:
        if not args.games and args.lengths == "even":
            return int(args.tokens)
        return max(1, min(8 * args.tokens, int(rng.expovariate(1 / args.tokens))))

    return [[one() for _ in range(turns)] for _ in range(args.batch)]


def by_engine(engine: TransformersEngine, heat: float = 1.0) -> Ask:
    async def ask(text: str, tokens: int, seed: int, previous: Turn | None) -> Reply:
        plan = Sampling(temperature=heat, max_tokens=tokens)
        messages = [{"role": "user", "content": text}]
        turn = await engine.act(Request("s", BASE, messages, plan, seed, (seed,), previous))
        return turn.prompt_ids, turn.token_ids, turn

    return ask


def by_vllm(folder: str, policies: Any, args: argparse.Namespace) -> tuple[Ask, Any]:
    """The same requests, in ids, to vLLM's own asynchronous engine."""
    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    write_weights(folder, policies)
    with policies.using(BASE) as model:
        dtype = str(model.dtype).removeprefix("torch.")
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            folder, dtype=dtype, kv_cache_memory_bytes=int(args.cache_gb * 1e9),
            gpu_memory_utilization=0.05,  # must be free at the start; the cache is not held to it
            max_num_seqs=args.batch, max_model_len=8192, skip_tokenizer_init=True,
            disable_log_stats=True, compilation_config={"cudagraph_capture_sizes": CAPTURED},
        )
    )  # fmt: skip
    chat = TransformersEngine(policies).chat
    number = 0

    async def ask(text: str, tokens: int, seed: int, previous: list[int] | None) -> Reply:
        nonlocal number
        number += 1
        new = chat.ids_of([{"role": "user", "content": text}])
        ids = [*(previous or []), *new]
        plan = SamplingParams(
            temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0, detokenize=False,
            seed=None, output_kind=RequestOutputKind.FINAL_ONLY,
        )  # fmt: skip
        outputs = engine.generate({"prompt_token_ids": ids}, plan, str(number))
        [last] = [output async for output in outputs]
        drawn = list(last.outputs[0].token_ids)
        return ids, drawn, [*ids, *drawn]

    return ask, engine


def write_weights(folder: str, policies: Any) -> None:
    if not (Path(folder) / "config.json").exists():
        with policies.using(BASE) as model:
            model.save_pretrained(folder)


async def play(ask: Ask, texts: list[str], lengths: list[list[int]], *, paced: bool) -> int:
    """Tokens drawn in games of several turns: each at its own pace, or all turn by turn."""

    async def game(number: int) -> int:
        drawn, previous = 0, None
        for turn, tokens in enumerate(lengths[number]):
            _, ids, previous = await ask(texts[number], tokens, number * 100 + turn, previous)
            drawn += len(ids)
        return drawn

    if paced:
        return sum(await asyncio.gather(*map(game, range(len(texts)))))
    drawn, previous = 0, [None] * len(texts)
    for turn in range(len(lengths[0])):
        replies = await asyncio.gather(
            *[
                ask(text, lengths[i][turn], i * 100 + turn, previous[i])
                for i, text in enumerate(texts)
            ]
        )
        previous = [reply[2] for reply in replies]
        drawn += sum(len(reply[1]) for reply in replies)
    return drawn


def timed(rounds: int, ways: Mapping[str, Callable[[], int]]) -> dict[str, list[float]]:
    """Tokens per second of each round, after one that warms up. The ways take turns, and begin
    with another each time: whatever else the machine does falls on all."""
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            started = time.perf_counter()
            tokens = ways[name]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if number:
                speeds[name].append(tokens / (time.perf_counter() - started))
    return speeds


def busy_gpu(work: Callable[[], int]) -> tuple[int, float | None]:
    """What some work comes to, and the driver's utilisation of the GPU meanwhile, in per cent."""
    if not torch.cuda.is_available():
        return work(), None
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        watch = subprocess.Popen([*query, "-lms", "200"], stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        return work(), None
    try:
        tokens = work()
    finally:
        watch.terminate()
    samples = [int(line) for line in (watch.communicate()[0] or "").split() if line.isdigit()]
    return tokens, statistics.fmean(samples) if samples else None


def by_generate(
    model: Any, ids: list[list[int]], pad: int, tokens: int, *, greedy: bool = False
) -> list[list[int]]:
    width = max(map(len, ids))
    padded = torch.tensor([[pad] * (width - len(i)) + i for i in ids], device=model.device)
    mask = torch.tensor([[0] * (width - len(i)) + [1] * len(i) for i in ids], device=model.device)
    with torch.inference_mode():
        out = model.generate(
            padded,
            attention_mask=mask,
            do_sample=not greedy,
            **({} if greedy else {"top_k": 0}),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=pad,
        )
    return list(out[:, width:].tolist())


async def turns_of(engine: TransformersEngine, texts: list[str], tokens: int, heat: float) -> Any:
    ask = by_engine(engine, heat)
    return await asyncio.gather(*[ask(text, tokens, i, None) for i, text in enumerate(texts)])


def canary(policies: Any, turns: list[Turn]) -> float:
    """Mean gap between sampled logprobs and those of one plain forward pass."""
    gaps: list[float] = []
    with torch.inference_mode(), policies.using(BASE) as model:
        for turn in turns:
            both = torch.tensor([turn.prompt_ids + turn.token_ids], device=model.device)
            logprobs = model(both).logits[0].float().log_softmax(-1)
            drawn = logprobs[len(turn.prompt_ids) - 1 : -1].gather(
                -1, both[0, len(turn.prompt_ids) :, None]
            )
            gaps += (drawn[:, 0].cpu() - torch.tensor(turn.logprobs)).abs().tolist()
    return statistics.fmean(gaps)


def greedy_equal(policies: Any, texts: list[str]) -> dict[str, str]:
    """How many of the engine's greedy replies are `generate`'s; and, as a control, how many of
    `generate`'s own are those of `generate` at another batch size."""
    replies = asyncio.run(turns_of(TransformersEngine(policies), texts[:COMPARED], COMPARED, 0.0))
    ids, pad = [prompt for prompt, _, _ in replies], policies.tokenizer.pad_token_id
    size = APART if len(ids) > APART else 1
    with policies.using(BASE) as model:
        whole = by_generate(model, ids, pad, COMPARED, greedy=True)
        apart = [
            reply
            for i in range(0, len(ids), size)
            for reply in by_generate(model, ids[i : i + size], pad, COMPARED, greedy=True)
        ]
    own = sum(drawn == other for (_, drawn, _), other in zip(replies, whole, strict=True))
    control = sum(a == b for a, b in zip(apart, whole, strict=True))
    return {
        "engine and generate": f"{own} of {len(ids)}",
        f"generate and generate by {size}": f"{control} of {len(ids)}",
    }


def make_ways(args: argparse.Namespace, policies: Any, texts: list[str]) -> Ways:
    lengths = reply_lengths(args)
    engine = TransformersEngine(policies, max_batch=args.batch)

    def game(ask: Ask) -> Any:
        return play(ask, prompts(args.batch, args.words), lengths, paced=args.games)

    def played(ask: Ask) -> Callable[[], int]:
        return lambda: asyncio.run(game(ask))

    ways: Ways = {"sparring": played(by_engine(engine))}
    even = args.lengths == "even" and not args.games
    if not args.shape and even:
        plain = TransformersEngine(policies, max_batch=args.batch, graphs=False)
        ways["sparring, plain"] = played(by_engine(plain))
        pad = policies.tokenizer.pad_token_id
        replies = asyncio.run(turns_of(engine, texts, 1, 1.0))

        def generated() -> int:
            ids = [prompt for prompt, _, _ in replies]
            drawn = 0
            for _ in range(args.turns):
                with policies.using(BASE) as model:
                    new = by_generate(model, ids, pad, args.tokens)
                drawn += sum(map(len, new))
                ids = [[*a, *b] for a, b in zip(ids, new, strict=True)]
            return drawn

        ways["generate"] = generated
    if args.vllm and importlib.util.find_spec("vllm"):
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        ask, _ = by_vllm(args.vllm, policies, args)
        ways["vllm, with logprobs"] = lambda: loop.run_until_complete(game(ask))
    return ways


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--shape", choices=SHAPES, help="random weights instead of a policy")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--lengths", choices=("even", "varied"), default="even")
    parser.add_argument("--words", type=int, default=32, help="in each prompt")
    parser.add_argument("--turns", type=int, default=1, help="of each game, step by step")
    parser.add_argument("--games", action="store_true", help="of six turns, at their own pace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", help="a model folder for vLLM to load")
    parser.add_argument("--cache-gb", type=float, default=24, help="for vLLM's keys and values")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    device, dtype = choose_device()
    policies = load(args, device, dtype)
    texts = prompts(args.batch, args.words)
    ways = make_ways(args, policies, texts)
    speeds = timed(args.rounds, ways)
    equal = {}
    if not args.shape and args.turns == 1:
        equal[dtype] = greedy_equal(policies, texts)
        if dtype != "float32":
            equal["float32"] = greedy_equal(load(args, device, "float32"), texts)
    sampled = asyncio.run(turns_of(TransformersEngine(policies), texts[:8], 64, 1.0))
    _, busy = busy_gpu(ways["sparring"])
    results: dict[str, Any] = {
        "tokens_per_second": {k: round(statistics.median(v)) for k, v in speeds.items()},
        "spread": {k: [round(min(v)), round(max(v))] for k, v in speeds.items()},
        # Of each round by itself: what slows the machine down for a while cancels out.
        "ratio": {
            k: round(
                statistics.median(a / b for a, b in zip(speeds["sparring"], v, strict=True)), 2
            )
            for k, v in speeds.items()
        },
        "greedy_equal": equal,
        "canary": canary(policies, [turn for _, _, turn in sampled]),
        "gpu_busy_percent": busy,
        "device": device,
        "dtype": dtype,
    }
    if args.json:
        print(json.dumps(results))
        return
    for name, speed in results["tokens_per_second"].items():
        low, high = results["spread"][name]
        ratio = results["ratio"][name]
        print(f"{name:22} {speed:9,} tokens/s ({low:,} to {high:,})   {ratio:5.2f} ×")
    for kind, counts in equal.items():
        line = "; ".join(f"{who}: {count}" for who, count in counts.items())
        print(f"greedy replies that are equal, {kind}: {line}")
    busy_text = "" if busy is None else f", GPU busy {busy:.0f} %"
    print(f"canary {results['canary']:.6f} nats{busy_text}")


if __name__ == "__main__":
    main()
