"""Which device, and which dtypes really run on it. Some CPUs advertise bf16 instructions that
then fault, and a fault kills the process: so the trial is made in a child."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run.machine import check_device, choose_precision, detect

log = logging.getLogger(__name__)

# What libraries say that find no memory by themselves; of a GPU's allocator torch has an error.
_NO_MEMORY = (
    "can't allocate memory",
    "STATUS_ALLOC_FAILED",  # cuBLAS and cuDNN
    "mha_graph.execute",  # cuDNN's attention has no words of its own for it
)

_DTYPES = ("float32", "bfloat16", "float16")
# One process imports torch, and a child of it for each dtype tries a product.
_TRIAL = """
import os, sys, torch
for dtype in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        try:
            a = torch.ones(64, 64, dtype=getattr(torch, dtype), device=sys.argv[1])
            os._exit(not bool((a @ a == 64).all()))  # a sum of them would not fit into float16
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] == 0:
        print(dtype)
"""


def choose_device(
    device: str = "auto", dtype: str = "auto", weights: str = "lora"
) -> tuple[str, str]:
    """The device and dtype to use; `auto` is the fastest that works, as `run/machine.py` has it."""
    machine = detect()
    check_device(device, machine)
    where, precision = choose_precision(machine, device, dtype, weights)
    if where.value == "cpu" and precision.value != "float32" and not dtype_runs(dtype, "cpu"):
        raise ConfigError(
            f"engine.dtype is {dtype!r}, and products in it fail on this CPU; say auto or float32"
        )
    return where.value, precision.value


def dtype_runs(dtype: str, device: str) -> bool:
    """Whether a matrix product in this dtype comes out right, tried in a child process."""
    return dtype in _dtypes_that_run(device)


@cache
def _dtypes_that_run(device: str) -> frozenset[str]:
    trial = subprocess.run(
        [sys.executable, "-c", _TRIAL, device, *_DTYPES],
        capture_output=True,
        text=True,
        timeout=240,
    )
    return frozenset(trial.stdout.split())


@cache
def side_stream(device: int) -> Any:
    """Where a GPU's work is tried before it is captured. One for all: cuBLAS holds 32 MiB for each
    stream that it has worked on."""
    import torch

    return torch.cuda.Stream(device)


def use_tf32(wanted: bool, device: str) -> bool:
    """Float32 products in TF32 on a GPU that has it, where that is asked for; whether they are."""
    import torch

    if not device.startswith("cuda"):
        if wanted:
            log.info("engine.tf32 is for GPUs: on %s float32 stays as it is", device)
        return False
    able = torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere and later
    if wanted and not able:
        log.info("engine.tf32: this GPU has no TF32, and float32 stays as it is")
    torch.set_float32_matmul_precision("high" if wanted and able else "highest")
    return wanted and able


@cache
def _stream(device: Any) -> Any:
    """Always the same one: freed memory is kept for the stream that had it."""
    import torch

    return torch.cuda.Stream(device)


@contextmanager
def on_own_stream(device: Any) -> Iterator[None]:
    """Work for a GPU in this block goes beside what other threads give it, not after it; what was
    asked for before it comes first, and all is done at its end. A CPU has no such thing."""
    if device.type != "cuda":
        yield
        return
    import torch

    own = _stream(device)
    own.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(own):
        yield
    own.synchronize()


def fast_allocations() -> None:
    """Keep freed memory in the process, in one heap. glibc hands large blocks back to the system at
    once, and a small model's step then spends more time on page faults than on arithmetic; and a
    thread's own heap is made of pieces of 64 MB, of which large tensors leave much unused."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-8, 1)  # M_ARENA_MAX
    except (OSError, AttributeError):
        return  # another libc: slower, not wrong


def out_of_memory(error: Exception) -> bool:
    """Whether this is for want of memory, on a GPU or a CPU."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    )
