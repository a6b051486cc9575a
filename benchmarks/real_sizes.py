"""The works that the engine is measured by at real sizes, and vLLM on the same work in the same
run: random weights of a shape, prompts of about 75 tokens, logprobs. Results are printed at once.

    python benchmarks/real_sizes.py qwen3-8b --write DIR          # the weights, for vLLM to load
    python benchmarks/real_sizes.py qwen3-8b --vllm DIR [--works 512x128,varied] [--rounds 3]

Works: 512 replies of 128 tokens, 64 of 128, 512 of varied length (exponential around 256, at most
2,048), 128 of 2,048; `games`: 512 games of six turns with replies exponential around 128 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generate
import torch

from sparring.core.types import BASE
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.pages import CHUNK
from sparring.engines.local.runner import Runner
from sparring.models.device import choose_device

WORKS = {  # requests, tokens of each, lengths, games
    "512x128": (512, 128, "even", False),
    "64x128": (64, 128, "even", False),
    "varied": (512, 256, "varied", False),
    "128x2048": (128, 2048, "even", False),
    "games": (512, 128, "varied", True),
}
WORDS = 12  # of a prompt


def plan(work: str, shrink: int) -> argparse.Namespace:
    requests, tokens, lengths, games = WORKS[work]
    return argparse.Namespace(
        batch=max(4, requests // shrink), tokens=max(2, tokens // shrink), lengths=lengths,
        games=games, turns=1,
    )  # fmt: skip


def once(ask: Any, work: str, shrink: int, most: int | None = None) -> Any:
    """One work, to be awaited for the number of tokens drawn; with replies of at most so many."""
    args = plan(work, shrink)
    lengths = generate.reply_lengths(args)
    if most is not None:
        lengths = [[min(tokens, most) for tokens in turns] for turns in lengths]
    return generate.play(ask, generate.prompts(args.batch, WORDS), lengths, paced=args.games)


def warm_up(engine: TransformersEngine, ask: Any, args: argparse.Namespace) -> None:
    """A short pass of each work; then the graphs of all sizes and lengths that will be met, and a
    cache of the size that it would grow to, so that it need not be copied beside another engine."""
    runner, works = engine._runner(BASE), args.works.split(",")
    assert isinstance(runner, Runner)
    if "look-ahead" in args.without:
        runner.looks_ahead = False
    if "narrow" in args.without:
        runner._counts.narrow_tried = True
    with torch.inference_mode():
        runner.memory.grow(runner.memory.capacity())
    for work in works:
        asyncio.run(once(ask, work, args.shrink, most=24))
    if runner.captures:
        lengths = [CHUNK, 2 * CHUNK, 4 * CHUNK] if {"varied", "128x2048"} & {*works} else [CHUNK]
        with torch.inference_mode():
            for size in sorted({runner._counts.padded(n) for n in range(1, 513)}):
                for length in lengths:
                    runner._step_of(size, length)


def measure(run: Callable[[Any], int], ask: Any, work: str, args: argparse.Namespace) -> Any:
    """Tokens per second of each round, and how busy the GPU was."""
    speeds, busy = list[float](), list[float]()
    for _ in range(1 if work in ("varied", "128x2048", "games") else args.rounds):
        started = time.perf_counter()
        tokens, percent = generate.busy_gpu(lambda: run(once(ask, work, args.shrink)))
        speeds.append(tokens / (time.perf_counter() - started))
        busy += [] if percent is None else [percent]
    return speeds, statistics.fmean(busy) if busy else None


def show(shape: str, work: str, who: str, speeds: list[float], busy: float | None) -> float:
    median = statistics.median(speeds)
    spread = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
    busy_text = "" if busy is None else f", GPU busy {busy:.0f} %"
    print(f"{shape} {work:9} {who:8} {median:9,.0f} tokens/s ({spread}){busy_text}", flush=True)
    return median


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=generate.SHAPES)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--rounds", type=int, default=3, help="of the works that are short")
    parser.add_argument("--vllm", help="a folder with the weights, for vLLM")
    parser.add_argument("--vllm-share", type=float, default=0.48, help="of the GPU's memory")
    parser.add_argument("--cache-gb", type=float, default=42.0, help="for our keys and values")
    parser.add_argument("--write", help="write the weights to this folder, and do no more")
    parser.add_argument("--loose", action="store_true", help="without the same bits in any batch")
    parser.add_argument("--without", nargs="+", default=[], choices=("look-ahead", "narrow"))
    parser.add_argument("--wait-for", help="a file: prepare all, and begin when it is there")
    parser.add_argument("--shrink", type=int, default=1, help="works so many times as small")
    return parser.parse_args()


def main() -> None:
    args, started = arguments(), time.perf_counter()
    device, dtype = choose_device()
    policies = generate.random_policies(args.shape, device, dtype)
    if args.write:
        return generate.write_weights(args.write, policies)
    if args.loose:
        assert Runner.__init__.__kwdefaults__ is not None
        Runner.__init__.__kwdefaults__["invariant"] = False
    works = args.works.split(",")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    ways: dict[str, tuple[Callable[[Any], int], Any]] = {}
    if args.vllm:  # first: it takes its share of the memory at once
        args.batch = max(4, 512 // args.shrink)
        theirs, vllm = generate.by_vllm(args.vllm, policies, args)
        for work in works:
            loop.run_until_complete(once(theirs, work, args.shrink, most=24))
        ways["vllm"] = (loop.run_until_complete, theirs)
        print(f"{args.shape}: vLLM began, {time.perf_counter() - started:.0f} s", flush=True)
    engine = TransformersEngine(policies, max_batch=512, cache_gb=args.cache_gb)
    ours = generate.by_engine(engine)
    warm_up(engine, ours, args)
    who = " ".join(["loose" if args.loose else "sparring", *(f"-{part}" for part in args.without)])
    ways = {who: (asyncio.run, ours), **ways}
    print(f"{args.shape}: ready, {time.perf_counter() - started:.0f} s", flush=True)
    while args.wait_for and not Path(args.wait_for).exists():
        time.sleep(0.1)
    for work in works:
        medians = [
            show(args.shape, work, who, *measure(run, ask, work, args))
            for who, (run, ask) in ways.items()
        ]
        if len(medians) > 1:
            print(f"{args.shape} {work:9} ratio    {medians[0] / medians[1]:9.2f}", flush=True)
    if args.vllm:
        vllm.shutdown()


if __name__ == "__main__":
    main()
