"""Plays many games at once and gives back their episodes."""

from __future__ import annotations

import asyncio
import json
import math
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from types import FunctionType
from typing import Any

from sparring.core.errors import ConfigError, GameError, nearest
from sparring.core.game import Game, Outcome
from sparring.core.scripted import PROGRAMS, programs
from sparring.core.table import Speak, Table
from sparring.core.types import Episode, Request, Sampling, Task, Turn, VoidGame

Transcribe = Callable[[Request, Turn], None]
CORE = Path(__file__).parent
PACKAGE = CORE.parent
BUGS = (
    *(TypeError, AttributeError, LookupError, NameError, ValueError, ArithmeticError),
    AssertionError,
)


@dataclass(slots=True)
class Job:
    """One game to be played: what, by whom, with which seed."""

    id: str
    name: str
    game: Game
    task: Task
    seed: int
    seating: dict[str, str]
    group: str = ""
    learned: frozenset[str] = field(default_factory=frozenset)  # policies whose turns train
    learning: frozenset[str] | None = None  # seats whose turns train; None: all
    stages: frozenset[str] | None = None  # stages whose turns train; None: all


async def collect(
    jobs: Sequence[Job],
    speak: Speak,
    *,
    concurrency: int = 512,
    sampling: Sampling | None = None,
    outside: Callable[[], Any] | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    transcribe: Transcribe | None = None,
) -> list[Episode]:
    """Play all jobs, at most `concurrency` at a time; episodes come back in the jobs' order.
    `transcribe` may add token ids to the turns of programs, which then can be learned from."""

    def play_one(job: Job, order: int) -> Awaitable[Episode]:
        return play(job, speak, order, sampling, outside, transcribe)

    return await play_all(jobs, play_one, concurrency, on_episode)


async def play_all(
    jobs: Sequence[Job],
    play_one: Callable[[Job, int], Awaitable[Episode]],
    concurrency: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """As `collect`, wherever one game is played."""
    episodes: list[Episode | None] = [None] * len(jobs)
    pending = iter(range(len(jobs)))

    async def work() -> None:
        for i in pending:
            episodes[i] = await play_one(jobs[i], i)
            if on_episode is not None:
                on_episode(episodes[i])  # type: ignore[arg-type]

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(jobs))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        # Whoever waits for a full disk or a fired canary waits for that, not for a group of it.
        raise _first(errors) from errors
    return [episode for episode in episodes if episode is not None]


async def play(
    job: Job,
    speak: Speak,
    order: int = 0,
    sampling: Sampling | None = None,
    outside: Callable[[], Any] | None = None,
    transcribe: Transcribe | None = None,
) -> Episode:
    """One game, from first word to outcome. A game that cannot be judged is void, not lost."""

    async def answer(request: Request) -> Turn:
        if request.policy not in PROGRAMS:
            return await speak(request)
        turn = await programs(job.game).act(request)
        if transcribe is not None:
            transcribe(request, turn)
        return turn

    table = Table(
        job.game.seats,
        job.seating,
        answer,
        seed=job.seed,
        order=order,
        trainable=lambda seat, policy: (
            policy in job.learned and (job.learning is None or seat in job.learning)
        ),
        sampling=sampling,
        outside=outside,
        stages=job.stages,
    )
    episode = Episode(
        id=job.id, game=job.name, task=job.task, seed=job.seed, group=job.group, seating=job.seating
    )
    try:
        outcome = await _outcome(job, table)
        episode.rewards, episode.facts = outcome.rewards, outcome.facts
        episode.void = outcome.void
    except* VoidGame as reasons:  # a game may ask several players at once, in a group of tasks
        reason = _first(reasons)
        episode.void = str(reason) or type(reason).__name__
    finally:
        episode.turns, episode.verdicts = list(table.turns), list(table.verdicts)
        await table.close()
    return episode


async def _outcome(job: Job, table: Table) -> Outcome:
    """How the game ended. An error in its own code is reported with file and line."""
    _check_task(job)
    try:
        playing: Any = job.game.play(job.task, table)
        outcome: Any = await playing if (is_async := isawaitable(playing)) else playing
    except (*BUGS, BaseExceptionGroup) as raised:
        error = _bug(raised)
        line = None if error is None else _line_in(job.game, error)
        if line is None:
            raise
        unawaited = "'coroutine' object" in str(error)
        hint = "; is an `await` missing before what made it?" if unawaited else ""
        raise GameError(f"{job.name} ({line}): {type(error).__name__}: {error}{hint}") from error
    if not is_async:
        wrong = "play has to be an `async def`, so that it can await the players"
    elif not isinstance(outcome, Outcome):
        wrong = f"play returned {outcome!r:.80}; it has to return an Outcome"
    elif unknown := outcome.rewards.keys() - set(job.game.seats):
        word = min(unknown)
        wrong = f"it rewards a seat {word!r}; {nearest(word, job.game.seats)}"
    elif outcome.void is None and (left := _played(job, table) - outcome.rewards.keys()):
        wrong = f"it gives the seat {min(left)!r} no reward; whoever was asked has one, if only 0"
    elif outcome.void is None and (odd := [t for t in table.turns if not _finite(t.reward)]):
        given = f"{odd[0].reward!r:.80} as the reward of a turn"
        wrong = f"it gives the seat {odd[0].seat!r} {given}; it has to be a finite number"
    elif error := _unwritable(outcome.facts):
        wrong = f"its facts are {outcome.facts!r:.80}, and go on record as JSON: {error}"
    else:
        return outcome
    raise _wrong(job, type(job.game).play, wrong)


def _check_task(job: Job) -> None:
    """Refuse a task of the game's own that cannot be one. Those of a source came from a file."""
    if not isinstance(job.task, Task):
        wrong = f"task returned {job.task!r:.80}; it has to return a Task"
    elif type(job.game).task is not Game.task and (error := _unwritable(job.task.data)):
        wrong = f"its task holds {job.task.data!r:.80}, which goes on record as JSON: {error}"
    else:
        return
    raise _wrong(job, type(job.game).task, wrong)


def _wrong(job: Job, method: Any, what: str) -> GameError:
    code = method.__code__
    return GameError(f"{job.name} ({code.co_filename}:{code.co_firstlineno}): {what}")


def _unwritable(data: dict[str, Any]) -> Exception | None:
    try:
        json.dumps(data)
    except (TypeError, ValueError) as error:
        return error
    return None


def _finite(reward: Any) -> bool:
    return isinstance(reward, int | float) and math.isfinite(reward)


def _played(job: Job, table: Table) -> set[str]:
    """The seats that were asked; all of them in a zero-sum game, where each reward is another's."""
    return set(job.game.seats) if job.game.zero_sum else {turn.seat for turn in table.turns}


def _bug(error: BaseException) -> BaseException | None:
    """The error, or the first of its kind in the tasks in which a game asks several at once."""
    bugs = error.subgroup(BUGS) if isinstance(error, BaseExceptionGroup) else error
    first = None if bugs is None else _first(bugs)
    return None if isinstance(first, ConfigError) else first


def _line_in(game: Game, error: BaseException) -> str | None:
    """`file:line` of the game's own code that raised, itself or in a call of `core`; None where
    the error comes from somewhere else, such as an engine."""
    methods = (m for kind in type(game).__mro__[:-2] for m in vars(kind).values())
    own = {m.__code__.co_filename for m in methods if isinstance(m, FunctionType)}
    line: str | None = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if frame.filename in own:
            line = f"{path}:{frame.lineno}"
        elif "site-packages" in path.parts or (PACKAGE in path.parents and path.parent != CORE):
            line = None
    return line


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
