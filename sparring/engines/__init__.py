"""Who generates. An engine is anything with `async act(request) -> Turn`; batching is its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from sparring.core.types import Request, Sampling, Turn

if TYPE_CHECKING:
    from sparring.models.chat import Chat
    from sparring.models.policies import Policies


class Engine(Protocol):
    async def act(self, request: Request) -> Turn: ...

    def outside(self) -> AbstractContextManager[None]:
        """Held by a game that waits for something other than this engine."""
        ...


class OwnEngine(Engine, Protocol):
    """An engine of a run's own policies."""

    chat: Chat
    policies: Policies
    base: str  # which base model this is, for whoever would add a policy to it

    def probabilities(
        self, policy: str, prompts: Sequence[str], sampling: Sampling
    ) -> list[dict[str, float]]:
        """Per prompt, how likely each text is as a reply of one token."""
        ...
