"""The folder of a run: every fact of it is a file here."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from sparring.core.errors import ConfigError, nearest
from sparring.core.plugin import look_beside
from sparring.core.types import Episode, episode_from_json, episode_to_json
from sparring.run import checkpoint, console_log
from sparring.run.config import Config, dump, make_config
from sparring.run.lock import LOCK
from sparring.run.yaml_values import load_yaml

# Keys that may change when a run is resumed: they shape nothing that is done already.
AFTER = ("tracking.", "evaluate.", "checkpoint.")
NOT_A_RECORD = (ValueError, KeyError, TypeError, AttributeError)


class RunError(RuntimeError):
    """The run cannot go on; the message says what is safe and what to do."""


def known_runs(path: Path) -> set[str]:
    """The runs beside a path, and those in `runs`: one of them may be meant."""
    folders = (path.parent, Path("runs"))
    return {str(file.parent) for folder in folders for file in folder.glob("*/config.yaml")}


class RunDir:
    """config.yaml · metrics.jsonl · events.jsonl · episodes/ · checkpoints/ · report.html"""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = path / "metrics.jsonl"
        self.events = path / "events.jsonl"
        self.checkpoints = path / "checkpoints"
        self.episodes = path / "episodes"
        self.changed: list[str] = []  # keys of the config, by a life that has just begun

    @classmethod
    def open(cls, path: Path, config: Config, *, resume: bool) -> RunDir:
        """A new run, or the same one again; never another run's folder."""
        run, file = cls(path), path / "config.yaml"
        if file.exists():
            before = run.config()
            run._refuse_another_past(before, config)
            if not resume and run.metrics.exists():
                raise ConfigError(f"{path} holds this run already; add --resume to go on with it")
            for log in (run.metrics, run.events):
                mend(log)
            run.changed = changes(before, config)
        elif holds_something(path):
            raise ConfigError(f"{path} is not empty and holds no run; choose another folder")
        path.mkdir(parents=True, exist_ok=True)
        if run.changed or not file.exists():
            write_whole(file, dump(config).encode())
        run._make_folders()
        console_log.begin(path)
        return run

    def _refuse_another_past(self, before: Config, config: Config) -> None:
        """Refuse a config with which what is done would have been done otherwise."""
        kept = [key for key in changes(before, config) if not key.startswith(AFTER)]
        if before.horizon == config.horizon:
            kept = [key for key in kept if key not in ("iterations", "learn.horizon")]
        done = max((m["iteration"] for m in read_log(self.metrics)), default=0)
        if config.iterations < min(done, before.iterations):
            raise ConfigError(
                f"{self.path} has {done} iterations already, and iterations={config.iterations} "
                "are asked for"
            )
        hint = "give this run another folder with --run"
        if before.horizon and {*kept} <= {"iterations", "learn.horizon"}:
            hint = (
                f"learn.schedule and learn.entropy_end go by the run's length: to go on at what "
                f"they end with, add learn.horizon={before.horizon}; or begin another run with "
                f"begin.main={self.path}"
            )
        if kept:
            raise ConfigError(
                f"{self.path} holds a run with another config ({', '.join(kept)} differ); {hint}"
            )

    def _make_folders(self) -> None:
        begun = any(m["iteration"] > 0 for m in read_log(self.metrics))
        if begun and not self.checkpoints.is_dir():
            raise RunError(
                f"{self.checkpoints} is gone, and with it all that {self.path} could go on from. "
                "Bring it back, or begin anew in another folder."
            )
        self.episodes.mkdir(exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)

    @classmethod
    def existing(cls, path: Path) -> RunDir:
        if not (path / "config.yaml").exists():
            known = known_runs(path)
            hint = f"; {nearest(str(path), known)}" if known else ""
            raise ConfigError(f"{path} holds no run (there is no config.yaml in it){hint}")
        return cls(path)

    def config(self) -> Config:
        """What the run was started with; or what is wrong with the file that says so."""
        look_beside(self.path)
        path = self.path / "config.yaml"
        try:
            data = load_yaml(path.read_text())
            if not isinstance(data, dict):
                raise ValueError("it holds no keys and values")
            return make_config(data)
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(
                f"{path} is damaged, of another version, or needs what is not here: {error}\nMend "
                "it, bring it back as it was, or bring what it needs (a game's file is looked for "
                "in this folder and in those above the run); the run's checkpoints and logs are "
                "not touched"
            ) from error

    def record(self, metrics: dict[str, Any], games: bytes) -> None:
        """One iteration's facts, with its episodes as `encode_episodes` has them. Those first, so
        that a metrics line never lacks its games."""
        try:
            write_whole(self._episodes_of(metrics["iteration"]), games)
            append(self.metrics, metrics)
        except OSError as error:
            raise RunError(
                f"iteration {metrics['iteration']} could not be recorded: "
                f"{error.strerror or error}. The checkpoints are whole; make room, then --resume."
            ) from error

    def event(self, iteration: int, event: str, detail: str) -> None:
        append(self.events, {"iteration": iteration, "event": event, "detail": detail})

    def rewind(self, iteration: int, why: str = "damaged") -> None:
        """Forget what came after a checkpoint: it will be played again, the same. Checkpoints from
        later on are put aside: damaged, or it would have been one of them to resume from, unless
        an earlier one was asked for."""
        kept = [m for m in read_log(self.metrics) if m["iteration"] <= iteration]
        first: dict[int, dict[str, Any]] = {}
        for line in kept:
            first.setdefault(line["iteration"], line)
        once = list(first.values())
        write_whole(self.metrics, b"".join(json.dumps(m).encode() + b"\n" for m in once))
        again = len(kept) - len(once)
        kept = [e for e in read_log(self.events) if e["iteration"] <= iteration]
        write_whole(self.events, b"".join(json.dumps(e).encode() + b"\n" for e in kept))
        if again:
            detail = f"{again} lines of {self.metrics.name} were there twice; the first stays"
            self.event(iteration, "duplicates", detail)
        if self.changed:
            self.event(iteration, "config", f"changed from here on: {', '.join(self.changed)}")
            self.changed = []
        for path in self.episodes.glob("*.jsonl.gz"):
            if int(path.name.split(".")[0]) > iteration:
                path.unlink()
        for step in checkpoint.steps(self.checkpoints):
            if step > iteration:
                checkpoint.set_aside(self.checkpoints, step, why)
        for folder in self.path.glob("iter*_*"):
            number = folder.name.rpartition("_")[2]
            if number.isdigit() and int(number) > iteration:
                shutil.rmtree(folder)

    def read_episodes(self, iteration: int) -> list[Episode]:
        return read_episodes(self._episodes_of(iteration))

    def _episodes_of(self, iteration: int) -> Path:
        return self.episodes / f"{iteration:06d}.jsonl.gz"


