"""Data sets of the hub: an unreachable hub fails within seconds; data is saved to a file for
machines that cannot reach it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run.machine import unreachable
from sparring.run.rundir import write_whole


def load_hub(source: str, library: Callable[[], Any]) -> Any:
    """A data set of the hub, or of its cache on this machine where the hub cannot be reached.
    `library` gives the package datasets, which is slow to import."""
    name, _, config = source.partition(":")
    away = unreachable()
    try:
        if away and not _cached(name):
            raise FileNotFoundError(name)
        datasets = library()
        if not away:
            return datasets.load_dataset(name, config or None)
        with _from_cache(datasets):
            return datasets.load_dataset(name, config or None)
    except ConfigError:
        raise
    except Exception as error:  # the hub's ways to fail are many, and each says what it is
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        why = f"the hub cannot be reached ({away})" if away else why
        raise ConfigError(
            f"no tasks could be had from {source!r}: {why}. Where there is a network, "
            f"`sparring data save {source} FILE.jsonl` saves it; then name the file: --data "
            "FILE.jsonl of a command, tasks.source=FILE.jsonl or math.gsm8k.data=FILE.jsonl of a "
            "recipe"
        ) from error


def _cached(name: str) -> bool:
    """Whether the hub's libraries may have this data set on this machine."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    sets = Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets"))
    files = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    kept = (sets / name.replace("/", "___").lower(), sets / name.replace("/", "___"))
    return any(p.exists() for p in (*kept, files / f"datasets--{name.replace('/', '--')}"))


@contextmanager
def _from_cache(datasets: Any) -> Iterator[None]:
    """The libraries as if they were offline: they look in their cache and do not try for long."""
    from huggingface_hub import constants

    places = [(datasets.config, "HF_HUB_OFFLINE"), (constants, "HF_HUB_OFFLINE")]
    before = [getattr(where, name) for where, name in places]
    for where, name in places:
        setattr(where, name, True)
    try:
        yield
    finally:
        for (where, name), value in zip(places, before, strict=True):
            setattr(where, name, value)


def save(source: str, out: Path, split: str | None) -> int:
    """Write a source's rows as JSONL, each with its split where the source has splits."""
    from sparring.tasks.source import read_rows

    if out.suffix != ".jsonl":
        raise ConfigError(f"{out} should end in .jsonl: a line for each row is written")
    if out.exists():
        raise ConfigError(f"{out} is there already; choose another file")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} to write {out.name} into")
    rows = read_rows(source, split)
    lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    write_whole(out, "".join(lines).encode())
    return len(rows)
