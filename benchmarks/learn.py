"""One step of policy gradient by the learner as a user gets it: tokens per second, peak memory and
the GPU's utilisation, beside a plain step that keeps all logits.

    python benchmarks/learn.py --policy smollm2 --rows 64 --length 512 [--weights lora]
        [--compile true|false] [--cuda-graphs true|false] [--packing] [--profile] [--json]

`--policy random-135m` and `random-1.7b` are SmolLM2's shapes with random weights.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from sparring.core.types import MAIN, Sample
from sparring.learn.learner import Learner
from sparring.models.device import choose_device, fast_allocations
from sparring.models.policies import load_policies, wrap_model
from sparring.run.config import LearnConfig
from sparring.run.machine import choose_room, detect

CHOICES = {"auto": None, "true": True, "false": False}
SHAPES: dict[str, dict[str, int]] = {
    "random-tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "random-135m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "random-1.7b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
}


def policies_of(name: str, config: LearnConfig, device: str, dtype: str) -> Any:
    if name not in SHAPES:
        return load_policies(name, config, device=device, dtype=dtype)
    from transformers import LlamaConfig, LlamaForCausalLM

    from sparring.models.loading import nano_tokenizer

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=49152, max_position_embeddings=8192, tie_word_embeddings=True, **SHAPES[name]
    )
    with torch.device(device):
        model = LlamaForCausalLM(shape).to(getattr(torch, dtype))
    policies = wrap_model(model, nano_tokenizer(), config)
    return policies


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
    started = time.perf_counter()
    work()
    first = time.perf_counter() - started
    work()  # a second shape or a captured graph may still be compiled here
    gc.freeze()  # as the loop of a run does
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    speeds = []
    with utilisation(cuda) as busy:
        for _ in range(rounds):
            started = time.perf_counter()
            work()
            if cuda:
                torch.cuda.synchronize()
            speeds.append(tokens / (time.perf_counter() - started))
    return {
        "tokens_per_second": statistics.median(speeds),
        "spread": [min(speeds), max(speeds)],
        "first_step_s": first,
        # Reserved, not allocated: what graphs compute in is not counted as allocated.
        "peak_gib": torch.cuda.max_memory_reserved() / 2**30 if cuda else None,
        "gpu_busy_percent": statistics.fmean(busy) if busy else None,
    }


@contextmanager
def utilisation(cuda: bool) -> Iterator[list[float]]:
    """What the driver says of the GPU, ten times a second."""
    seen: list[float] = []
    if not cuda:
        yield seen
        return
    words = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    watch = subprocess.Popen([*words, "-lms", "100"], stdout=subprocess.PIPE, text=True)
    try:
        yield seen
    finally:
        watch.terminate()
        lines = watch.communicate()[0].split()
        seen += [float(line) for line in lines if line.replace(".", "").isdigit()]


def kernels(work: Callable[[], Any], most: int = 15) -> list[str]:
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


def learners(args: argparse.Namespace, device: str, dtype: str) -> dict[str, dict[str, Any]]:
    cuda, found = device == "cuda", {}
    own = choose_room(detect(), device)[1].value
    for budget in [int(b) for b in args.budgets.split(",") if b] or [own]:
        config = LearnConfig(
            weights=args.weights,
            lr=1e-6,
            tokens_per_batch=budget,
            head_chunk=args.head_chunk,
            gradient_checkpointing=args.gradient_checkpointing,
            packing=args.packing,
            compile=CHOICES[args.compile],
            cuda_graphs=CHOICES[args.cuda_graphs],
        )
        policies = policies_of(args.policy, config, device, dtype)
        given = samples(args.rows, args.length, policies.config.vocab_size)
        learner = Learner(policies, [MAIN], config)
        work = partial(learner.fit, given, 0)
        name = f"{args.policy}, {args.weights}, {budget} tokens at a time"
        found[name] = measured(work, args.rows * args.length, args.rounds, cuda)
        if args.profile and cuda:
            print(*kernels(work), sep="\n")
        del learner, policies, work
        gc.unfreeze()
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="smollm2")
    parser.add_argument("--weights", choices=["full", "lora"], default="full")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--budgets", default="", help="none: what suits the machine")
    parser.add_argument("--head-chunk", type=int, default=1024)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--packing", action="store_true")
    parser.add_argument("--compile", choices=["auto", "true", "false"], default="auto")
    parser.add_argument("--cuda-graphs", choices=["auto", "true", "false"], default="auto")
    parser.add_argument("--profile", action="store_true", help="the GPU's kernels, after each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="the plain step as well")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fast_allocations()
    device, dtype = choose_device(weights=args.weights)
    cuda = device == "cuda"
    found = learners(args, device, dtype)
    if args.plain:
        policies = policies_of(args.policy, LearnConfig(weights="full"), device, dtype)
        given = samples(args.rows, args.length, policies.config.vocab_size)
        with policies.using("base") as model:
            adam = torch.optim.AdamW(model.parameters(), lr=1e-6)
            found["plain, all logits"] = measured(
                lambda: plain_step(model, adam, given), args.rows * args.length, args.rounds, cuda
            )
    if args.json:
        print(json.dumps(found))
        return
    for name, result in found.items():
        low, high = result["spread"]
        print(
            f"{name:48} {result['tokens_per_second']:10,.0f} tokens/s ({low:,.0f} to {high:,.0f})"
        )
        if cuda:
            busy = result["gpu_busy_percent"]
            print(f"{'':48} peak {result['peak_gib']:.1f} GiB, GPU {busy or 0:.0f} % busy")
        print(f"{'':48} first step {result['first_step_s']:.1f} s")


if __name__ == "__main__":
    main()
