"""One writer at a time. Whoever writes a run, a folder or a file holds its lock; a second writer is
refused with the first one's name. The operating system drops the lock when its holder dies.

Between machines it holds where the shared file system passes `flock` on: NFS does unless mounted
with `nolock` or `local_lock`, Lustre when mounted with `flock`. Where a file system has no locks at
all, a warning says so and the work goes on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path

from sparring.core.errors import ConfigError

LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
# What this job holds and may ask for again; another thread of the same process may not.
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())
log = logging.getLogger(__name__)


class Taken(ConfigError):
    """Another process is writing there."""


def writing(folder: Path) -> AbstractContextManager[None]:
    """Nobody else writes the folder while this lasts. One that was made for it and stays empty is
    removed again, so that what is refused leaves nothing behind."""
    return _locked(folder / LOCK, folder)


def writing_file(path: Path) -> AbstractContextManager[None]:
    """Nobody else writes this file, or a folder that is to appear whole, while this lasts."""
    return _locked(path.with_name(f".{path.name}{LOCK}"), path)


@contextmanager
def _locked(file: Path, what: Path) -> Iterator[None]:
    name = Path(os.path.abspath(file))
    if name in _held.get():
        yield
        return
    new = [folder for folder in file.parents if not folder.exists()]
    try:
        handle = _take(file, what)
    except BaseException:
        _remove_empty(new)
        raise
    outer = _held.set(_held.get() | {name})
    try:
        yield
    finally:
        _held.reset(outer)
        file.unlink(missing_ok=True)  # while it is held: whoever comes next makes a new one
        os.close(handle)
        _remove_empty(new)


def _take(file: Path, what: Path) -> int:
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            continue  # its folder was removed between the two steps
        except OSError as error:
            raise ConfigError(
                f"{what} cannot be written: {error.strerror or error}; choose another name"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(handle, 4096, 0)
            if error.errno not in _NO_LOCKS:
                os.close(handle)
                raise Taken(f"{what} is being written by {_describe(holder)}; {_ADVICE}") from None
            log.warning("%s has no locks (%s): make sure that nobody else writes it", what, error)
        if _is_there(file, handle):
            os.ftruncate(handle, 0)
            os.pwrite(handle, _introduction(), 0)
            return handle
        os.close(handle)  # its holder let go of it, and removed it, just before


_ADVICE = "wait for it, end it, or choose another name"


def _is_there(file: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(handle))
    except FileNotFoundError:
        return False


def _introduction() -> bytes:
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    return json.dumps({**facts, "command": shlex.join(words)}).encode()


def _describe(holder: bytes) -> str:
    try:
        facts = json.loads(holder)
        who = f"process {facts['pid']} on {facts['host']} since {facts['since']}"
        return f"{who} ({facts['command']:.200})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
