"""One full-parameter step of policy gradient: tokens per second and peak memory of
the learner, beside a plain step that keeps all logits.

    python benchmarks/learn.py --policy smollm2 --rows 64 --length 512 [--head-chunk 1024]
        [--gradient-checkpointing] [--packing] [--compile] [--profile] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from sparring.core.types import MAIN, Sample
from sparring.learn.learner import Learner
from sparring.models.device import choose_device, fast_allocations
from sparring.models.policies import load_policies
from sparring.run.config import LearnConfig


def samples(rows: int, length: int, vocabulary: int) -> list[Sample]:
    """Rows of random tokens, the last seven eighths of each to learn from."""
    dice = random.Random(0)
    said = length * 7 // 8
    return [
        Sample(
            policy=MAIN,
            ids=[dice.randrange(vocabulary) for _ in range(length)],
            mask=[0] * (length - said) + [1] * said,
            advantages=[0.0] * (length - said) + [dice.gauss(0, 1)] * said,
            logprobs=[0.0] * (length - said) + [-10.0] * said,
        )
        for _ in range(rows)
    ]


def plain_step(model: Any, adam: Any, given: list[Sample]) -> None:
    """What a straightforward trainer does: all logits at once, one backward pass."""
    ids = torch.tensor([s.ids for s in given], device=model.device)
    mask = torch.tensor([s.mask for s in given], device=model.device)[:, 1:]
    advantage = torch.tensor([s.advantages for s in given], device=model.device)[:, 1:]
    logprobs = model(ids).logits[:, :-1].float().log_softmax(-1)
    said = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    loss = -(said * advantage * mask).sum() / mask.sum()
    loss.backward()
    adam.step()
    adam.zero_grad()


def measured(work: Callable[[], Any], tokens: int, rounds: int, cuda: bool) -> dict[str, Any]:
    work()
    gc.freeze()  # as the loop of a run does
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    speeds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        if cuda:
            torch.cuda.synchronize()
        speeds.append(tokens / (time.perf_counter() - started))
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
    return {
        "tokens_per_second": statistics.median(speeds),
        "spread": [min(speeds), max(speeds)],
        "peak_gib": peak,
    }


def kernels(work: Callable[[], Any], most: int = 14) -> list[str]:
    """Where a GPU's time goes in one step: how much of it any kernel ran, and the longest ones."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    started = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    wall = time.perf_counter() - started
    # A kernel by its name without template arguments: shapes and layouts are beside the point.
    spent: dict[str, list[float]] = {}
    for event in seen.events():
        spent.setdefault(event.name.split("<")[0][-60:], []).append(event.device_time / 1e3)
    busy = sum(map(sum, spent.values()))
    longest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:most]
    return [
        f"profiled step {wall * 1e3:.0f} ms, kernels {busy:.0f} ms",
        *(f"  {sum(times):7.2f} ms {len(times):6} × {name}" for name, times in longest),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--budgets", default="4096,8192,16384,32768")
    parser.add_argument("--head-chunk", type=int, default=1024)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", action="store_true", help="the GPU's kernels, after each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fast_allocations()
    device, dtype = choose_device()
    cuda = device == "cuda"
    tokens = args.rows * args.length
    found = {}
    for budget in map(int, args.budgets.split(",")):
        config = LearnConfig(
            weights="full",
            lr=1e-6,
            tokens_per_batch=budget,
            head_chunk=args.head_chunk,
            gradient_checkpointing=args.gradient_checkpointing,
            packing=args.packing,
            compile=args.compile,
        )
        policies = load_policies(args.policy, config, device=device, dtype=dtype)
        given = samples(args.rows, args.length, policies.config.vocab_size)
        learner = Learner(policies, [MAIN], config)
        found[f"learner, {budget} tokens at a time"] = measured(
            partial(learner.fit, given, 0), tokens, args.rounds, cuda
        )
        if args.profile and cuda:
            print(*kernels(partial(learner.fit, given, 0)), sep="\n")
        del learner, policies
        if cuda:
            torch.cuda.empty_cache()
    policies = load_policies(args.policy, LearnConfig(weights="full"), device=device, dtype=dtype)
    given = samples(args.rows, args.length, policies.config.vocab_size)
    with policies.using("base") as model:
        adam = torch.optim.AdamW(model.parameters(), lr=1e-6)
        found["plain, all logits"] = measured(
            lambda: plain_step(model, adam, given), tokens, args.rounds, cuda
        )
    if args.json:
        print(json.dumps(found))
        return
    for name, result in found.items():
        low, high = result["spread"]
        memory = f"   peak {result['peak_gib']:.1f} GiB" if cuda else ""
        speed = result["tokens_per_second"]
        print(f"{name:34} {speed:10,.0f} tokens/s ({low:,.0f} to {high:,.0f}){memory}")


if __name__ == "__main__":
    main()
