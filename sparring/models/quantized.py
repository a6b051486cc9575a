"""A frozen base model in 8 or 4 bits, for adapters on it (QLoRA). A weight is made whole for each
product, in the backward pass again, and never kept so."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparring.core.errors import ConfigError

Bits = Literal["8bit", "4bit"]
BLOCK = 64  # weights that share a scale in 4 bits; in 8 bits an output's weights do


class QuantizedLinear(nn.Linear):
    """A linear layer whose weight is kept as codes and scales: int8 by output, or blocks of NF4 by
    bitsandbytes. `weight` is the whole one, for whoever asks."""

    def __init__(self, linear: nn.Linear, bits: Bits) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bits, self.dtype, self.bias = bits, linear.weight.dtype, linear.bias
        codes, scales = _quantize(linear.weight.detach(), bits)
        self.codes = nn.Parameter(codes, requires_grad=False)
        self.scales = nn.Parameter(scales, requires_grad=False)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        shape = (self.out_features, self.in_features)
        return dense_weight(self.codes, self.scales, self.bits, shape, self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        y: Tensor = _Product.apply(x, self)
        return y if self.bias is None else y + self.bias

    def whole(self) -> nn.Linear:
        """A plain layer with the weights that this one computes with."""
        shape = (self.in_features, self.out_features)
        plain = nn.Linear(*shape, bias=self.bias is not None, device="meta")
        plain.weight = nn.Parameter(self.weight, requires_grad=False)
        plain.bias = self.bias
        return plain


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: QuantizedLinear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.layer.weight, None


def quantize_base(model: Any, bits: Bits) -> None:
    """Put quantized layers in the place of a decoder's linear ones; its head stays as it is."""
    if bits == "4bit":
        _bitsandbytes()
    for owner in list(model.get_decoder().modules()):
        for name, child in list(owner.named_children()):
            if type(child) is nn.Linear:
                setattr(owner, name, QuantizedLinear(child, bits))


def is_quantized(model: Any) -> bool:
    return any(isinstance(module, QuantizedLinear) for module in model.modules())


def _quantize(weight_OI: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    if bits == "4bit":
        _bitsandbytes()
        codes, scales = torch.ops.bitsandbytes.quantize_4bit(weight_OI, BLOCK, "nf4", torch.uint8)
        return codes, scales
    wide_OI = weight_OI.float()
    scale_O1 = wide_OI.abs().amax(1, keepdim=True).clamp_min(1e-30) / 127
    return (wide_OI / scale_O1).round_().to(torch.int8), scale_O1


def dense_weight(
    codes: Tensor, scales: Tensor, bits: Bits, shape: tuple[int, int], dtype: torch.dtype
) -> Tensor:
    """The whole weight, as the scales have it."""
    if bits == "8bit":
        return (codes * scales).to(dtype)
    # As one row: in version 0.50 the CPU's kernel is wrong where rows are no multiple of a block.
    row: Tensor = torch.ops.bitsandbytes.dequantize_4bit(
        codes, scales, BLOCK, "nf4", (1, shape[0] * shape[1]), dtype
    )
    return row.view(shape)


def _bitsandbytes() -> None:
    try:
        import bitsandbytes  # noqa: F401 (it registers its operators)
    except ImportError as error:
        raise ConfigError(
            "learn.quantize=4bit needs bitsandbytes, which is not installed: "
            "pip install 'sparring[8bit]', or learn.quantize=8bit, which needs nothing"
        ) from error
