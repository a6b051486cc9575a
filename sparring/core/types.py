"""The records every part of Sparring speaks in. Stdlib only: imported by all, imports none.

A token's way: Task ─play─▶ Turn ─▶ Episode ─credit─▶ Sample ─▶ loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": text}
BASE = "base"  # the base model, which is not trained
MAIN = "main"  # the policy that learns, where there is one
REFERENCE = "reference"  # begins the names of policies that only score
Status = Literal["pass", "fail", "void"]


class VoidGame(Exception):
    """Raised in a game when no fair outcome can be had; the message is the reason on record."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to play: a board, a pair of programs, a problem with its tests."""

    id: str
    game: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's ruling. `void` means the judge broke, never that the judged did."""

    status: Status
    kind: str = ""
    detail: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.status == "pass"


COLDEST = 1e-6  # logits divided by less may be too large for their dtype


def drawable(temperature: float) -> float:
    """A temperature at which tokens can be drawn, or an error that says what is wrong."""
    if 0 < temperature < COLDEST:
        raise ValueError(f"temperature must be 0 or at least {COLDEST:g}, not {temperature!r}")
    return temperature


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn. Temperature 0 is greedy; top_k 0 and top_p 1 cut nothing."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    mask_actions: bool = False  # only the view's legal actions can be drawn

    @property
    def truncated(self) -> bool:
        """Whether tokens are drawn from less than the whole softmax, greedily included."""
        return self.top_k > 0 or self.top_p < 1 or self.temperature == 0


@dataclass(frozen=True, slots=True)
class View:
    """What a player that is a program may look at instead of the prompt's words."""

    state: Any
    actions: tuple[str, ...]


@dataclass(slots=True)
class Request:
    """One player waiting for words: who speaks, on what, drawn how."""

    seat: str
    policy: str
    messages: list[Message]
    sampling: Sampling
    seed: int
    order: tuple[int, ...] = ()  # sorts a batch, so that batches do not depend on timing
    previous: Turn | None = None  # the turn whose ids this prompt extends
    # Earlier messages, for engines without ids.
    history: list[Message] = field(default_factory=list)
    view: View | None = None


@dataclass(slots=True)
class Turn:
    """One player's prompt and reply, in the very ids that were sampled."""

    seat: str
    policy: str
    prompt: str  # the last message, as text; all of it is in `prompt_ids`
    text: str
    version: int = 0
    prompt_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = "stop"  # stop | length | scripted
    temperature: float = 1.0  # the logprobs are those of logits / temperature
    truncated: bool = False  # and of what top-k, top-p or greed left of them
    trainable: bool = False
    stage: str = ""  # in games whose seats speak in stages
    # One per sampled token, or one that all of them share; empty where not learned from.
    advantages: list[float] = field(default_factory=list)
    allowed: list[list[int]] = field(default_factory=list)  # per token, where actions were masked
    reward: float = 0.0  # of this turn alone, which a game may set; beside the outcome's
    before: list[Message] = field(default_factory=list)  # earlier messages, where there are no ids
    thoughts: str = ""  # of a thinking model, which are no part of `text`


@dataclass(slots=True)
class Episode:
    """One finished game, or a void one with its reason."""

    id: str
    game: str
    task: Task
    seed: int
    group: str = ""  # episodes of one group are compared with each other
    seating: dict[str, str] = field(default_factory=dict)  # seat -> policy
    turns: list[Turn] = field(default_factory=list)
    rewards: dict[str, float] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    void: str | None = None


@dataclass(slots=True)
class Sample:
    """One sequence to learn from. All lists are as long as `ids`."""

    policy: str
    ids: list[int]
    mask: list[int]  # 1 where the token was sampled and is learned from
    advantages: list[float]
    logprobs: list[float]  # as sampled; 0 where mask is 0
    temperature: float = 1.0
    values: list[float] = field(default_factory=list)  # the critic's, before each token was drawn
    returns: list[float] = field(default_factory=list)  # targets of the critic; empty: none
    # Per token, what it was drawn from; an empty or missing entry stands for the whole vocabulary.
    allowed: list[list[int]] = field(default_factory=list)
    # The learner's own when it began to learn from the sample; empty: those as sampled.
    old_logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Pair:
    """One sequence that is preferred to another. Their logprobs are the reference's."""

    chosen: Sample
    rejected: Sample

    @property
    def policy(self) -> str:
        return self.chosen.policy


Lesson = Sample | Pair


def members(lesson: Lesson) -> tuple[Sample, ...]:
    """The sequences of a lesson: one, or the two of a pair."""
    return (lesson.chosen, lesson.rejected) if isinstance(lesson, Pair) else (lesson,)


def derive(*parts: object) -> int:
    """A 63-bit seed from any parts; the same parts always give the same seed."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """Plain data that shares the episode's lists: `asdict` copies every token of every turn, which
    took longer than anything else that is done with a finished game."""
    return {
        **_fields(episode),
        "task": _fields(episode.task),
        "turns": [_fields(turn) for turn in episode.turns],
        "verdicts": [_fields(verdict) for verdict in episode.verdicts],
    }


_VALUES = {kind: attrgetter(*kind.__slots__) for kind in (Task, Turn, Verdict, Episode)}


def _fields(record: Task | Turn | Verdict | Episode) -> dict[str, Any]:
    return dict(zip(record.__slots__, _VALUES[type(record)](record), strict=True))


def episode_from_json(data: Mapping[str, Any]) -> Episode:
    fields = dict(data)
    fields["task"] = Task(**fields["task"])
    fields["turns"] = [Turn(**turn) for turn in fields["turns"]]
    fields["verdicts"] = [Verdict(**verdict) for verdict in fields["verdicts"]]
    return Episode(**fields)
