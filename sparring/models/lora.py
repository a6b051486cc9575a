"""LoRA layers whose base and adapter products are one autograd function. peft's own widens each
layer's input to the adapter's float32 and keeps that copy for the backward pass; here the input is
kept once, as it is, also for q, k and v or gate and up, whose adapters are one product. Under
dropout each layer has a mask and a product of its own, and the mask is kept beside the input.

Shapes: N positions, I inputs, O outputs, R ranks of all layers of a group together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from peft.tuners.lora import Linear
from torch import Tensor, nn

from sparring.models.quantized import Bits, QuantizedLinear, dense_weight

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # layers with one input


class AdaptedLinear(Linear):
    """peft's layer, with its products fused where one adapter is at work."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        # All layers that are given the same input, in order, where there are others; and what the
        # first of them computed for this one: the input, and the output.
        self.group: tuple[AdaptedLinear, ...] = ()
        self.computed: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, *args: Any, **words: Any) -> Tensor:
        group = self.group or (self,)
        if not all(layer.is_plain() for layer in group):
            result: Tensor = super().forward(x, *args, **words)
            return result
        computed, self.computed = self.computed, None
        if computed is not None and computed[0] is x:
            return computed[1]
        if group[0] is not self:  # which was given something else
            return _apply(x, (self,))[0]
        own, *others = _apply(x, group)
        for layer, output in zip(group[1:], others, strict=True):
            layer.computed = (x, output)
        return own

    def is_plain(self) -> bool:
        """Whether the output is base(x) + scaling · up(down(dropout(x))) of one adapter."""
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return False
        return self.active_adapters[0] not in self.lora_variant


def group_layers(model: Any) -> None:
    """Tell adapted layers of a model which others are given the same input."""
    for owner in model.modules():
        for names in GROUPS:
            children = [getattr(owner, name, None) for name in names]
            layers = tuple(child for child in children if isinstance(child, AdaptedLinear))
            if len(layers) == len(names):
                for layer in layers:
                    layer.group = layers


class _Spec(NamedTuple):
    """What is constant of a layer."""

    scaling: float  # with that of dropout, whose input is masked and not scaled
    rank: int
    bits: Bits | None  # of a quantized base
    shape: tuple[int, int]


def _apply(x: Tensor, layers: tuple[AdaptedLinear, ...]) -> tuple[Tensor, ...]:
    specs, tensors = [], []
    # One rate for all: it belongs to the adapter.
    dropout: Any = layers[0].lora_dropout[layers[0].active_adapters[0]]
    rate = dropout.p if isinstance(dropout, nn.Dropout) and dropout.training else 0.0
    for layer in layers:
        base: Any = layer.get_base_layer()
        name = layer.active_adapters[0]
        down: Any = layer.lora_A[name].weight
        up: Any = layer.lora_B[name].weight
        weight, scale, bits = (
            (base.codes, base.scales, base.bits)
            if isinstance(base, QuantizedLinear)
            else (base.weight, None, None)
        )
        shape = (base.out_features, base.in_features)
        specs.append(_Spec(layer.scaling[name] / (1 - rate), len(down), bits, shape))
        tensors += [weight, scale, base.bias, down, up]
    outputs: tuple[Tensor, ...] = _Products.apply(x, rate, tuple(specs), *tensors)
    return outputs


