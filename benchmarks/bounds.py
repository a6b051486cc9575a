"""How fast the works of `real_sizes.py` can be at most: every step reads all weights once, or
multiplies by them, whichever takes longer, and reads each row's keys and values once; prompts cost
their products. No time for launching, sampling, norms or scheduling, and no row ever waits.

    python benchmarks/bounds.py qwen3-8b [--tb-per-s 4.2] [--tflops 790]

The defaults are what one H200 was seen to read and to multiply in bf16.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from types import SimpleNamespace

import generate
import numpy as np
from real_sizes import WORKS, plan

BYTES = 2  # of a weight, a key and a value
PROMPT = 64  # tokens of a turn's prompt, as nano's tokenizer has them
WORDS, HEAD_DIM = 151_936, 128


@dataclass(frozen=True)
class Gpu:
    bytes_per_s: float
    flops: float


@dataclass(frozen=True)
class Size:
    layers: int  # weights of all layers
    head: int  # weights of the head
    position: int  # bytes of the keys and values of one position

    @classmethod
    def of(cls, shape: str) -> Size:
        s = SimpleNamespace(**generate.SHAPES[shape])
        heads = 2 * s.num_attention_heads + 2 * s.num_key_value_heads
        layer = heads * HEAD_DIM * s.hidden_size + 3 * s.hidden_size * s.intermediate_size
        position = s.num_hidden_layers * 2 * s.num_key_value_heads * HEAD_DIM * BYTES
        return cls(s.num_hidden_layers * layer, WORDS * s.hidden_size, position)


def step_s(size: Size, gpu: Gpu, rows: int, positions: int) -> float:
    """One token for each of these rows, which look at so many positions in all."""
    weights = size.layers + size.head
    products = max(BYTES * weights / gpu.bytes_per_s, 2 * weights * rows / gpu.flops)
    return products + positions * size.position / gpu.bytes_per_s


def prompt_s(size: Size, gpu: Gpu, tokens: int) -> float:
    return 2 * size.layers * tokens / gpu.flops


def least_s(size: Size, gpu: Gpu, lengths: list[list[int]], prompt: int = PROMPT) -> float:
    """For games of turns of so many tokens each; the next turn begins at once. A turn's first token
    comes of its prompt."""
    left = np.array([turns[0] for turns in lengths]) - 1
    turn, last = np.zeros_like(left), len(lengths[0]) - 1
    context = np.full_like(left, prompt + 1)
    seconds = prompt_s(size, gpu, prompt * len(lengths))
    while True:
        while (done := (left <= 0) & (turn < last)).any():
            turn[done] += 1
            context[done] += prompt + 1
            left[done] = [lengths[i][turn[i]] - 1 for i in np.flatnonzero(done)]
            seconds += prompt_s(size, gpu, prompt * int(done.sum()))
        live = left > 0
        if not live.any():
            return seconds
        seconds += step_s(size, gpu, int(live.sum()), int(context[live].sum()))
        left[live] -= 1
        context[live] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=[s for s in generate.SHAPES if s.startswith("qwen3")])
    parser.add_argument("--tb-per-s", type=float, default=4.2, help="that the GPU's memory gives")
    parser.add_argument("--tflops", type=float, default=790, help="of products in bf16")
    args = parser.parse_args()
    gpu = Gpu(args.tb_per_s * 1e12, args.tflops * 1e12)
    for work in WORKS:
        lengths = generate.reply_lengths(plan(work, 1))
        seconds = least_s(Size.of(args.shape), gpu, lengths)
        tokens = sum(map(sum, lengths))
        print(f"{args.shape} {work:9} at most {tokens / seconds:8,.0f} tokens/s ({seconds:.2f} s)")


if __name__ == "__main__":
    main()
