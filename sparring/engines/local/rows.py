"""One request under way, and what every way of speaking in batches does with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparring.core.types import Sampling, Turn
from sparring.engines.local.generate import Reply, append_token, next_tokens, stopped
from sparring.engines.local.masking import Trie
from sparring.models.chat import Chat


def _nothing_yet() -> Reply:
    return Reply([], [], "length")


@dataclass(eq=False, slots=True)
class Row:
    """One request under way."""

    policy: tuple[str, int]  # name and version: what a slot remembers is theirs alone
    prompt: list[int]
    sampling: Sampling
    seed: int
    previous: Turn | None = None  # the turn whose ids the prompt extends
    who: int = 0
    slot: int = -1
    read: int = 0  # how much of the prompt is in the slot
    ear: Callable[[int], None] | None = None  # hears each token as it is drawn
    trie: Trie | None = None  # the legal actions, where only they can be drawn
    reply: Reply = field(default_factory=_nothing_yet)
    done: bool = False

    @property
    def carried(self) -> int:
        """How much of the prompt an earlier turn of this conversation holds."""
        last = self.previous
        return len(last.prompt_ids) + len(last.token_ids) if last else 0

    @property
    def needs(self) -> int:
        return len(self.prompt) + self.sampling.max_tokens

    @property
    def allowed(self) -> list[int]:
        """The tokens that may come next; none: all of them."""
        return next_tokens(self.trie, self.reply)

    def hear(self, token: int, logprob: float, ends: set[int], chat: Chat) -> None:
        reply, stops = self.reply, self.sampling.stop
        append_token(reply, token, logprob, self.allowed)
        if self.ear is not None:
            self.ear(token)
        complete = self.trie is not None and not self.allowed
        if token in ends or complete or (stops and stopped(chat, reply.token_ids, stops)):
            reply.finish, self.done = "stop", True
        elif len(reply.token_ids) >= self.sampling.max_tokens:
            self.done = True


def by_budget(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Groups of like lengths, each within a budget of tokens and of one policy; rows that go on are
    kept apart from those that begin, which need no mask."""

    def kind(row: Row) -> tuple[int, bool]:
        return row.who, row.read > 0

    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: (*kind(r), len(r.prompt) - r.read)):
        new = len(row.prompt) - row.read
        last = groups[-1] if groups else []
        if last and kind(last[0]) == kind(row) and (len(last) + 1) * new <= budget:
            last.append(row)
        else:
            groups.append([row])
    return groups
