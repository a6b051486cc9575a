"""Reads tasks from a JSONL file, a saved dataset folder, the hub, or our own shipped problems, and
keeps what is for testing out of training. An unreachable hub fails within seconds; data is saved to
a file for machines that cannot reach it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError, nearest
from sparring.core.plugin import load, plugins
from sparring.core.types import Task, derive
from sparring.run.config import TasksConfig
from sparring.run.machine import unreachable
from sparring.run.rundir import write_whole

VALID = (
    "tasks come from a JSONL file, a problems file (.json), a folder made by "
    "datasets.save_to_disk, a hub name (owner/name or owner/name:config), or `shipped`"
)


def load_tasks(source: str, split: str | None = "train", limit: int | None = None) -> list[Task]:
    """The tasks of one split of a source, or of several (`train+validation`), in its own order; a
    split of None means all of them."""
    rows = read_rows(source, split)
    splits = split.split("+") if split else []
    tasks = [
        Task(id=str(row.get("id", row.get("task_id", i))), data=row)
        for i, row in enumerate(rows)
        if split is None or split_of(row) in (None, *splits)
    ][:limit]
    if not tasks:
        raise ConfigError(f"{source} has no task in its split {split!r}")
    return tasks


def training_tasks(config: TasksConfig, shipped: str) -> list[Task]:
    """What a run may learn from; `shipped` names the set that comes with the game."""
    return parted(_all_tasks(config, shipped), config.holdout)[0]


def held_out_tasks(config: TasksConfig, shipped: str) -> list[Task]:
    """What a run never learns from, and is measured on."""
    return parted(_all_tasks(config, shipped), config.holdout)[1]


def parted(tasks: Sequence[Task], share: float) -> tuple[list[Task], list[Task]]:
    """Tasks to learn from and tasks held out: the same ones for every run, by their ids alone, so
    that those of one id stay together."""
    ranked = sorted({task.id for task in tasks}, key=lambda name: derive("held out", name))
    count = min(-(-int(share * 1000) * len(ranked) // 1000), len(ranked) - 1)
    out = set(ranked[:count])
    return [t for t in tasks if t.id not in out], [t for t in tasks if t.id in out]


def _all_tasks(config: TasksConfig, shipped: str) -> list[Task]:
    source = config.source or "shipped"
    if "test" in config.split.split("+"):
        raise ConfigError("tasks.split names `test`, and test splits never enter training")
    tasks = load_tasks(
        f"shipped:{shipped}" if source == "shipped" else source, config.split, config.limit
    )
    for task in tasks:
        if split_of(task.data) == "test":
            raise ConfigError(f"task {task.id} of {source} is of a test split; it cannot train")
    return tasks


def choose_task(tasks: Sequence[Task], seed: int, position: int) -> Task:
    """The task at a position of an endless walk over all of them, each once per round. It hangs on
    nothing but the seed and the position, so a resumed run has nothing to remember."""
    turn, index = divmod(position, len(tasks))
    return tasks[_order(len(tasks), seed, turn)[index]]


def split_of(row: Mapping[str, Any]) -> str | None:
    """The split a row belongs to, where that is known: as one of MBPP's or HumanEval's, whatever
    it calls itself, or by its own word."""
    name = row.get("task_id")
    if isinstance(name, str) and name.startswith("HumanEval/"):
        return "test"
    if "test_list" in row and isinstance(name, int):
        return mbpp_split(name)
    return str(row["split"]) if isinstance(row.get("split"), str) else None


def mbpp_split(number: int) -> str:
    """MBPP's published splits: few-shot prompts, test, validation, train."""
    for last, split in ((10, "prompt"), (510, "test"), (600, "validation")):
        if number <= last:
            return split
    return "train"


@lru_cache(maxsize=16)
def _order(count: int, seed: int, turn: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(derive(seed, "tasks", turn)).shuffle(order)
    return tuple(order)


def read_rows(source: str, split: str | None) -> list[dict[str, Any]]:
    """The rows of a source as they are, of one split or of all."""
    if source == "shipped" or source.startswith("shipped:"):
        return _shipped(source.partition(":")[2] or "python")
    path = Path(source).expanduser()
    if path.is_file():
        return _read_file(path)
    if path.is_dir():
        return _read_folder(path, split)
    if source.endswith((".jsonl", ".json")) or source.startswith(("/", ".", "~")):
        raise ConfigError(f"there is no file {source!r}; {VALID}")
    return _take_split(_load_hub(source), source, split)


def _shipped(name: str) -> list[dict[str, Any]]:
    made = {key: where for plugin in plugins() for key, where in plugin.problems.items()}
    if name in made:
        return list(load(made[name])())
    folders = [plugin.folder(plugin.data) for plugin in plugins()]
    known = {file.stem: file for folder in folders for file in folder.glob("*.json*")}
    if name not in known:
        raise ConfigError(f"no problems {name!r} are shipped; {nearest(name, {*known, *made})}")
    return _read_file(known[name])


def _read_file(path: Path) -> list[dict[str, Any]]:
    readers = {suffix: where for p in plugins() for suffix, where in p.readers.items()}
    if path.suffix in readers:
        rows: list[dict[str, Any]] = load(readers[path.suffix])(path)
        return rows
    return _read_jsonl(path)


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    rows.append(_parse(line, path, number))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    if not rows:
        raise ConfigError(f"{path} holds no tasks; one JSON object per line was expected")
    return rows


def _parse(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"line {number} of {path} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"line {number} of {path} is {type(row).__name__}, not an object")
    return row


def _read_folder(path: Path, split: str | None) -> list[dict[str, Any]]:
    if not any((path / name).exists() for name in ("dataset_dict.json", "state.json")):
        raise ConfigError(f"the folder {path} was not made by datasets.save_to_disk; {VALID}")
    datasets = _datasets(str(path))
    return _take_split(datasets.load_from_disk(str(path)), str(path), split)


def _load_hub(source: str) -> Any:
    """A data set of the hub, or of its cache on this machine where the hub cannot be reached."""
    name, _, config = source.partition(":")
    away = unreachable()
    try:
        if away and not _cached(name):
            raise FileNotFoundError(name)
        datasets = _datasets(source)  # slow to import
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

    modules: tuple[Any, ...] = (datasets.config, constants)
    before = [module.HF_HUB_OFFLINE for module in modules]
    for module in modules:
        module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value


def _take_split(loaded: Any, source: str, split: str | None) -> list[dict[str, Any]]:
    """Some splits, marked as such, or all; a dataset without splits is taken as it is."""
    if not isinstance(loaded, dict):
        return _plain(loaded)
    chosen = loaded if split is None else split.split("+")
    for name in chosen:
        if name not in loaded:
            raise ConfigError(f"{source} has no split {name!r}; {nearest(name, loaded)}")
    return [{**row, "split": name} for name in chosen for row in _plain(loaded[name])]


def _plain(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in rows]


def _datasets(source: str) -> Any:
    if util.find_spec("datasets") is None:
        raise ConfigError(f"{source!r} needs the datasets package: pip install 'sparring[hub]'")
    import datasets

    return datasets


def save(source: str, out: Path, split: str | None) -> int:
    """Write a source's rows as JSONL, each with its split where the source has splits."""
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
