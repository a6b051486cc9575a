"""Weights from the process that learns to its workers through torch.distributed: NCCL where every
member has a GPU of its own, gloo otherwise. It needs no launcher and no group of the learner's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Layout = list[tuple[str, str, tuple[int, ...]]]  # key, dtype, shape of each tensor in the bytes
_TIMEOUT = timedelta(seconds=120)  # for all members to meet, and for one message


@dataclass(frozen=True)
class Offer:
    """What a worker is told of a broadcast: whom to meet, as which member, and what will come."""

    address: tuple[str, int]
    group: str
    rank: int
    size: int
    backend: str
    layouts: dict[str, Layout]  # policy -> its tensors


def flatten(state: dict[str, Tensor]) -> tuple[Layout, Tensor]:
    """Tensors as one row of bytes in the CPU's memory: a copy, which later updates do not move."""
    import torch

    # Wide elements first, so that each tensor begins at a multiple of its elements' size.
    keys = sorted(state, key=lambda key: (-state[key].element_size(), key))
    layout = [(k, str(state[k].dtype).removeprefix("torch."), tuple(state[k].shape)) for k in keys]
    parts = [state[key].detach().contiguous().view(-1).view(torch.uint8).cpu() for key in keys]
    return layout, torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def unflatten(layout: Layout, bytes_N: Tensor) -> dict[str, Tensor]:
    import torch

    state, begin = {}, 0
    for key, name, shape in layout:
        dtype = getattr(torch, name)
        end = begin + math.prod(shape) * dtype.itemsize
        state[key] = bytes_N[begin:end].view(dtype).view(shape)
        begin = end
    return state


class Group:
    """The learner (rank 0) and workers, as one process sees them. To make one waits for all."""

    def __init__(self, offer: Offer, rank: int, device: Any) -> None:
        import torch
        import torch.distributed as dist

        self.name = offer.group
        self._device = torch.device(device if offer.backend == "nccl" else "cpu")
        self._group: Any
        # A connection of its own: one that waits for a member lets nobody else through.
        store = dist.TCPStore(*offer.address, is_master=False, timeout=_TIMEOUT)
        members = dist.PrefixStore(offer.group, store)
        if offer.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _TIMEOUT
            self._group = dist.ProcessGroupNCCL(members, rank, offer.size, options)
        else:
            self._group = dist.ProcessGroupGloo(members, rank, offer.size, _TIMEOUT)

    def broadcast(self, bytes_N: Tensor) -> Tensor:
        """The bytes of the learner, whatever was given by others."""
        import torch
        import torch.distributed as dist

        options = dist.BroadcastOptions()
        options.rootRank = 0
        moved = bytes_N.to(self._device)
        self._group.broadcast([moved], options).wait()
        if self._device.type == "cuda":  # there, waiting is for the stream alone
            torch.cuda.synchronize(self._device)
        return moved


class Root:
    """The learner's side: a group of it and the workers that it sent to last."""

    def __init__(self, host: str) -> None:
        import torch.distributed as dist

        self.host = host
        self._server = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self._numbers = itertools.count()

    def offers(self, workers: int, backend: str, layouts: dict[str, Layout]) -> list[Offer]:
        """One for each worker of a group that is yet to be made."""
        name = f"weights-{next(self._numbers)}"
        address = (self.host, self._server.port)
        return [
            Offer(address, name, rank, workers + 1, backend, layouts)
            for rank in range(1, workers + 1)
        ]


class Member:
    """A worker's side."""

    def __init__(self) -> None:
        self._group: Group | None = None

    def receive(self, offer: Offer, device: Any) -> dict[str, dict[str, Tensor]]:
        """The weights of each policy that is offered, once they are here."""
        import torch

        if self._group is None or self._group.name != offer.group:
            self._group = Group(offer, offer.rank, device)
        weights = {}
        for name, layout in offer.layouts.items():
            size = sum(math.prod(s) * getattr(torch, kind).itemsize for _, kind, s in layout)
            empty_N = torch.empty(size, dtype=torch.uint8)
            weights[name] = unflatten(layout, self._group.broadcast(empty_N))
        return weights


def gpu_of(device: Any) -> str | None:
    """The name by which a GPU is the same one in every process; None: not on a GPU."""
    import torch

    if device is None or torch.device(device).type != "cuda":
        return None
    return str(torch.cuda.get_device_properties(device).uuid)


def choose_backend(gpus: Sequence[str | None]) -> str:
    """NCCL wants a GPU of its own for each member."""
    return "nccl" if None not in gpus and len(set(gpus)) == len(gpus) else "gloo"
