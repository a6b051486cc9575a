"""The weights of a Llama-shaped model as a fast decode step wants them: q, k and v in one matrix,
gate and up in one, adapters of several policies side by side.

The fused matrices are no copies: the model's own parameters become views into them, so that what
the learner moves is what speaks next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.models.logits import LogitShape, logit_shape

FAMILIES = ("llama", "qwen2", "qwen3")
Cache = tuple[Tensor, Tensor]  # keys and values of one layer, each slots × heads × places × width


def unsupported(model: Any) -> str:
    """Why this decoder cannot speak for a model; nothing if it can."""
    config = model.config
    if any(type(weight.data).__name__ == "DTensor" for weight in model.parameters()):
        return "its weights are spread over several processes"
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is not one of {', '.join(FAMILIES)}"
    if logit_shape(config) != LogitShape():
        return "it scales its logits"
    if config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        return "its MLP is not the usual one"
    if getattr(config, "use_sliding_window", False):
        return "it attends through a sliding window"
    if config.rope_parameters.get("rope_type", "default") not in ("default", "linear", "llama3"):
        return "its rotary embedding depends on the length"
    return ""


def cache_shape(config: Any) -> tuple[int, int, int]:
    """Layers, key heads and their width: what a token's keys and values take."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, config.num_key_value_heads, width


def has_adapters(model: Any) -> bool:
    return hasattr(model.get_decoder().layers[0].self_attn.q_proj, "lora_A")


# Who speaks: one policy for all rows, one for each, or the rows of each.
Who = int | Tensor | list[tuple[int, Tensor]]
Stack = tuple[Tensor, Tensor]  # down A×R×I and up A×O×R: A policies, R ranks, I inputs, O outputs


@dataclass
class Linear:
    """One matrix for several of the model's, and the low-rank corrections of whoever speaks."""

    modules: list[Any]
    weight: Tensor
    bias: Tensor | None
    stack: Stack | None = None
    # By how many policies they hold. They stay where they are: captured graphs look there.
    stacks: dict[int, Stack] = field(default_factory=dict)

    def __call__(self, x_NI: Tensor, who: Who) -> Tensor:
        y = F.linear(x_NI, self.weight, self.bias)
        if self.stack is None:
            return y
        down_ARI, up_AOR = self.stack
        x = x_NI.to(down_ARI.dtype)
        if isinstance(who, int):
            low = F.linear(F.linear(x, down_ARI[who]), up_AOR[who])
        elif isinstance(who, list):
            low = torch.zeros_like(y, dtype=x.dtype)
            for a, rows in who:
                low[rows] = F.linear(F.linear(x[rows], down_ARI[a]), up_AOR[a])
        else:
            low = torch.bmm(down_ARI[who], x[:, :, None])
            low = torch.bmm(up_AOR[who], low)[:, :, 0]
        return (y + low).to(y.dtype)

    def seat(self, slots: Sequence[str | None]) -> None:
        """Lay the adapters of these policies side by side; None stands for the bare model."""
        if all(slot is None for slot in slots):
            self.stack = None
            return
        downs, ups = [], []
        for slot in slots:
            pieces = [_adapter(module, slot) for module in self.modules]
            downs.append(torch.cat([down for down, _ in pieces]))
            ups.append(torch.block_diag(*[up for _, up in pieces]))
        fresh = torch.stack(downs), torch.stack(ups)
        self.stack = self.stacks.setdefault(len(slots), fresh)
        for kept, new in zip(self.stack, fresh, strict=True):
            kept.copy_(new)


def _adapter(module: Any, slot: str | None) -> tuple[Tensor, Tensor]:
    some = next(iter(module.lora_A.values())).weight
    if slot is None:
        out = module.base_layer.weight.shape[0]
        return some.new_zeros(some.shape), some.new_zeros(out, len(some))
    up = module.lora_B[slot].weight
    return module.lora_A[slot].weight, up * module.scaling[slot]


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
    norm_in: Tensor
    qkv: Linear
    out: Linear
    norm_mid: Tensor
    gate_up: Linear
    down: Linear
    head_norms: tuple[Tensor, Tensor] | None

    @property
    def linears(self) -> tuple[Linear, ...]:
        return (self.qkv, self.out, self.gate_up, self.down)


@dataclass
class Decoder:
    """A model, seen as embed → layers → head."""

    layers: list[Layer]
    embedding: Tensor
    norm_out: Tensor
    head: Tensor
    rope: tuple[Tensor, Tensor]
    limit: int  # the longest sequence
    eps: float
    lora: bool
    graphs: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, limit: int, spare: int = 0) -> Decoder:
        """`limit` is the longest sequence to be spoken; `spare` are positions after it, which a
        batch may step on with rows that have ended."""
        body = model.get_decoder()
        at = torch.arange(limit + spare, device=model.device)[None]
        cos, sin = body.rotary_emb(body.embed_tokens.weight[:1, None], at)
        return cls(
            layers=[_layer(layer) for layer in body.layers],
            embedding=body.embed_tokens.weight.data,
            norm_out=body.norm.weight.data,
            head=model.get_output_embeddings().weight.data,
            rope=(cos[0].contiguous(), sin[0].contiguous()),
            limit=limit,
            eps=model.config.rms_norm_eps,
            lora=has_adapters(model),
        )

    def is_of(self, model: Any) -> bool:
        """Whether this is the model's own memory still: weights that somebody put in the place of
        others, instead of copying into them, are not seen here."""
        body = model.get_decoder()
        own = [(self.embedding, body.embed_tokens.weight), (self.norm_out, body.norm.weight)]
        own += [
            (linear.weight, getattr(linear.modules[0], "base_layer", linear.modules[0]).weight)
            for layer in self.layers
            for linear in layer.linears
        ]
        return all(mine.data_ptr() == theirs.data_ptr() for mine, theirs in own)

    def check_length(self, needed: int) -> None:
        """Kernels do not look where the rotary table ends: what lies there would be read."""
        if needed > self.limit:
            raise ValueError(
                f"a prompt and its reply need {needed} positions, and the model has {self.limit}"
            )

    def seat(self, slots: Sequence[str | None]) -> None:
        for layer in self.layers:
            for linear in layer.linears:
                linear.seat(slots)

    def hidden(
        self,
        ids_N: Tensor,
        who: Who,
        kit: Any,
        attend: Callable[[int, Tensor], Tensor],
    ) -> Tensor:
        """The last hidden state of every token. `kit` has the pieces, and `attend` makes of a
        layer's queries, keys and values what its tokens see."""
        x = F.embedding(ids_N, self.embedding)
        delta: Tensor | None = None
        for i, layer in enumerate(self.layers):
            qkv = layer.qkv(kit.add_norm(x, delta, layer.norm_in, self.eps), who)
            delta = layer.out(attend(i, qkv), who)
            both = layer.gate_up(kit.add_norm(x, delta, layer.norm_mid, self.eps), who)
            delta = layer.down(kit.silu_times(both), who)
        return kit.add_norm(x, delta, self.norm_out, self.eps)


def _layer(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    norms = None
    if hasattr(attention, "q_norm"):
        norms = (attention.q_norm.weight.data, attention.k_norm.weight.data)
    return Layer(
        norm_in=layer.input_layernorm.weight.data,
        qkv=_fuse([attention.q_proj, attention.k_proj, attention.v_proj]),
        out=_fuse([attention.o_proj]),
        norm_mid=layer.post_attention_layernorm.weight.data,
        gate_up=_fuse([mlp.gate_proj, mlp.up_proj]),
        down=_fuse([mlp.down_proj]),
        head_norms=norms,
    )
