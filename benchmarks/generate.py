"""Tokens per second of generation with logprobs: this project's engine, its fast way and its plain
one, beside `model.generate` and, where it is installed, vLLM. One run, same prompts, same number of
new tokens, prefill and scheduling included; the ways take turns, round by round.

    python benchmarks/generate.py --policy smollm2 --batch 512 --tokens 128 [--json]
    python benchmarks/generate.py --policy smollm2 --batch 16 --tokens 16 --turns 6

With --turns every prompt is a game: each turn's prompt extends the last prompt and its reply.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from sparring.core.types import BASE, Request, Sampling, Turn
from sparring.engines.local.engine import TransformersEngine
from sparring.models.device import choose_device
from sparring.models.policies import load_policies
from sparring.run.config import LearnConfig

WORDS = ("seven", "and", "nine", "are", "not", "prime", "but", "odd", "says", "who", "counts")
COMPARED = 32  # greedy replies, and tokens of each
APART = 8  # the other batch size of the control
Ways = dict[str, Callable[[], int]]


def prompts(count: int, words: int) -> list[str]:
    """Prompts that differ in their first word, so that nothing is shared by chance."""
    return [
        f"{i} " + " ".join(WORDS[(i + j) % len(WORDS)] for j in range(words)) for i in range(count)
    ]


async def ask(
    engine: TransformersEngine,
    texts: list[str],
    tokens: int,
    heat: float,
    previous: list[Turn] | None = None,
) -> list[Turn]:
    plan = Sampling(temperature=heat, max_tokens=tokens)
    before = previous or [None] * len(texts)
    asked = [
        Request("seat", BASE, [{"role": "user", "content": text}], plan, i, (i,), last)
        for i, (text, last) in enumerate(zip(texts, before, strict=True))
    ]
    return list(await asyncio.gather(*map(engine.act, asked)))


async def play(
    engine: TransformersEngine, texts: list[str], tokens: int, turns: int, *, reuse: bool
) -> list[list[Turn]]:
    """Games of several turns; without reuse, everything is read again at each."""
    said: list[list[Turn]] = []
    for _ in range(turns):
        said.append(await ask(engine, texts, tokens, 1.0, said[-1] if said else None))
        if not reuse:
            engine.publish()
    return said


def timed(rounds: int, ways: Mapping[str, Callable[[], int]]) -> dict[str, list[float]]:
    """Tokens per second of each round, after one that warms up. The ways take turns, and begin
    with another each time: whatever else the machine does falls on all."""
    found: dict[str, list[float]] = {name: [] for name in ways}
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
                found[name].append(tokens / (time.perf_counter() - started))
    return found


def said_by_generate(
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


def with_vllm(folder: str, ids: list[list[int]], tokens: int) -> Callable[[], int]:
    from vllm import LLM, SamplingParams

    model = LLM(folder, dtype="bfloat16", gpu_memory_utilization=0.4, max_num_seqs=len(ids))
    plan = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0)

    def work() -> int:
        outs = model.generate([{"prompt_token_ids": i} for i in ids], plan, use_tqdm=False)
        return sum(len(o.outputs[0].token_ids) for o in outs)

    return work


def canary(policies: Any, turns: list[Turn]) -> float:
    """Mean gap between sampled logprobs and those of one plain forward pass."""
    gaps: list[float] = []
    with torch.inference_mode(), policies.using(BASE) as model:
        for turn in turns:
            both = torch.tensor([turn.prompt_ids + turn.token_ids], device=model.device)
            logprobs = model(both).logits[0].float().log_softmax(-1)
            said = logprobs[len(turn.prompt_ids) - 1 : -1].gather(
                -1, both[0, len(turn.prompt_ids) :, None]
            )
            gaps += (said[:, 0].cpu() - torch.tensor(turn.logprobs)).abs().tolist()
    return statistics.fmean(gaps)


def greedy_equal(policies: Any, texts: list[str]) -> dict[str, str]:
    """How many of the engine's greedy replies are `generate`'s; and, as a control, how many of
    `generate`'s own are those of `generate` at another batch size."""
    texts = texts[:COMPARED]
    turns = asyncio.run(ask(TransformersEngine(policies), texts, COMPARED, 0.0))
    ids, pad = [turn.prompt_ids for turn in turns], policies.tokenizer.pad_token_id
    size = APART if len(ids) > APART else 1
    with policies.using(BASE) as model:
        whole = said_by_generate(model, ids, pad, COMPARED, greedy=True)
        apart = [
            said
            for i in range(0, len(ids), size)
            for said in said_by_generate(model, ids[i : i + size], pad, COMPARED, greedy=True)
        ]
    own = sum(turn.token_ids == said for turn, said in zip(turns, whole, strict=True))
    control = sum(a == b for a, b in zip(apart, whole, strict=True))
    return {
        "engine and generate": f"{own} of {len(ids)}",
        f"generate and generate by {size}": f"{control} of {len(ids)}",
    }


