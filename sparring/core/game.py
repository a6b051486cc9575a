"""The contract between a game and the rest: a game is an async function over a table of players."""

from __future__ import annotations

import math
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sparring.core.table import Speak, Table
from sparring.core.tree import Infoset, Tree, TreeTooLarge
from sparring.core.types import (
    Episode,
    Sampling,
    Task,
    Turn,
    View,
)


@dataclass(frozen=True)
class Probe:
    """A policy that can be asked directly, as it was trained to be asked."""

    policy: str
    speak: Speak
    sampling: Sampling
    # Per information state, how likely each legal action is as the reply.
    probabilities: Callable[[str, Sequence[Infoset], Sampling], list[list[float]]]
    replies: int = 100  # at each point, where a figure must be estimated by sampling
    seed: int = 0


@dataclass(frozen=True)
class Frame:
    """One step of a drawn game: the scene as SVG or HTML, whose turn it was, and a remark."""

    label: str
    scene: str
    turn: Turn | None = None
    note: str = ""
    mood: str = ""  # good | bad, for the note


class Outcome:
    """How a game ended: a reward per seat, and whatever facts the game wants on record."""

    def __init__(
        self,
        rewards: Mapping[str, float] | None = None,
        *,
        facts: Mapping[str, Any] | None = None,
        void: str | None = None,
        **by_seat: float,
    ) -> None:
        self.rewards = {seat: float(r) for seat, r in {**(rewards or {}), **by_seat}.items()}
        for seat, reward in self.rewards.items():
            if not math.isfinite(reward):
                raise ValueError(
                    f"the reward of {seat!r} is {reward}; it has to be a finite number"
                )
        self.facts = dict(facts or {})
        self.void = void


class Remote(str):
    """The config's word for the jail, where judges are to rule on other machines."""


class _Closed:
    """Stands for the judge of a game that is not open."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by copy and pickle
            raise AttributeError(name)
        raise RuntimeError("the game is not open: play it inside `async with opened([game])`")


@dataclass
class Game:
    """Subclass it, name the seats, write `play`. Fields of a subclass are its options."""

    seats: ClassVar[tuple[str, ...]] = ()
    zero_sum: ClassVar[bool] = False
    cooperative: ClassVar[bool] = False  # won together: evaluated by playing with itself
    problems: ClassVar[str] = ""  # the shipped set of a game that does not make its own tasks
    runs_code: ClassVar[bool] = False  # whether it needs the jail
    title: ClassVar[str] = ""  # as people say it; the name in words otherwise
    glyph: ClassVar[str] = "❝"  # stands for a game in lists; none: its last frame does

    judge: Any = field(default_factory=_Closed, init=False, repr=False, compare=False)
    _running: Any = field(default=None, init=False, repr=False, compare=False)

    async def play(self, task: Task, table: Table) -> Outcome:
        raise TypeError(f"{type(self).__name__} is a game without a play method")

    def task(self, seed: int) -> Task:
        """The task of a seed, for games that make their own; others are given theirs."""
        return Task(id=str(seed), game=type(self).__name__, data={"seed": seed})

    def check(self, task: Task) -> None:
        """Refuse a task that this game cannot be played on, before anything is played."""

    def unusable(self, task: Task) -> str:
        """Why a task of a source is left out, as `kind: reason`; nothing where it can be played."""
        return ""

    def check_all(self, tasks: Sequence[Task], sandbox: str) -> None:
        """Refuse what should not be played on; the place for what only a judge can say."""
        for task in tasks:
            self.check(task)

    def suited(self, tasks: Sequence[Task], seed: int) -> Sequence[Task]:
        """Those of the tasks that the game of this seed can be played on; all of them, mostly."""
        return tasks

    def summary(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """What this game's episodes come to besides rewards, as metrics; void ones are left out."""
        return {}

    def score(self, episodes: Sequence[Episode]) -> float | None:
        """The one number of games on tasks held out that picks the best checkpoint, if any."""
        return None

    def measures(self, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
        """What games on record show of a policy that played in them; none of them is void."""
        return {}

    def tree(self) -> Tree | None:
        """Every position of a game that is small enough: its exact measures then come for free."""
        return None

    def need_tree(self) -> Tree:
        """The tree, or an error that says why there is none and how to estimate instead."""
        try:
            tree = self.tree()
        except TreeTooLarge as error:
            raise error.with_size() from None
        if tree is None:
            raise TreeTooLarge(
                f"{type(self).__name__} has no tree to measure a policy in; a match estimates: "
                "sparring arena POLICY --against OPPONENT"
            )
        return tree

    async def closing(self, name: str, policy: Probe) -> dict[str, Any]:
        """Further results for the closing evaluation, such as at other sizes of the game."""
        return {}

    def reply_score(self, task: Task, text: str) -> float | None:
        """What one reply is worth outside a game, where another trainer asks for it alone."""
        return None

    def board(self, episode: Episode) -> list[Frame]:
        """The game drawn step by step; empty where there is nothing to draw."""
        return []

    def scene(self, view: View, seat: str) -> str:
        """A position as the player to move sees it, as SVG or HTML, for a browser; an
        element with `data-action` is a move to click on."""
        return ""

    def action_names(self, view: View) -> tuple[str, ...]:
        """The actions of a view as a person reads them, where a style has codes for them."""
        return view.actions

    def in_words(self, view: View) -> Any:
        """A position as a person reads it in a terminal, where the prompt is terse."""
        return view.state

    def record(self, episode: Episode) -> dict[str, Any]:
        """What a person looks for first in a line of recorded games."""
        return {}

    def make_judge(self, sandbox: str) -> AbstractAsyncContextManager[Any] | None:
        """What rules on this game, not yet started; `sandbox` is the config's word for the jail."""
        return None

    async def open(self, sandbox: str) -> None:
        """Start the judge: `judge` is what it gives when it is entered."""
        self._running = self.make_judge(sandbox)
        if self._running is not None:
            self.judge = await self._running.__aenter__()

    async def close(self) -> None:
        """Stop what `open` started."""
        running, self._running, self.judge = self._running, None, _Closed()
        if running is not None:
            await running.__aexit__(None, None, None)

    def match_task(self, seed: int) -> Task:
        """The task of a game that counts; differs where training begins in special places."""
        return self.task(seed)

    def perfect(self, view: View, seed: int) -> str:
        """The action of a perfect player, for games that are solved."""
        raise ValueError(f"{type(self).__name__} has no perfect player")

    def scripted(self, view: View, seed: int) -> str:
        """The action of a strong programmed player, for games that have one."""
        raise ValueError(f"{type(self).__name__} has no scripted player")


@dataclass(frozen=True)
class Forfeit:
    """What a broken rule costs and pays."""

    offender: float = -1.5
    other: float = 0.5

    def outcome(self, seats: Sequence[str], offender: str, reason: str, **facts: Any) -> Outcome:
        rewards = {seat: self.offender if seat == offender else self.other for seat in seats}
        return Outcome(
            rewards, facts={"end": "invalid", "invalid": offender, "reason": reason, **facts}
        )


@asynccontextmanager
async def opened(games: Iterable[Game], sandbox: str = "bubblewrap") -> AsyncIterator[None]:
    """The time in which games can be played: their judges run, and are stopped whatever happens."""
    async with AsyncExitStack() as stack:
        for game in games:
            stack.push_async_callback(game.close)
            await game.open(sandbox)
        yield
