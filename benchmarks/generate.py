"""Tokens per second of generation with logprobs: this project's engine, with and without captured
graphs, beside `model.generate` and, where it is installed, vLLM. One run, same prompts, same
number of new tokens, prefill and scheduling included.

    python benchmarks/generate.py --policy smollm2 --batch 512 --tokens 128 [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from sparring.engines.transformers import TransformersEngine
from sparring.learn.device import choose_device
from sparring.learn.policies import load_policies
from sparring.run.config import LearnConfig
from sparring.types import BASE, Request, Sampling, Turn

WORDS = ("seven", "and", "nine", "are", "not", "prime", "but", "odd", "says", "who", "counts")


def prompts(count: int, words: int) -> list[str]:
    """Prompts that differ in their first word, so that nothing is shared by chance."""
    return [
        f"{i} " + " ".join(WORDS[(i + j) % len(WORDS)] for j in range(words)) for i in range(count)
    ]


async def ask(engine: TransformersEngine, texts: list[str], tokens: int, heat: float) -> list[Turn]:
    plan = Sampling(temperature=heat, max_tokens=tokens)
    asked = [
        Request("seat", BASE, [{"role": "user", "content": text}], plan, seed=i, order=(i,))
        for i, text in enumerate(texts)
    ]
    return await asyncio.gather(*map(engine.act, asked))


def timed(rounds: int, work: Callable[[], int]) -> list[float]:
    """Tokens per second of each round, after one that warms up."""
    work()
    found = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        started = time.perf_counter()
        tokens = work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        found.append(tokens / (time.perf_counter() - started))
    return found


def with_generate(model: Any, ids: list[list[int]], pad: int, tokens: int) -> int:
    width = max(map(len, ids))
    padded = torch.tensor([[pad] * (width - len(i)) + i for i in ids], device=model.device)
    with torch.inference_mode():
        out = model.generate(
            padded,
            attention_mask=(padded != pad).long(),
            do_sample=True,
            top_k=0,
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            pad_token_id=pad,
        )
    return int((out.shape[1] - width) * len(ids))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--words", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", help="a model folder for vLLM to load")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device, dtype = choose_device()
    policies = load_policies(args.policy, LearnConfig(weights="full"), device=device, dtype=dtype)
    # Without an end every way says the same number of tokens.
    with policies.using(BASE) as model:
        model.generation_config.eos_token_id = None
    policies.tokenizer.eos_token_id = None
    plain = TransformersEngine(policies, max_batch=args.batch, graphs=False)
    texts = prompts(args.batch, args.words)
    engines = {"sparring, plain": plain}
    if device == "cuda":
        engines["sparring, graphs"] = TransformersEngine(policies, max_batch=args.batch)
    speeds, greedy = {}, {}
    for name, engine in engines.items():

        def work(engine: TransformersEngine = engine) -> int:
            turns = asyncio.run(ask(engine, texts, args.tokens, 1.0))
            return sum(len(turn.token_ids) for turn in turns)

        speeds[name] = timed(args.rounds, work)
        greedy[name] = asyncio.run(ask(engine, texts[:32], 32, 0.0))
    ids = [turn.prompt_ids for turn in asyncio.run(ask(plain, texts, 1, 0.0))]
    pad = policies.tokenizer.pad_token_id
    with policies.using(BASE) as model:
        speeds["generate"] = timed(args.rounds, lambda: with_generate(model, ids, pad, args.tokens))
    if args.vllm and importlib.util.find_spec("vllm"):
        speeds["vllm, with logprobs"] = timed(args.rounds, with_vllm(args.vllm, ids, args.tokens))
    fastest = list(engines)[-1]
    same = sum(
        a.token_ids == b.token_ids
        for a, b in zip(greedy["sparring, plain"], greedy[fastest], strict=True)
    )
    sampled = asyncio.run(ask(engines[fastest], texts[:32], 64, 1.0))
    found = {
        "tokens_per_second": {k: round(statistics.median(v)) for k, v in speeds.items()},
        "spread": {k: [round(min(v)), round(max(v))] for k, v in speeds.items()},
        "greedy_equal": f"{same} of 32",
        "canary": canary(policies, sampled),
        "device": device,
        "dtype": dtype,
    }
    if args.json:
        print(json.dumps(found))
        return
    best = found["tokens_per_second"][fastest]  # type: ignore[index]
    for name, speed in found["tokens_per_second"].items():  # type: ignore[attr-defined]
        low, high = found["spread"][name]  # type: ignore[index]
        print(f"{name:22} {speed:9,} tokens/s ({low:,} to {high:,})   {best / speed:5.1f} ×")
    print(f"greedy replies equal: {found['greedy_equal']}; canary {found['canary']:.4f} nats")


if __name__ == "__main__":
    main()
