"""AdamW over float32 masters: what a step of the learner does once the gradients are there. The
work over all weights is done by few kernels, for a small model has hundreds of tensors."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from sparring.core.errors import ConfigError
from sparring.learn.bf16_adam import Bfloat16AdamW
from sparring.run.config import LearnConfig

PART = 2**26  # weights whose gradients are widened at once, at most, unless one tensor has more


class Optimizer:
    """AdamW over float32 masters, for weights of any dtype."""

    multi_tensor = True  # whether one kernel may update all weights

    def __init__(self, parameters: dict[str, Any], config: LearnConfig) -> None:
        self.parameters = parameters
        self.masters = make_masters(parameters)
        self.moments = config.moments
        on_gpu = self.multi_tensor and all(m.is_cuda for m in self.masters.values())
        self.fused = self.multi_tensor and self.moments == "float32"
        self.gradients, self._views = _flat_gradients(parameters) if on_gpu else (None, [])
        options: dict[str, Any] = {
            "lr": config.lr,
            "betas": config.betas,
            "weight_decay": config.weight_decay,
        }
        masters = list(self.masters.values())
        self.adam: torch.optim.Optimizer
        if self.moments != "float32":
            self.adam = _small_adam(self.moments, self.multi_tensor)(masters, **options)
        else:
            foreach = None if self.multi_tensor else False
            self.adam = torch.optim.AdamW(
                masters, foreach=foreach, fused=self.fused or None, **options
            )

    def steps(self) -> int:
        """Optimizer steps taken so far."""
        counts = [state["step"] for state in self.adam.state.values() if "step" in state]
        return int(counts[0]) if counts else 0

    def zero_grad(self) -> None:
        """Drop gradients. On a GPU they are parts of one buffer that stays where it is: one kernel
        clears it, and captured graphs find it again."""
        if self.gradients is not None:
            self.gradients.zero_()
            for p, own in self._views:
                p.grad = own
            return
        for p in self.parameters.values():
            p.grad = None

    def step(self, lr: float, max_norm: float, refused: Tensor | None = None) -> Tensor:
        """One step; the norm of its gradient. A step whose norm is not finite is not taken, nor one
        that is refused. On a GPU the device decides that, and the host does not wait."""
        for group in self.adam.param_groups:
            group["lr"] = lr
        rounded = [(p, self.masters[n]) for n, p in self.parameters.items()]
        rounded = [(p, master) for p, master in rounded if master is not p and p.grad is not None]
        in_parts = self.multi_tensor and 0 < len(rounded) == self._given()
        if in_parts:
            norm, parts = _norm([p.grad for p, _ in rounded]), _parts(rounded)
        else:
            self._take_gradients(rounded)
            norm, parts = self.clip(max_norm), [rounded]
        skipped = ~norm.isfinite() if refused is None else ~norm.isfinite() | refused
        if self.fused:
            self.adam.found_inf = skipped.float()  # type: ignore[attr-defined]
        for part in parts if self.fused or not skipped else []:
            if in_parts:
                self._take_gradients(part)
                scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
                torch._foreach_mul_([master.grad for _, master in part], scale)
            self.adam.step()
            for _, master in part:
                master.grad = None  # as large as the master, and of no use until the next step
        if self.gradients is None:
            self.zero_grad()
        self._copy([p for p, _ in rounded], [master for _, master in rounded])
        return norm

    def _given(self) -> int:
        return sum(p.grad is not None for p in self.parameters.values())

    def clip(self, max_norm: float) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(list(self.masters.values()), max_norm)

    def _take_gradients(self, rounded: list[tuple[Any, Any]]) -> None:
        """The gradients of rounded weights, in float32, for their masters."""
        for _, master in rounded:
            master.grad = torch.empty_like(master)
        self._copy([master.grad for _, master in rounded], [p.grad for p, _ in rounded])

    @torch.no_grad()
    def _copy(self, to: list[Tensor], given: list[Tensor]) -> None:
        if self.multi_tensor and to:
            torch._foreach_copy_(to, given)
            return
        for one, other in zip(to, given, strict=True):
            one.copy_(other)

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            if master is not self.parameters[name]:
                state[f"{name}/master"] = master
            for key, value in self.adam.state.get(master, {}).items():
                state[f"{name}/{key}"] = torch.as_tensor(value)
        return state

    def load(self, state: dict[str, Tensor]) -> None:
        slots: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for key, value in state.items():
            name, slot = key.rsplit("/", 1)
            slots[name][slot] = value
        self.adam.state.clear()
        for name, master in self.masters.items():
            own = slots.get(name, {})
            if "master" in own:
                with torch.no_grad():
                    master.copy_(own.pop("master"))
            if own:
                # AdamW counts its steps on the CPU, unless one kernel does all of the step.
                counted = master.device if self.fused else torch.device("cpu")
                self.adam.state[master] = {
                    k: v.to(counted if k == "step" else master.device).clone()
                    for k, v in own.items()
                }
                if self.moments == "8bit":  # which counts in Python
                    self.adam.state[master]["step"] = int(own["step"])


def _norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all of them, in float32 whatever they are in."""
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack(norms))


def _parts(rounded: list[tuple[Any, Any]]) -> list[list[tuple[Any, Any]]]:
    """Weights to step together: gradients of one part at a time are float32."""
    parts: list[list[tuple[Any, Any]]] = []
    size = PART
    for p, master in rounded:
        if size + master.numel() > PART:
            parts.append([])
            size = 0
        parts[-1].append((p, master))
        size += master.numel()
    return parts


def _small_adam(moments: str, whole: bool) -> Any:
    """AdamW that keeps its moments in bfloat16, or in 8 bits, in blocks with a scale each."""
    if not whole:
        raise ConfigError(
            f"learn.moments={moments} does not go with learn.shard; leave one of them out"
        )
    if moments == "bfloat16":
        return Bfloat16AdamW
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise ConfigError(
            "learn.moments=8bit needs bitsandbytes, which is not installed: "
            "pip install 'sparring[8bit]', or leave learn.moments out"
        ) from error
    return AdamW8bit


def _flat_gradients(parameters: dict[str, Any]) -> tuple[Tensor | None, list[tuple[Any, Tensor]]]:
    """One buffer for the gradients of all parameters, and each one's part of it; none where their
    dtypes differ."""
    own = list(parameters.values())
    if len({(p.dtype, p.device) for p in own}) != 1:
        return None, []
    flat = torch.zeros(sum(p.numel() for p in own), dtype=own[0].dtype, device=own[0].device)
    parts = flat.split([p.numel() for p in own])
    return flat, [(p, part.view_as(p)) for p, part in zip(own, parts, strict=True)]


def make_masters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Float32 copies to move, so that small steps are not rounded away; or the weights themselves,
    where they are float32."""
    return {
        name: p if p.dtype == torch.float32 else p.detach().float().clone()
        for name, p in parameters.items()
    }
