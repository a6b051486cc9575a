"""The embedded engine for policies on several base models: one queue, so that batches depend on
nothing but who asks, and an engine for each base that makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparring.core.tree import Infoset
from sparring.core.types import Request, Sampling, Turn
from sparring.engines.local.engine import AnyRunner, TransformersEngine
from sparring.engines.local.rows import Row, Waiting
from sparring.engines.local.sampling import Trie
from sparring.models.chat import Chat
from sparring.models.multi_base import ManyPolicies
from sparring.models.policies import Policies


def embedded(policies: Policies, **options: Any) -> TransformersEngine:
    """The engine in this process for policies on one base model, or on several."""
    kind = BasesEngine if isinstance(policies, ManyPolicies) else TransformersEngine
    return kind(policies, **options)


class BasesEngine(TransformersEngine):
    def __init__(self, policies: Policies, **options: Any) -> None:
        super().__init__(policies, **options)
        assert isinstance(policies, ManyPolicies)
        self._bases = policies
        self._engines = {id(p): TransformersEngine(p, **options) for p in policies.bases.values()}
        self.chat = _Chats(policies.tokenizer, self.of)

    def of(self, policy: str) -> TransformersEngine:
        return self._engines[id(self._bases.home(policy))]

    def _on_token(self, request: Request) -> Callable[[int], None] | None:
        self.of(request.policy)._listeners = self._listeners
        return self.of(request.policy)._on_token(request)

    def _trie(self, request: Request) -> Trie | None:
        return self.of(request.policy)._trie(request)

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        return self.of(policy).probabilities(policy, asked, sampling)

    def _forget(self) -> None:
        for engine in self._engines.values():
            engine._forget()
        self._stale = False

    def _runner(self, policy: str) -> AnyRunner:
        return self.of(policy)._runner(policy)

    def _all_runners(self) -> list[AnyRunner]:
        return [runner for engine in self._engines.values() for runner in engine._all_runners()]

    def _turn(self, waiting: Waiting, row: Row) -> Turn:
        return TransformersEngine._turn(self.of(waiting.request.policy), waiting, row)


class _Chats(Chat):
    """The first base's words, but for prompts, which are in those of the policy that is asked."""

    def __init__(self, tokenizer: Any, of: Callable[[str], TransformersEngine]) -> None:
        super().__init__(tokenizer)
        self.of = of

    def prompt_ids(self, request: Request) -> list[int]:
        return self.of(request.policy).chat.prompt_ids(request)
