"""Where one game is played: its players, its record of turns and verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sparring.core.errors import nearest
from sparring.core.types import Message, Request, Sampling, Turn, Verdict, View, derive

SAMPLING = {option.name for option in fields(Sampling)}
Speak = Callable[[Request], Awaitable[Turn]]


class Player:
    """One seat's voice. `act` starts a fresh conversation, `reply` goes on with the last one."""

    def __init__(self, seat: str, policy: str, trainable: bool, table: Table) -> None:
        self.seat, self.policy, self.trainable = seat, policy, trainable
        self._table = table
        self.last: Turn | None = None
        self.history: list[Message] = []

    async def act(
        self,
        prompt: str | Sequence[Message],
        *,
        system: str | None = None,
        view: View | None = None,
        stage: str = "",
        **sampling: Any,
    ) -> Turn:
        messages = _messages(prompt)
        if system is not None:
            messages = [{"role": "system", "content": system}, *messages]
        return await self._table.speak(self, messages, None, view, sampling, stage)

    async def reply(
        self, prompt: str | Sequence[Message], *, view: View | None = None, **sampling: Any
    ) -> Turn:
        """Answer in the same conversation: the earlier messages stay, id for id."""
        messages = _messages(prompt)
        return await self._table.speak(self, messages, self.last, view, sampling)

    def fork(self) -> Player:
        """The same player at the same point of its conversation, to be asked independently."""
        return copy(self)


@dataclass(eq=False)
class _Ruling:
    """A judge at work: which tasks it is, and the hold on engines that it has meanwhile."""

    tasks: set[asyncio.Task[Any]]
    within: _Ruling | None  # a judge may call another
    hold: ExitStack = field(default_factory=ExitStack)
    holding: bool = False


_ruling: ContextVar[_Ruling | None] = ContextVar("ruling", default=None)


class Table:
    """Where one game is played: its players, its record of turns and verdicts."""

    def __init__(
        self,
        seats: Sequence[str],
        seating: Mapping[str, str],
        speak: Speak,
        *,
        seed: int = 0,
        order: int = 0,
        trainable: Callable[[str, str], bool] = lambda seat, policy: False,
        sampling: Sampling | None = None,
        outside: Callable[[], Any] | None = None,
        stages: frozenset[str] | None = None,
    ) -> None:
        self.turns: list[Turn] = []
        self.verdicts: list[Verdict] = []
        self.seed = seed
        self._order = order
        self._asked = 0
        self._speak = speak
        self._sampling = sampling or Sampling()
        self._outside = outside or nullcontext
        self._rulings: list[_Ruling] = []
        self._asking: list[tuple[_Ruling | None, asyncio.Task[Any] | None]] = []  # and by whom
        self._awaiting: list[asyncio.Task[Any] | None] = []  # tasks that wait for a judge
        self._closed = False
        self._stages = stages  # whose turns train; None: all, and those without a stage always
        self._players = {
            seat: Player(seat, seating[seat], trainable(seat, seating[seat]), self)
            for seat in seats
        }

    def __getitem__(self, seat: str) -> Player:
        self._check_open()
        if seat not in self._players:
            raise LookupError(f"there is no seat {seat!r}; {nearest(str(seat), self._players)}")
        return self._players[seat]

    async def judge(self, ruling: Awaitable[Any]) -> Any:
        """Await a judge. Engines hold their next batch for it, so that runs repeat exactly;
        a `Verdict`, or a list of them, goes on the episode's record. Players may be asked in it:
        while a judge waits for an engine, no engine waits for the judge."""
        self._check_open()
        mine = _Ruling(_tasks_of(ruling), within=_ruling.get())
        outer = _ruling.set(mine)
        self._rulings.append(mine)
        self._hold_engines()
        self._awaiting.append(task := asyncio.current_task())
        try:
            result = await ruling
        finally:
            self._awaiting.remove(task)
            self._rulings.remove(mine)
            mine.hold.close()
            _ruling.reset(outer)
        rulings = result if isinstance(result, list | tuple) else [result]
        self.verdicts += [v for v in rulings if isinstance(v, Verdict)]
        return result

    async def speak(
        self,
        player: Player,
        messages: list[Message],
        previous: Turn | None,
        view: View | None,
        sampling: dict[str, Any],
        stage: str = "",
    ) -> Turn:
        """Ask a player; its conversation goes on with the turn, from `previous` or anew."""
        history = player.history if previous is not None else []
        unknown = sampling.keys() - SAMPLING
        if unknown:
            word = min(unknown)
            raise TypeError(f"there is no sampling option {word!r}; {nearest(word, SAMPLING)}")
        number = self._asked
        self._asked += 1
        given = {key: value for key, value in sampling.items() if value is not None}
        request = Request(
            seat=player.seat,
            policy=player.policy,
            messages=messages,
            sampling=replace(self._sampling, **given),
            seed=derive(self.seed, number),
            order=(self._order, number),
            previous=previous,
            history=history,
            view=view,
        )
        turn = await self._answer(request)
        turn.stage = stage
        turn.truncated = request.sampling.truncated and bool(turn.token_ids)
        if not turn.prompt_ids:
            turn.before = [*history, *messages[:-1]]
        taught = not stage or self._stages is None or stage in self._stages
        turn.trainable = player.trainable and taught and bool(turn.token_ids)
        self.turns.append(turn)
        player.last = turn
        player.history = [*history, *messages, {"role": "assistant", "content": turn.text}]
        return turn

    async def _answer(self, request: Request) -> Turn:
        self._check_open()
        asking = (_ruling.get(), asyncio.current_task())
        self._asking.append(asking)
        self._hold_engines()
        try:
            return await self._speak(request)
        finally:
            self._asking.remove(asking)
            self._hold_engines()

    def _hold_engines(self) -> None:
        """Engines wait for every judge but those that wait for an engine themselves."""
        if not self._rulings:
            return
        waiting: set[_Ruling] = set()
        for by, task in self._asking:
            judges = [by, *(ruling for ruling in self._rulings if task in ruling.tasks)]
            waiting.update(outer for judge in judges for outer in _outwards(judge))
        for ruling in self._rulings:
            waits = ruling in waiting
            if waits and ruling.holding:
                ruling.hold.close()
            elif not waits and not ruling.holding:
                ruling.hold.enter_context(self._outside())
            ruling.holding = not waits

    async def close(self) -> None:
        """The game is over. A player whose neighbour ended it may still be waiting for an answer
        (a gather leaves its other tasks running): that request is cancelled, so that it shares no
        later batch, and none is made any more."""
        self._closed = True
        self._players.clear()  # table and players would keep each other, and all turns, in memory
        waiting = {task for _, task in self._asking}.union(self._awaiting)
        left = [task for task in waiting if task and task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.gather(*left, return_exceptions=True)

    def _check_open(self) -> None:
        if self._closed:
            raise asyncio.CancelledError("the game is over")


def _messages(prompt: str | Sequence[Message]) -> list[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)


def _tasks_of(ruling: Awaitable[Any]) -> set[asyncio.Task[Any]]:
    """Tasks that were made before a judge is awaited, and so do not know that they are part of it:
    a task, or those that `asyncio.gather` made."""
    if isinstance(ruling, asyncio.Task):
        return {ruling}
    return {task for part in getattr(ruling, "_children", ()) for task in _tasks_of(part)}


def _outwards(ruling: _Ruling | None) -> Iterator[_Ruling]:
    while ruling is not None:
        yield ruling
        ruling = ruling.within
