"""Credit turns rewards into advantages, and episodes into samples."""

from __future__ import annotations

from typing import Any, Protocol

from sparring.credit.group_relative import GroupRelative
from sparring.credit.role_baseline import RoleBaseline
from sparring.types import Episode

Advantages = dict[str, float]  # seat -> advantage of every token that seat said


class Credit(Protocol):
    def advantages(self, episodes: list[Episode]) -> list[Advantages]: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


def make_credit(kind: str, *, decay: float = 0.95, scale: bool = False) -> Credit:
    if kind == "role_baseline":
        return RoleBaseline(decay)
    return GroupRelative(leave_one_out=kind == "leave_one_out", scale=scale)
