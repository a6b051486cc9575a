"""The processes that learn together, started by `accelerate launch`, by srun, or by `--processes`.
The first one is the run: it plays, records and saves. The others hold the same weights, are handed
the same lessons, and take their share of the arithmetic; they write nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from sparring.run import rank

Item = TypeVar("Item")
_WAIT = timedelta(days=1)  # the others wait while the first one plays, evaluates or judges


def own_device(device: str) -> str:
    """The GPU of this process, where several share a machine."""
    if rank.size() == 1 or device != "cuda":
        return device
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


class World:
    """One process among several. Alone, every method does what one process needs: nothing."""

    def __init__(self, processes: int = 1, device: str = "cpu") -> None:
        self.size, self.rank = processes, 0
        if processes > 1:
            from accelerate import PartialState

            state = PartialState(cpu=not device.startswith("cuda"), timeout=_WAIT)
            self.size, self.rank = state.num_processes, state.process_index

    def most(self, lessons: int, asked: int | None) -> int | None:
        """Lessons of a micro-batch at most, so that there is one for every process."""
        if self.size == 1:
            return asked
        return min(asked or lessons, -(-lessons // self.size))

    def share(self, items: Sequence[Item]) -> list[tuple[Item, float]]:
        """This process's part of what all of them have, and what each counts. All take as many
        steps: a process that has nothing left repeats a batch with weight 0, because with
        sharded weights a layer is read by all of them together."""
        rounds = -(-len(items) // self.size)
        indices = [i * self.size + self.rank for i in range(rounds)]
        return [(items[p], 1.0) if p < len(items) else (items[0], 0.0) for p in indices]

    def add_up(self, parameters: Iterable[Any]) -> None:
        """Sum the gradients over the processes, in one message. A process that had no share adds
        nothing, and must still say so."""
        # Parts of sharded weights have been summed by FSDP on the way.
        mine = [p for p in parameters if not isinstance(p, DTensor)] if self.size > 1 else []
        if not mine:
            return
        for p in mine:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flat = torch.cat([p.grad.reshape(-1).float() for p in mine])
        self._sum(flat)
        for p, summed in zip(mine, flat.split([p.numel() for p in mine]), strict=True):
            p.grad.copy_(summed.view_as(p))

    def add_up_numbers(self, numbers: dict[str, Tensor], device: Any) -> dict[str, Tensor]:
        """Sum statistics by name; a process without a share knows no names."""
        if self.size == 1:
            return numbers
        from accelerate.utils import gather_object

        names = sorted({name for some in gather_object([list(numbers)]) for name in some})
        nothing = torch.zeros((), dtype=torch.float64, device=device)
        flat = torch.stack([numbers.get(name, nothing).double() for name in names])
        self._sum(flat)
        return dict(zip(names, flat, strict=True))

    def broadcast(self, message: Any = None) -> Any:
        """What the first process says, in all of them."""
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([message], from_process=0)[0]

    @staticmethod
    def _sum(flat: Tensor) -> None:
        torch.distributed.all_reduce(flat)
