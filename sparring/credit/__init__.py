"""Credit turns rewards into advantages, and episodes into samples."""

from __future__ import annotations

from typing import Any, Protocol

from sparring.core.types import Episode
from sparring.credit.gae import Gae
from sparring.credit.group_relative import GroupRelative
from sparring.credit.prompt_baseline import PromptBaseline
from sparring.credit.role_baseline import RoleBaseline


class Credit(Protocol):
    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        """For each episode, the advantage of each of its turns."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


def make_credit(
    kind: str,
    *,
    decay: float = 0.95,
    scale: bool = False,
    trace: float = 1.0,
    gamma: float = 1.0,
    whiten: bool = True,
    seats: str = "apart",
) -> Credit | Gae:
    if kind == "gae":
        return Gae(gamma, trace, whitened=whiten)
    if kind == "role_baseline":
        return RoleBaseline(decay)
    if kind == "prompt_baseline":
        return PromptBaseline(decay, trace=trace)
    return GroupRelative(
        leave_one_out=kind == "leave_one_out", scale=scale, together=seats == "together"
    )