def write_episodes(path: Path, episodes: Iterable[Episode]) -> None:
    write_whole(path, encode_episodes(episodes))


def encode_episodes(episodes: Iterable[Episode]) -> bytes:
    """A file of episodes: a line of JSON for each, compressed."""
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    text = "".join(f"{encode(episode_to_json(e))}\n" for e in episodes).encode()
    return gzip.compress(text, compresslevel=1, mtime=0)


def read_episodes(path: Path) -> list[Episode]:
    try:
        with gzip.open(path, "rt") as file:
            return [episode_from_json(json.loads(line)) for line in file]
    except (EOFError, zlib.error, gzip.BadGzipFile, *NOT_A_RECORD) as error:
        raise ConfigError(f"{path} is damaged: {error}. Bring it back as it was") from error


def changes(before: Config, config: Config) -> list[str]:
    return differing(before.model_dump(), config.model_dump())


def holds_something(folder: Path) -> bool:
    """Whether anything is in a folder but a lock and what a kill may have left of a config."""
    return folder.exists() and any(
        p.name not in (LOCK, ".config.yaml.unfinished") for p in folder.iterdir()
    )


def differing(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys in which two configs differ."""
    keys = []
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            keys += differing(a, b, f"{prefix}{key}.")
        elif a != b:
            keys.append(f"{prefix}{key}")
    return keys


def digest(facts: Any) -> str:
    """The same for facts that are equal as JSON, and only for them."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; one that holds none is refused by name."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is damaged: it is no JSON object. Bring it back as it was")
    return data


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl or events.jsonl, each of which has its iteration."""
    return read_lines(path, "iteration")


def read_lines(path: Path, number_key: str | None = None) -> Iterator[dict[str, Any]]:
    """Every whole line of a file of JSON objects; a torn last line is not one."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_text(errors="replace").split("\n")[:-1], 1):
        if line.strip():
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            wrong = "" if isinstance(record, dict) else "it is no JSON object"
            if not wrong and number_key and type(record.get(number_key)) is not int:
                wrong = f"it has no whole number under {number_key!r}"
            if wrong:
                raise ConfigError(
                    f"line {number} of {path} is damaged: {wrong}. Take the line out, or bring the "
                    "file back as it was"
                )
            yield record


def mend(path: Path) -> None:
    """Cut off a last line that a kill tore in two."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        write_whole(path, whole)


def write_json(path: Path, data: Any) -> None:
    write_whole(path, json.dumps(data, indent=1).encode())


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step: readers see the old one or the new one."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
