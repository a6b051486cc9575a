"""The critic of one policy: a head on the policy's own hidden states that says what a reply is
worth before its next token. Policy and critic share the backbone, adapter and all.

Shapes: N tokens to learn from, H hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Critic:
    """A linear head in float32. It begins at zero: nothing is expected before anything is seen."""

    def __init__(self, hidden: int, device: torch.device | str) -> None:
        self.weight = nn.Parameter(torch.zeros(hidden, device=device))
        self.bias = nn.Parameter(torch.zeros(1, device=device))

    def __call__(self, hidden_NH: Tensor) -> Tensor:
        return hidden_NH.float() @ self.weight + self.bias

    def parameters(self) -> dict[str, nn.Parameter]:
        return {"weight": self.weight, "bias": self.bias}

    def state(self) -> dict[str, Tensor]:
        return {key: p.detach() for key, p in self.parameters().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for key, parameter in self.parameters().items():
                if parameter.shape != state[key].shape:
                    raise ValueError(
                        f"this critic belongs to another model: its {key} has "
                        f"{len(state[key])} entries there and {len(parameter)} here"
                    )
                parameter.copy_(state[key])


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, clip: float
) -> tuple[Tensor, Tensor]:
    """Half the squared error, at least that of a value held within `clip` of the old one; and
    whether the clip holds."""
    near = old_values + (values - old_values).clamp(-clip, clip)
    free, held = (values - returns) ** 2, (near - returns) ** 2
    return 0.5 * torch.max(free, held), held > free
