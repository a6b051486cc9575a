"""Kernels that begin before the one ahead of them has ended. A decode step is hundreds of short
kernels in a row, and on Hopper and later a third of a short one's time is the gap before it:
launched as dependents (CUDA's programmatic dependent launch), the next one's programs are in place
when the last one ends. Each waits for all that was computed before it, so no number changes."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

HOPPER = (9, 0)
enabled = True  # False: one kernel after another, to compare with


def launch_early(device: torch.device) -> dict[str, Any]:
    """Options for a kernel that calls `wait` first; `EARLY` tells it whether to."""
    early = enabled and device.type == "cuda" and _supported(device)
    return {"EARLY": True, "launch_pdl": True} if early else {"EARLY": False}


@cache
def _supported(device: torch.device) -> bool:
    return (
        torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= HOPPER
        and hasattr(tl.extra.cuda, "gdc_wait")
    )


@triton.jit
def wait(EARLY: tl.constexpr):
    """For all kernels before this one; the next one may begin to wait for this one then. In this
    order: kernels that begin while this one waits would fill the GPU with more that wait."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def prefetch(pointers):
    """Fetch the cache lines of these pointers to L2."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [pointers], dtype=tl.int32,
        is_pure=False, pack=1,
    )  # fmt: skip
