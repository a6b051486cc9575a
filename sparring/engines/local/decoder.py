"""The weights of a Llama-shaped model as a fast decode step wants them: q, k and v in one matrix,
gate and up in one, adapters of several policies side by side.

The fused matrices are no copies: the model's own parameters become views into them, so that what
the learner moves is what speaks next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local.families import FAMILIES, Family, Rope, unsupported_family, window_of
from sparring.models.logits import LogitShape, logit_shape
from sparring.models.quantized import is_quantized

ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
# Products of adapters have a multiple of the first number of rows, and at most the second. A GPU's
# library cannot be told to sum float32 up in one order for all shapes: there they have one shape.
# MKL has an order of its own for fewer than 16 rows on some processors, and where inputs are many
# and outputs few, on two threads, for more than 370 (Cascade Lake).
GPU_ADAPTER_ROWS, CPU_ADAPTER_ROWS = (512, 512), (16, 256)

Cache = tuple[Tensor, Tensor]  # keys and values of one layer, each heads × blocks × BLOCK × width


def unsupported(model: Any) -> str:
    """Why this decoder cannot speak for a model; nothing if it can."""
    config = model.config
    if any(type(weight.data).__name__ == "DTensor" for weight in model.parameters()):
        return "its weights are sharded over several processes"
    if is_quantized(model):
        return "its weights are quantized"
    return unsupported_family(config)


def cache_shape(config: Any) -> tuple[int, int, int]:
    """Layers, key heads and their width: what a token's keys and values take."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, config.num_key_value_heads, width


def has_adapters(model: Any) -> bool:
    attention = model.get_decoder().layers[0].self_attn
    return hasattr(getattr(attention, "qkv_proj", None) or attention.q_proj, "lora_A")


@dataclass
class Linear:
    """One matrix for several of the model's, and the low-rank corrections of the adapters in play:
    R ranks, O outputs, I inputs."""

    modules: list[Any]
    weight: Tensor
    bias: Tensor | None
    # Down and up of each. They stay where they are in memory: captured graphs look there.
    adapters: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    # By numbers of rows for which there is a faster product with the same bits.
    narrow: dict[int, Callable[[Tensor, Tensor], Tensor]] = field(default_factory=dict)
    onednn: bool = ONEDNN  # on a CPU

    def __call__(self, x_NI: Tensor, adapter_N: Tensor | None = None) -> Tensor:
        if narrow := self.narrow.get(len(x_NI)):
            y_NO = narrow(x_NI, self.weight)
        else:
            y_NO = product(x_NI, self.weight, self.bias, self.onednn)
        if not self.adapters or adapter_N is None:
            return y_NO
        x_NI, total_NO = x_NI.to(self.adapters[0][0].dtype), y_NO
        step, most = GPU_ADAPTER_ROWS if x_NI.is_cuda else CPU_ADAPTER_ROWS
        low_rank = partial(in_pieces, step=step, most=most)
        # One after another, though together were fewer products: their shapes do not depend on how
        # many there are, and what another adapter adds is zero exactly, so it moves no bit.
        for number, (down_RI, up_OR) in enumerate(self.adapters):
            low_NR = low_rank(x_NI, down_RI) * (adapter_N == number)[:, None]
            total_NO = total_NO + low_rank(low_NR, up_OR)
        return total_NO.to(y_NO.dtype)

    def set_adapters(self, wanted: Mapping[str, Any]) -> None:
        """Copy the adapters with these names of peft's to where they are computed from. One that is
        wanted by nobody now, or is gone, keeps its position."""
        del self.adapters[len(wanted) :]
        for number, (name, revision) in enumerate(wanted.items()):
            gone = number < len(self.adapters) and name not in self.modules[0].lora_A
            if revision is None or gone:
                continue
            pieces = [_adapter(module, name) for module in self.modules]
            new = (
                torch.cat([down for down, _ in pieces]),
                torch.block_diag(*[up for _, up in pieces]),
            )
            if number == len(self.adapters):
                self.adapters.append(new)
            for kept, fresh in zip(self.adapters[number], new, strict=True):
                kept.copy_(fresh)