def endless(name: str, device: str, dtype: str) -> Any:
    """Policies without an end, so that every way says the same number of tokens."""
    policies = load_policies(name, LearnConfig(weights="full"), device=device, dtype=dtype)
    with policies.using(BASE) as model:
        model.generation_config.eos_token_id = None
    policies.tokenizer.eos_token_id = None
    return policies


def single_turn(args: argparse.Namespace, policies: Any, texts: list[str], fast: str) -> Ways:
    engines = {
        fast: TransformersEngine(policies, max_batch=args.batch),
        "sparring, plain": TransformersEngine(policies, max_batch=args.batch, graphs=False),
    }

    def spoken(engine: TransformersEngine) -> Callable[[], int]:
        return lambda: (
            args.batch * len(asyncio.run(ask(engine, texts, args.tokens, 1.0))[0].logprobs)
        )

    ways: Ways = {name: spoken(engine) for name, engine in engines.items()}
    chat = engines[fast].chat
    ids = [chat.encode(chat.render([{"role": "user", "content": text}])) for text in texts]
    pad = policies.tokenizer.pad_token_id

    def generated() -> int:
        with policies.using(BASE) as model:
            return sum(map(len, said_by_generate(model, ids, pad, args.tokens)))

    ways["generate"] = generated
    if args.vllm and importlib.util.find_spec("vllm"):
        ways["vllm, with logprobs"] = with_vllm(args.vllm, ids, args.tokens)
    return ways


def several_turns(args: argparse.Namespace, policies: Any, texts: list[str], fast: str) -> Ways:
    engine = TransformersEngine(policies, max_batch=args.batch)
    plain = TransformersEngine(policies, max_batch=args.batch, graphs=False)
    shown = asyncio.run(play(engine, texts, args.tokens, args.turns, reuse=True))
    ids = [[turn.prompt_ids for turn in turns] for turns in shown]
    pad = policies.tokenizer.pad_token_id

    def played(engine: TransformersEngine, reuse: bool) -> int:
        said = asyncio.run(play(engine, texts, args.tokens, args.turns, reuse=reuse))
        return sum(len(turn.token_ids) for turns in said for turn in turns)

    def generated() -> int:
        with policies.using(BASE) as model:
            said = [said_by_generate(model, some, pad, args.tokens) for some in ids]
        return sum(len(reply) for some in said for reply in some)

    return {
        fast: lambda: played(engine, True),
        f"{fast}, no reuse": lambda: played(engine, False),
        "sparring, plain": lambda: played(plain, True),
        "generate": generated,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--words", type=int, default=32, help="in each prompt")
    parser.add_argument("--turns", type=int, default=1, help="of each game")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", help="a model folder for vLLM to load")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device, dtype = choose_device()
    policies = endless(args.policy, device, dtype)
    texts = prompts(args.batch, args.words)
    fast = "sparring, graphs" if device == "cuda" else "sparring"
    make = several_turns if args.turns > 1 else single_turn
    speeds = timed(args.rounds, make(args, policies, texts, fast))
    equal = {}
    if args.turns == 1:
        equal[dtype] = greedy_equal(policies, texts)
        if dtype != "float32":
            equal["float32"] = greedy_equal(endless(args.policy, device, "float32"), texts)
    engine = TransformersEngine(policies)
    said = play(engine, texts[:COMPARED], min(args.tokens, 64), args.turns, reuse=True)
    sampled = asyncio.run(said)[-1]  # of games, the last turns: the most is reused there
    found: dict[str, Any] = {
        "tokens_per_second": {k: round(statistics.median(v)) for k, v in speeds.items()},
        "spread": {k: [round(min(v)), round(max(v))] for k, v in speeds.items()},
        # Of each round by itself: what slows the machine down for a while cancels out.
        "ratio": {
            k: round(statistics.median(a / b for a, b in zip(speeds[fast], v, strict=True)), 2)
            for k, v in speeds.items()
        },
        "greedy_equal": equal,
        "canary": canary(policies, sampled),
        "device": device,
        "dtype": dtype,
    }
    if args.json:
        print(json.dumps(found))
        return
    for name, speed in found["tokens_per_second"].items():
        low, high = found["spread"][name]
        ratio = found["ratio"][name]
        print(f"{name:22} {speed:9,} tokens/s ({low:,} to {high:,})   {ratio:5.2f} ×")
    for kind, counts in equal.items():
        told = "; ".join(f"{who}: {count}" for who, count in counts.items())
        print(f"greedy replies that are equal, {kind}: {told}")
    print(f"canary {found['canary']:.6f} nats")


if __name__ == "__main__":
    main()
