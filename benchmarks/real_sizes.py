"""The works that the engine is measured by at real sizes, and vLLM on the same work in the same
run: random weights of a shape, prompts of about 64 tokens, logprobs. Results are printed at once.

    python benchmarks/real_sizes.py qwen3-8b --write DIR          # the weights, for vLLM to load
    python benchmarks/real_sizes.py qwen3-8b --vllm DIR [--works 512x128,varied] [--rounds 3]
    python benchmarks/real_sizes.py qwen3-8b --steps                    # a captured step, by rows
    python benchmarks/real_sizes.py qwen3-8b --works varied --profile   # its time by kernel
    python benchmarks/real_sizes.py qwen3-8b --works varied --chunk 256

Works: 512 replies of 128 tokens, 64 of 128, 512 of varied length (exponential around 256, at most
2,048), 128 of 2,048; `games`: 512 games of six turns with replies exponential around 128 tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
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
PARTS = ("look-ahead", "narrow", "early")  # of the engine, to do without
PROFILE_AFTER, PROFILED = 3.0, 0.5  # seconds of a work


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
    if "early" in args.without:
        from sparring.engines.local import dependent_launch  # needs Triton

        dependent_launch.enabled = False
    with torch.inference_mode():
        runner.memory.grow(runner.memory.capacity())
    for work in works:
        asyncio.run(once(ask, work, args.shrink, most=24))
    if "games" in works:  # kernels that read a prompt after more than a chunk of positions
        lengths = [[240 // args.shrink] * generate.GAME_TURNS] * 4
        asyncio.run(generate.play(ask, generate.prompts(4, WORDS), lengths, paced=True))
    if runner.captures:
        long = {"varied", "128x2048", "games"} & {*works}
        positions = [CHUNK, 2 * CHUNK, 4 * CHUNK] if long else [CHUNK]
        with torch.inference_mode():
            for size in sorted({runner._counts.padded(n) for n in range(1, 513)}):
                for longest in positions:
                    runner._step_of(size, longest)


def measure(run: Callable[[Any], int], ask: Any, work: str, args: argparse.Namespace) -> Any:
    """Tokens per second of a round, and how busy the GPU was."""
    took = 0.0

    def timed() -> int:  # without the start of what watches the GPU, and its end
        nonlocal took
        started = time.perf_counter()
        tokens = run(once(ask, work, args.shrink))
        took = time.perf_counter() - started
        return tokens

    tokens, busy = generate.busy_gpu(timed)
    return tokens / took, busy


def step_table(shape: str, runner: Runner) -> None:
    """Milliseconds of a captured step without attention, by rows: as the engine chose its products,
    and with the library's alone."""
    sizes = [size for size in runner._counts.sizes if size <= runner.scheduler.max_rows]
    linears = [linear for layer in runner.decoder.layers for linear in layer.linears]
    for who in ("sparring", "sparring -narrow"):
        with torch.inference_mode():
            times = {size: min(runner._time_step(size) for _ in range(3)) for size in sizes}
        line = ", ".join(f"{size}: {1000 * took:.2f}" for size, took in times.items())
        print(f"{shape} step, ms, {who:16} {line}", flush=True)
        for linear in linears:
            linear.narrow.clear()
        runner._moves()  # graphs with the products that are gone


def kernels(ask: Any, work: str, args: argparse.Namespace) -> None:
    """What the device's time goes to in the middle of a work, by kernel."""
    from torch.profiler import ProfilerActivity, profile

    watch = profile(activities=[ProfilerActivity.CUDA])

    async def watched() -> float:
        task = asyncio.create_task(once(ask, work, args.shrink))
        await asyncio.sleep(PROFILE_AFTER)
        watch.start()
        started = time.perf_counter()
        await asyncio.sleep(PROFILED)
        took = time.perf_counter() - started
        watch.stop()
        await task
        return took

    took = asyncio.run(watched())
    rows = sorted(watch.key_averages(), key=lambda row: -row.device_time_total)[:12]
    for row in rows:
        share = row.device_time_total / 1e4 / took
        mean = row.device_time_total / max(1, row.count)
        print(f"{work} {share:5.1f} % of the time, {row.count} × {mean:.1f} µs  {row.key[:90]}")


def show(shape: str, work: str, who: str, rounds: list[tuple[float, float | None]]) -> None:
    speeds = [speed for speed, _ in rounds]
    spread = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
    busy = [percent for _, percent in rounds if percent is not None]
    busy_text = f", GPU busy {statistics.fmean(busy):.0f} %" if busy else ""
    median = statistics.median(speeds)
    print(f"{shape} {work:9} {who:8} {median:9,.0f} tokens/s ({spread}){busy_text}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=generate.SHAPES)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--rounds", type=int, default=3, help="of each work, in turn with vLLM")
    parser.add_argument("--vllm", help="a folder with the weights, for vLLM")
    parser.add_argument("--cache-gb", type=float, default=42.0, help="for keys and values, of each")
    parser.add_argument("--write", help="write the weights to this folder, and do no more")
    parser.add_argument("--loose", action="store_true", help="without the same bits in any batch")
    parser.add_argument("--without", nargs="+", default=[], choices=PARTS)
    parser.add_argument("--chunk", type=int, help="positions that attention sums up at a time")
    parser.add_argument("--steps", action="store_true", help="a step's time by rows, at the end")
    parser.add_argument("--profile", action="store_true", help="each work once more, by kernel")
    parser.add_argument("--wait-for", help="a file: prepare all, and begin when it is there")
    parser.add_argument("--shrink", type=int, default=1, help="works so many times as small")
    return parser.parse_args()


def main() -> None:
    args, started = arguments(), time.perf_counter()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("sparring.engines.local").setLevel(logging.INFO)
    device, dtype = choose_device()
    policies = generate.random_policies(args.shape, device, dtype)
    if args.write:
        return generate.write_weights(args.write, policies)
    if args.chunk:
        from sparring.engines.local import kernels as attention  # needs Triton

        attention.CHUNK = args.chunk
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
    own = generate.by_engine(engine)
    warm_up(engine, own, args)
    own_name = "loose" if args.loose else "sparring"
    changes = [f"-{part}" for part in args.without] + [f"chunk {args.chunk}"] * bool(args.chunk)
    who = " ".join([own_name, *changes])
    ways = {who: (asyncio.run, own), **ways}
    print(f"{args.shape}: ready, {time.perf_counter() - started:.0f} s", flush=True)
    while args.wait_for and not Path(args.wait_for).exists():
        time.sleep(0.1)
    for work in works:
        rounds: dict[str, list[tuple[float, float | None]]] = {who: [] for who in ways}
        for _ in range(args.rounds):
            for who, (run, ask) in ways.items():
                rounds[who].append(measure(run, ask, work, args))
                print(f"{args.shape} {work} {who}: {rounds[who][-1][0]:,.0f}", flush=True)
        for who, some in rounds.items():
            show(args.shape, work, who, some)
        if len(rounds) > 1:  # of each round by itself: what slows the machine down cancels out
            ours, theirs = rounds.values()
            ratios = [a / b for (a, _), (b, _) in zip(ours, theirs, strict=True)]
            spread = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            middle = statistics.median(ratios)
            print(f"{args.shape} {work:9} ratio    {middle:9.2f} ({spread})", flush=True)
    if args.vllm:
        vllm.shutdown()
    for work in works if args.profile else ():
        kernels(own, work, args)
    if args.steps:
        step_table(args.shape, engine._runner(BASE))


if __name__ == "__main__":
    main()