def product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, onednn: bool) -> Tensor:
    """x · weight + bias. On a CPU by oneDNN: for few rows it is up to half as fast again as what
    torch takes for float32, and two threads share its work better."""
    if x_NI.device.type != "cpu" or x_NI.dtype != torch.float32 or not onednn:
        return F.linear(x_NI, weight_OI, bias_O)
    y_NO: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return y_NO


def in_pieces(x_NI: Tensor, weight_OI: Tensor, step: int, most: int) -> Tensor:
    """A product, at most so many rows at a time, padded to a multiple of `step`."""
    if len(x_NI) <= most and len(x_NI) % step == 0:
        return F.linear(x_NI, weight_OI)
    padded_NI = F.pad(x_NI, (0, 0, 0, -len(x_NI) % step))
    pieces = [F.linear(piece_NI, weight_OI) for piece_NI in padded_NI.split(most)]
    return torch.cat(pieces)[: len(x_NI)]


def _adapter(module: Any, name: str) -> tuple[Tensor, Tensor]:
    return module.lora_A[name].weight, module.lora_B[name].weight * module.scaling[name]


def _fuse(modules: list[Any]) -> Linear:
    plain = [getattr(module, "base_layer", module) for module in modules]
    if len(plain) == 1:
        return Linear(modules, plain[0].weight.data, _bias(plain[0]))
    weight = torch.cat([linear.weight.data for linear in plain])
    bias = None if plain[0].bias is None else torch.cat([linear.bias.data for linear in plain])
    start = 0
    for linear in plain:
        rows = len(linear.weight)
        linear.weight.data = weight[start : start + rows]
        if bias is not None:
            linear.bias.data = bias[start : start + rows]
        start += rows
    return Linear(modules, weight, bias)


def _bias(linear: Any) -> Tensor | None:
    return None if linear.bias is None else linear.bias.data


@dataclass
class Layer:
    """Norms that a family does not have are None."""

    norm_in: Tensor | None
    qkv: Linear
    out: Linear
    norm_after_attention: Tensor | None
    norm_mid: Tensor | None
    gate_up: Linear
    down: Linear
    norm_after_mlp: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None  # of each query and key
    wide_norms: tuple[Tensor, Tensor] | None  # of all queries and all keys of a token together
    rope: Rope | None
    window: int  # positions that attention looks back on; 0: all
    norm: int  # how norms round, and whether 1 is added to their weights

    @property
    def linears(self) -> tuple[Linear, ...]:
        return (self.qkv, self.out, self.gate_up, self.down)


