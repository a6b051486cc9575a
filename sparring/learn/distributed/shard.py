"""Weights that no process holds whole: FSDP2 over the decoder's layers. Embeddings, head, norms and
adapters stay whole everywhere, since the learner reads them outside of the layers' own calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import get_total_norm

from sparring.learn.optimizer import Optimizer
from sparring.models.policies import FullPolicies, LoraPolicies, Policies


def shard(policies: Policies) -> None:
    """Shard every layer over the processes. With adapters, it is the frozen base that is sharded;
    with whole weights, each policy's."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(policies.device.type, (torch.distributed.get_world_size(),))
    for model in _models(policies):
        kept = {p for n, p in model.named_parameters() if ".lora_" in n}
        for layer in model.get_decoder().layers:
            fully_shard(layer, mesh=mesh, ignored_params=kept)
            # The loss is a sum over all processes already, not a mean to be taken.
            layer.set_gradient_divide_factor(1.0)
            layer.set_force_sum_reduction_for_comms(True)  # gloo knows no other


def _models(policies: Policies) -> list[Any]:
    if isinstance(policies, FullPolicies):
        return list(policies._models.values())
    assert isinstance(policies, LoraPolicies)
    return [policies._base]


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, put together from its parts; all processes must ask at once."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, own: Tensor) -> Tensor:
    """A whole tensor as this process's part of it, where its own is one."""
    if not isinstance(own, DTensor) or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(tensor.to(own.device), own.device_mesh, own.placements)


class ShardedOptimizer(Optimizer):
    """Steps on parts; saves and loads the whole."""

    multi_tensor = False  # one kernel cannot update parts and wholes

    def clip(self, max_norm: float) -> Tensor:
        """As torch clips, with a norm for parts and one for wholes: one call takes no mixture."""
        gradients = [m.grad for m in self.masters.values() if m.grad is not None]
        parts = [g for g in gradients if isinstance(g, DTensor)]
        wholes = [g for g in gradients if not isinstance(g, DTensor)]
        norm = get_total_norm([whole(get_total_norm(some)) for some in (parts, wholes) if some])
        for one in [*(part.to_local() for part in parts), *wholes]:
            one.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

    def state(self) -> dict[str, Tensor]:
        return {key: whole(value) for key, value in super().state().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        parts = {}
        for key, value in state.items():
            name, slot = key.rsplit("/", 1)
            parts[key] = value if slot == "step" else like(value, self.masters[name])
        super().load(parts)
