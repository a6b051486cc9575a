"""Copies between host and device that wait for nothing else: an ordinary copy would wait for all
decode steps that are queued on the device.

Shapes: B rows, S steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparring.engines.local.rows import Row


def upload(values: Any, device: torch.device, dtype: Any = np.int64) -> Tensor:
    """Numbers on the device, in the order of what is queued there."""
    tensor = torch.from_numpy(np.asarray(values, dtype=dtype))
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class Readback(NamedTuple):
    """Tokens and logprobs on their way to the host."""

    rows: Sequence[Row]
    token_SB: Tensor
    logprob_SB: Tensor
    arrived: torch.cuda.Event | None  # None: they are there

    @classmethod
    def queue(cls, rows: Sequence[Row], token_SB: Tensor, logprob_SB: Tensor) -> Readback:
        if token_SB.device.type != "cuda":  # what comes next is written to the same memory
            return cls(rows, token_SB.clone(), logprob_SB.clone(), None)
        tokens, logprobs = (
            torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
            for x in (token_SB, logprob_SB)
        )
        arrived = torch.cuda.Event()
        arrived.record()
        return cls(rows, tokens, logprobs, arrived)

    @property
    def steps(self) -> int:
        return len(self.token_SB)

    def wait(self) -> tuple[list[list[int]], list[list[float]]]:
        """The tokens and logprobs of each row."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.token_SB.numpy().T.tolist(), self.logprob_SB.numpy().T.tolist()