@dataclass
class Decoder:
    """A model, seen as embed → layers → head."""

    layers: list[Layer]
    embedding: Tensor
    embedding_scale: float
    norm_out: Tensor
    head: Linear
    logits: LogitShape
    limit: int  # the longest sequence
    eps: float
    scale: float  # of attention scores
    gelu: bool
    lora: bool
    shape: tuple[int, int, int]  # layers, key heads, their width

    @classmethod
    def of(cls, model: Any) -> Decoder:
        body, config = model.get_decoder(), model.config.get_text_config()
        family = FAMILIES[config.model_type]
        limit = config.max_position_embeddings
        ropes = family.ropes(body, limit)
        _, _, width = shape = cache_shape(config)
        return cls(
            layers=[_layer(layer, family, ropes, config) for layer in body.layers],
            embedding=body.embed_tokens.weight.data,
            embedding_scale=float(getattr(body.embed_tokens, "scalar_embed_scale", 1.0)),
            norm_out=body.norm.weight.data,
            head=Linear([], model.get_output_embeddings().weight.data, None),
            logits=logit_shape(config),
            limit=limit,
            eps=config.rms_norm_eps,
            scale=(getattr(config, "query_pre_attn_scalar", None) or width) ** -0.5,
            gelu=family.gelu,
            lora=has_adapters(model),
            shape=shape,
        )

    def is_of(self, model: Any) -> bool:
        """Whether this is still the model's own memory: weights that were assigned in place of
        others, instead of copying into them, are not seen here."""
        body = model.get_decoder()
        own = [(self.embedding, body.embed_tokens.weight), (self.norm_out, body.norm.weight)]
        own += [
            (linear.weight, getattr(linear.modules[0], "base_layer", linear.modules[0]).weight)
            for layer in self.layers
            for linear in layer.linears
        ]
        return all(mine.data_ptr() == theirs.data_ptr() for mine, theirs in own)

    def set_adapters(self, wanted: Mapping[str, Any]) -> None:
        for layer in self.layers:
            for linear in layer.linears:
                linear.set_adapters(wanted)

    def use_onednn(self, use: bool) -> None:
        for linear in (self.head, *(one for layer in self.layers for one in layer.linears)):
            linear.onednn = use

    def hidden(
        self,
        ids_N: Tensor,
        adapter_N: Tensor | None,
        kit: Any,
        caches: Sequence[Cache],
        pages: Any,
    ) -> Tensor:
        """The last hidden state of every token; `kit` has the pieces, and keys and values are left
        in the caches."""
        x_NH = F.embedding(ids_N, self.embedding)
        if self.embedding_scale != 1:
            x_NH = x_NH * torch.tensor(self.embedding_scale, dtype=x_NH.dtype)
        delta: Tensor | None = None
        after: Tensor | None = None
        for layer, cache in zip(self.layers, caches, strict=True):
            add_norm = partial(kit.add_norm, eps=self.eps, norm=layer.norm)
            qkv_NX = layer.qkv(add_norm(x_NH, delta, after, layer.norm_in), adapter_N)
            if layer.wide_norms is not None:
                _norm_wide(qkv_NX, layer, self.shape, add_norm)
            q_NQD = kit.rotate(qkv_NX, layer, cache, pages, self.eps)
            delta = layer.out(kit.attend(q_NQD, layer, cache, pages, self.scale), adapter_N)
            mid = add_norm(x_NH, delta, layer.norm_after_attention, layer.norm_mid)
            delta = layer.down(kit.gate(layer.gate_up(mid, adapter_N), self.gelu), adapter_N)
            after = layer.norm_after_mlp
        return kit.add_norm(x_NH, delta, after, self.norm_out, self.eps, self.layers[0].norm)


def _norm_wide(qkv_NX: Tensor, layer: Layer, shape: tuple[int, int, int], add_norm: Any) -> None:
    assert layer.wide_norms is not None
    start = 0
    for weight in layer.wide_norms:
        part = qkv_NX[:, start : start + len(weight)]
        part.copy_(add_norm(part, None, None, weight))
        start += len(weight)


def _weight(owner: Any, name: str) -> Tensor | None:
    module = getattr(owner, name, None)
    return None if module is None else module.weight.data


def _layer(layer: Any, family: Family, ropes: Any, config: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    norms = None
    if hasattr(attention, "q_norm"):
        norms = (attention.q_norm.weight.data, attention.k_norm.weight.data)
    if hasattr(attention, "qkv_proj"):
        qkv, gate_up = [attention.qkv_proj], [mlp.gate_up_proj]
    else:
        qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
        gate_up = [mlp.gate_proj, mlp.up_proj]
    post = family.post_norms
    mid = "pre_feedforward_layernorm" if post else "post_attention_layernorm"
    return Layer(
        norm_in=_weight(layer, "input_layernorm"),
        qkv=_fuse(qkv),
        out=_fuse([attention.o_proj]),
        norm_after_attention=_weight(layer, "post_attention_layernorm") if post else None,
        norm_mid=_weight(layer, mid),
        gate_up=_fuse(gate_up),
        down=_fuse([mlp.down_proj]),
        norm_after_mlp=_weight(layer, "post_feedforward_layernorm") if post else None,
        head_norms=None if family.wide_norms else norms,
        wide_norms=norms if family.wide_norms else None,
        rope=family.rope_of(attention, ropes),
        window=window_of(attention, config),
        norm=family.norm,
    )