class _Products(torch.autograd.Function):
    """The outputs of layers that share their input. Of the frozen base no gradient is made."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dropout: float, specs: tuple[_Spec, ...], *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        x_NI = x.reshape(-1, x.shape[-1])
        layers = _by_layer(tensors)
        masks = [_draw_mask(x_NI, dropout) for _ in layers] if dropout else []
        low_NR = _project(x_NI, _downs(layers, x.dtype), masks)
        outputs = []
        for spec, layer, own_Nr in zip(specs, layers, _split(low_NR, specs), strict=True):
            weight, scale, bias, _, up_Or = layer
            y_NO = F.linear(x_NI, _dense(weight, scale, spec, x.dtype), bias)
            _add_product(y_NO, own_Nr, (up_Or * spec.scaling).to(x.dtype).T)
            outputs.append(y_NO.view(*x.shape[:-1], -1))
        ctx.save_for_backward(x_NI, low_NR, *tensors, *masks)
        ctx.specs, ctx.shape = specs, x.shape
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        x_NI, low_NR, *kept = ctx.saved_tensors
        layers, masks = _by_layer(kept[: 5 * len(ctx.specs)]), kept[5 * len(ctx.specs) :]
        given = [gradient.reshape(len(x_NI), -1) for gradient in gradients]
        pulled = [
            g_NO @ (layer[4] * spec.scaling).to(x_NI.dtype)
            for g_NO, layer, spec in zip(given, layers, ctx.specs, strict=True)
        ]
        x_grad = None
        if ctx.needs_input_grad[0]:
            grad_NI = _project_back(pulled, _downs(layers, x_NI.dtype), masks)
            for spec, (weight, scale, *_), g_NO in zip(ctx.specs, layers, given, strict=True):
                _add_product(grad_NI, g_NO, _dense(weight, scale, spec, x_NI.dtype))
            x_grad = grad_NI.view(ctx.shape)
        down_grads = _down_gradients(x_NI, pulled, masks)
        wanted: list[Tensor | None] = []
        for spec, layer, g_NO, own_Nr, down_grad in zip(
            ctx.specs, layers, given, _split(low_NR, ctx.specs), down_grads, strict=True
        ):
            up_grad = (g_NO.T @ own_Nr).to(layer[4].dtype) * spec.scaling
            wanted += [None, None, None, down_grad.to(layer[3].dtype), up_grad]
        return x_grad, None, None, *wanted


def _draw_mask(x_NI: Tensor, dropout: float) -> Tensor:
    """True where an input is kept; drawn from the device's generator, as `nn.Dropout` does."""
    return torch.empty_like(x_NI, dtype=torch.bool).bernoulli_(1 - dropout)


def _project(x_NI: Tensor, downs: list[Tensor], masks: list[Tensor]) -> Tensor:
    """The input in the ranks of all layers: one product, unless each has a mask of its own."""
    if not masks:
        return x_NI @ torch.cat(downs).T
    pairs = zip(downs, masks, strict=True)
    return torch.cat([torch.where(mask, x_NI, 0.0) @ down.T for down, mask in pairs], 1)


def _project_back(pulled: list[Tensor], downs: list[Tensor], masks: list[Tensor]) -> Tensor:
    """The gradient of the input of `_project`, from those of the ranks of each layer."""
    if not masks:
        return torch.cat(pulled, 1) @ torch.cat(downs)
    first_NI, *others = (
        torch.where(mask, pulled_Nr @ down, 0.0)
        for pulled_Nr, down, mask in zip(pulled, downs, masks, strict=True)
    )
    for other_NI in others:
        first_NI += other_NI
    return first_NI


def _down_gradients(x_NI: Tensor, pulled: list[Tensor], masks: list[Tensor]) -> Sequence[Tensor]:
    """The gradients of `downs` of `_project`, from those of the ranks of each layer."""
    if not masks:
        ranks = [pulled_Nr.shape[1] for pulled_Nr in pulled]
        return (torch.cat(pulled, 1).T @ x_NI).split(ranks)
    pairs = zip(pulled, masks, strict=True)
    return [pulled_Nr.T @ torch.where(mask, x_NI, 0.0) for pulled_Nr, mask in pairs]


@torch.library.custom_op("sparring::add_product", mutates_args={"total"})
def _add_in_place(total: Tensor, left: Tensor, right: Tensor) -> None:
    total.addmm_(left, right)


@_add_in_place.register_fake
def _(total: Tensor, left: Tensor, right: Tensor) -> None:
    return None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right. The compiler turns `addmm_` into a product that copies `total` first
    (6 % of a step at 1.7B), and leaves an operation that it cannot look into as it is."""
    if torch.compiler.is_compiling():
        _add_in_place(total, left, right)
    else:
        total.addmm_(left, right)


def _by_layer(tensors: Any) -> list[Any]:
    """weight, scale, bias, down, up of each."""
    return [tensors[i : i + 5] for i in range(0, len(tensors), 5)]


def _downs(layers: list[Any], dtype: torch.dtype) -> list[Tensor]:
    return [down.to(dtype) for *_, down, _ in layers]


def _split(low_NR: Tensor, specs: tuple[_Spec, ...]) -> tuple[Tensor, ...]:
    return low_NR.split([spec.rank for spec in specs], dim=1)


def _dense(weight: Tensor, scale: Tensor | None, spec: _Spec, dtype: torch.dtype) -> Tensor:
    if scale is None or spec.bits is None:
        return weight
    return dense_weight(weight, scale, spec.bits, spec.shape, dtype)
