"""AdamW whose moments are bfloat16, half of what float32 ones take. They are rounded up or down by
chance: to the nearest, a change that is small beside the moment, such as a slow decay, would be
lost every time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparring.core.types import derive


class Bfloat16AdamW(torch.optim.Optimizer):
    """One tensor after another, so that no more than one has its moments in float32. The noise of
    a step is made from its number: a resumed run rounds as the one before it would have."""

    def __init__(
        self,
        parameters: list[Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        eps: float = 1e-8,
    ) -> None:
        given = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": eps}
        super().__init__(parameters, given)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for index, weight in enumerate(group["params"]):
                if weight.grad is not None:
                    self._move(weight, weight.grad, index, group)

    def _move(self, weight: Tensor, gradient: Tensor, index: int, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[weight], group["betas"]
        if not state:
            zeros = torch.zeros_like(weight, dtype=torch.bfloat16)
            state |= {"step": torch.tensor(0.0), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
        state["step"] += 1
        step = int(state["step"])
        mean = state["exp_avg"].float().lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].float().mul_(beta2)
        square.addcmul_(gradient, gradient, value=1 - beta2)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        divisor = (square / (1 - beta2**step)).sqrt_().add_(group["eps"])
        weight.addcdiv_(mean, divisor, value=-group["lr"] / (1 - beta1**step))
        noise = torch.Generator(weight.device).manual_seed(derive("moments", step, index))
        state["exp_avg"].copy_(round_by_chance(mean, noise))
        state["exp_avg_sq"].copy_(round_by_chance(square, noise))


def round_by_chance(numbers: Tensor, noise: torch.Generator) -> Tensor:
    """To one of the two bfloat16 beside each float32, the nearer one the likelier: the expectation
    is the number itself."""
    shape, device = numbers.shape, numbers.device
    up = torch.randint(0, 1 << 16, shape, generator=noise, device=device, dtype=torch.int32)
    bits = numbers.view(torch.int32).add(up).bitwise_and_(-(1 << 16))
    return bits.view(torch.float32).to(torch.bfloat16)
