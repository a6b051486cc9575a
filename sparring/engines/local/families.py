"""What the families of decoder-only models that the engine computes itself differ in. All others
are generated with transformers' own forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Rope = tuple[Tensor, Tensor]  # cosines and sines, each positions × rotary width

ROUND_FIRST, ROUND_LAST, PLUS_ONE = (
    0,
    1,
    2,
)  # norms: rounded before the weight, after it, 1 + weight
STATIC_ROPES = ("default", "linear", "llama3", "yarn")  # the same at every length of a sequence


@dataclass(frozen=True)
class Family:
    norm: int = ROUND_FIRST
    post_norms: bool = False  # of what attention and MLP add
    wide_norms: bool = False  # of all queries of a token at once, not of each head's
    gelu: bool = False
    by_layer_type: bool = False  # a rotary embedding for each type of layer

    def ropes(self, body: Any, positions: int) -> dict[str, Rope]:
        """The rotary embedding of each type of layer; "" is that of all."""
        like = body.embed_tokens.weight[:1, None]
        at = torch.arange(positions, device=like.device)[None]
        kinds = sorted(set(body.config.layer_types)) if self.by_layer_type else [""]
        tables = {kind: body.rotary_emb(like, at, *([kind] if kind else [])) for kind in kinds}
        return {kind: (c[0].contiguous(), s[0].contiguous()) for kind, (c, s) in tables.items()}

    def rope_of(self, attention: Any, ropes: dict[str, Rope]) -> Rope | None:
        if not getattr(attention, "use_rope", True):
            return None
        return ropes[attention.layer_type if self.by_layer_type else ""]


FAMILIES = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "smollm3": Family(),
    "phi3": Family(),
    "olmo2": Family(norm=ROUND_LAST, post_norms=True, wide_norms=True),
    "gemma3_text": Family(norm=PLUS_ONE, post_norms=True, gelu=True, by_layer_type=True),
}


def window_of(attention: Any, config: Any) -> int:
    """How many positions a layer looks back on; 0: all."""
    if hasattr(attention, "sliding_window"):
        return attention.sliding_window or 0
    if config.model_type in ("mistral", "phi3"):
        return config.sliding_window or 0
    return 0


def unsupported_family(config: Any) -> str:
    """Why a model with this config cannot be computed here; nothing if it can."""
    if config.model_type not in FAMILIES:
        return f"{config.model_type} is not one of {', '.join(FAMILIES)}"
    activation = getattr(config, "hidden_activation", None) or config.hidden_act
    if activation != ("gelu_pytorch_tanh" if FAMILIES[config.model_type].gelu else "silu"):
        return f"its MLP has the activation {activation}"
    if getattr(config, "mlp_bias", False):
        return "its MLP has biases"
    if getattr(config, "use_bidirectional_attention", False):
        return "it attends in both directions"
    if getattr(config, "attn_logit_softcapping", None):
        return "it caps its attention scores"
    ropes = config.rope_parameters
    nested = [r for r in ropes.values() if isinstance(r, dict)] or [ropes]
    kinds = {rope.get("rope_type", "default") for rope in nested}
    if not kinds <= set(STATIC_ROPES):
        return f"its rotary embedding ({', '.join(sorted(kinds))}) depends on the length"
    return ""
