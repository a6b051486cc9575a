"""Work on many items, a batch at a time, with a line of a file for each: killed or asked to leave
at any moment, it goes on after its last whole batch, and comes to the same."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run import interrupt
from sparring.run.job import run_steps
from sparring.run.lock import writing_file
from sparring.run.outputs import cache_folder
from sparring.run.rundir import (
    differing,
    digest,
    holds_something,
    mend,
    read_object,
    write_whole,
)

Record = dict[str, Any]
Work = Callable[[range], Coroutine[Any, Any, Sequence[Record]]]
Progress = Callable[[list[Record]], None]
log = logging.getLogger(__name__)


async def in_batches(
    path: Path | None,
    ids: Sequence[str],
    work: Work,
    *,
    batch: int,
    what: str,
    progress: Progress | None = None,
) -> list[Record]:
    """A record for every id, in order: those that are in the file, and those that `work` makes of
    the numbers it is given. Without a file nothing is kept until the end."""
    records = [] if path is None else read_whole(path, ids, batch)

    async def step(indices: range) -> None:
        made = await interrupt.in_time(work(indices))
        if path is not None:
            _append(path, made)
        records.extend(made)
        if progress is not None:
            progress(records)

    kept = "all of them on record"
    await run_steps(len(records), len(ids), step, size=batch, what=what, kept=kept)
    return records


def read_whole(path: Path, ids: Sequence[str], batch: int) -> list[Record]:
    """The records of whole batches; the file is cut back to them. What is there twice, as two
    writers may have left it, counts once."""
    mend(path)
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept, twice = _in_order(texts, ids)
    if twice:
        log.warning("%s: %d lines were there twice; the first of each stays", path.name, twice)
    if len(kept) < len(ids):
        kept = kept[: len(kept) // batch * batch]
    if len(kept) < len(texts):
        write_whole(path, "".join(f"{texts[i]}\n" for i, _ in kept).encode())
    return [record for _, record in kept]


def _in_order(texts: Sequence[str], ids: Sequence[str]) -> tuple[list[tuple[int, Record]], int]:
    """The lines that hold the items in their order, from the first on; how many came twice."""
    seen: set[str] = set()
    kept: list[tuple[int, Record]] = []
    twice = 0
    for number, text in enumerate(texts):
        try:
            record = json.loads(text)
            name = record["id"] if "id" in record else record["episode"]["id"]
        except (ValueError, KeyError, TypeError):
            break
        if len(kept) < len(ids) and name == ids[len(kept)]:
            kept.append((number, record))
            seen.add(name)
        elif name in seen:
            twice += 1
        else:
            break
    return kept, twice


def _append(path: Path, records: Sequence[Record]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{dump(record)}\n" for record in records))
        file.flush()
        os.fsync(file.fileno())


def dump(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"))


@contextmanager
def cached(plan: Record) -> Iterator[Path | None]:
    """As `unfinished`, for work whose result is only printed: the lines are in the user's cache, by
    a plan that must say all that shapes them. None where that cannot be written, or is in use."""
    with ExitStack() as stack:
        path = cache_folder() / "unfinished" / digest(plan)[:24]
        try:
            lines = stack.enter_context(unfinished(path, plan, remake=True))
        except (OSError, ConfigError) as error:
            log.warning("interrupted, this would begin anew: %s", error)
            stack.enter_context(interrupt.listening())
            lines = None
        yield lines


@contextmanager
def unfinished(out: Path | None, plan: Record, *, remake: bool = False) -> Iterator[Path | None]:
    """The file of lines that becomes `out`, beside it, until the block that writes `out` is done.
    One that was begun by another plan is refused, or, to be made again, dropped."""
    if out is None:
        yield None
        return
    lines = out.with_name(f"{out.name}.unfinished")
    begun = out.with_name(f".{lines.name}.json")
    plan = json.loads(json.dumps(plan))
    with interrupt.listening(), writing_file(out):
        before = read_object(begun) if begun.exists() else {}
        changed = differing(before, plan)
        if before and changed and not remake:
            raise ConfigError(
                f"{lines} holds the beginnings of other work ({', '.join(changed)} differ): end "
                f"that first, or remove {begun}"
            )
        if changed:
            lines.unlink(missing_ok=True)
        write_whole(begun, json.dumps(plan).encode())
        try:
            yield lines
        except BaseException:
            if not lines.exists():
                begun.unlink(missing_ok=True)
            raise
        lines.unlink(missing_ok=True)
        begun.unlink(missing_ok=True)


def refuse_others(file: Path, plan: Record, what: str, *, resume: bool, grows: str) -> None:
    """Refuse a folder whose file says that it was begun with another plan. `grows` is the key that
    may since have grown: a number, or a list at its end."""
    if not file.exists():
        if holds_something(file.parent):
            raise ConfigError(
                f"{file.parent} is not empty and holds no {what}; choose another folder"
            )
        return
    before, now = read_object(file), json.loads(json.dumps(plan))
    old, new = before.get(grows, now[grows]), now[grows]
    grown = new[: len(old)] == old if isinstance(old, list) else new > old
    changed = differing(before, now)
    if changed and not (changed == [grows] and grown):
        raise ConfigError(
            f"{file.parent} holds a {what} of another plan ({', '.join(changed)} differ); give "
            "this one another folder with --out"
        )
    if not resume:
        raise ConfigError(f"{file.parent} holds this {what} already; add --resume to go on with it")
