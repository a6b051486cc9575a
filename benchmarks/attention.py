"""Attention of one decode step over the paged cache, by positions that a program sums up (CHUNK in
`engines/local/pages.py`), beside torch's own over contiguous keys and values of equal length.

    python benchmarks/attention.py [--shape qwen3-8b] [--chunks 256,512,1024] [--rounds 20]

Microseconds of one layer, and how fast its keys and values were read. Layers take turns, so that
none is found in the GPU's cache. Needs a GPU; with TRITON_INTERPRET=1 and --shrink it runs without.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import generate
import torch
import torch.nn.functional as F

from sparring.engines.local import kernels
from sparring.engines.local.decoder import Layer
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.pages import Pages

WORKS = {  # positions of each row
    "12 × 1,000": [1000] * 12,
    "64 × 1,000": [1000] * 64,
    "512 × 600": [600] * 512,
    "511 × 200, 1 × 3,000": [200] * 511 + [3000],
}
LAYERS = 4
WIDTH = 128  # of a head


def layer() -> Layer:
    nothing: Any = None
    return Layer(**{**dict.fromkeys(Layer.__dataclass_fields__, nothing), "window": 0, "norm": 0})


def pages(lengths: list[int], device: torch.device) -> tuple[Pages, int]:
    """The last position of each row, whose blocks lie in no order, and the number of blocks."""
    width = -(-max(lengths) // BLOCK)
    counts = [-(-length // BLOCK) for length in lengths]
    order = (torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0)) + 1).tolist()
    table, used = torch.zeros(len(lengths), width, dtype=torch.int64), 0
    for row, count in enumerate(counts):
        table[row, :count] = torch.tensor(order[used : used + count])
        used += count
    rows = torch.arange(len(lengths), device=device)
    at = torch.tensor(lengths, device=device) - 1
    one = torch.ones_like(rows)
    return Pages(at, rows, table.to(device), rows, rows, one, 1, max(lengths)), used + 1


def seconds(attend: Callable[..., object], caches: Sequence[Any], rounds: int) -> float:
    """Of one layer; on a GPU by replaying a captured graph of all."""

    def run() -> None:
        for pair in caches:
            attend(pair)

    run()
    if not torch.cuda.is_available():
        started = time.perf_counter()
        run()
        return (time.perf_counter() - started) / len(caches)
    graph, times = torch.cuda.CUDAGraph(), list[float]()
    with torch.cuda.graph(graph):
        run()
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / len(caches))
    return statistics.median(times)


def measure(name: str, lengths: list[int], args: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    shape = generate.SHAPES[args.shape]
    Q, K = shape["num_attention_heads"], shape["num_key_value_heads"]
    plan, blocks = pages(lengths, device)
    noise: dict[str, Any] = {"device": device, "dtype": dtype}
    q = torch.randn(len(lengths), Q, WIDTH, **noise)
    caches = [tuple(torch.randn(2, K, blocks, BLOCK, WIDTH, **noise)) for _ in range(LAYERS)]
    read = sum(lengths) * 2 * K * WIDTH * q.element_size()
    results = dict[str, float]()
    for chunk in args.chunks:
        kernels.CHUNK = chunk
        plan.longest = chunk << ((max(lengths) - 1) // chunk).bit_length()
        ours = partial(kernels.attend, q, layer(), pages=plan, scale=WIDTH**-0.5)
        results[f"chunks of {chunk}"] = seconds(ours, caches, args.rounds)
    if len(set(lengths)) == 1:
        wide = [torch.randn(2, len(q), K, lengths[0], WIDTH, **noise) for _ in range(LAYERS)]
        theirs = partial(F.scaled_dot_product_attention, q[:, :, None], enable_gqa=True)
        results["torch"] = seconds(lambda pair: theirs(*pair), wide, args.rounds)
    for who, took in results.items():
        speed = f"{took * 1e6:8.1f} µs {read / took / 1e12:6.2f} TB/s"
        ratio = f"{results['torch'] / took:5.2f} × torch's speed" if "torch" in results else ""
        print(f"{name:22} {who:15} {speed} {ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=generate.SHAPES, default="qwen3-8b")
    parser.add_argument("--chunks", default="256,512,1024")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer rows, positions")
    args = parser.parse_args()
    args.chunks = [int(chunk) for chunk in args.chunks.split(",")]
    for name, lengths in WORKS.items():
        some = [max(1, length // args.shrink) for length in lengths[-1 :: -args.shrink]]
        with torch.inference_mode():
            measure(name, some, args)


if __name__ == "__main__":
    main()
