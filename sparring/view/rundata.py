"""Reads a run directory for the report; whatever is missing, torn or strange is left out."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from sparring.core.plugin import look_beside
from sparring.core.types import Episode, episode_from_json
from sparring.run.yaml_values import load_yaml

LOOKED_AT = 256  # episodes of a file that replays are picked from; the rest stays packed


@dataclass
class RunData:
    """Everything the report shows, as it is on disk."""

    name: str
    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    config_text: str = ""
    lines: list[dict[str, Any]] = field(default_factory=list)  # of metrics.jsonl, by iteration
    stages: list[tuple[str, list[Episode]]] = field(default_factory=list)  # title, episodes
    ladder: list[dict[str, Any]] = field(default_factory=list)  # ratings of checkpoints
    evaluation: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)


def read_run(run: Path) -> RunData:
    """Everything, a few games of each stage included."""
    data = read_results(run)
    data.stages = _stages(run)
    return data


def read_results(run: Path) -> RunData:
    """The log, the closing evaluation and the ladder."""
    data = read_log(run)
    ratings = read_object(run / "ladder.json").get("ratings")
    data.ladder = [r for r in ratings if _is_rating(r)] if isinstance(ratings, list) else []
    data.evaluation = read_object(run / "evaluation.json")
    return data


def read_log(run: Path) -> RunData:
    """Config, metrics and events alone."""
    if not run.is_dir():
        raise FileNotFoundError(f"there is no run directory at {run}")
    look_beside(run)  # for the games it names by their files
    text = _text(run / "config.yaml")
    return RunData(
        name=run.resolve().name,
        path=run,
        config=_config(text),
        config_text=text,
        lines=read_metrics(run / "metrics.jsonl"),
        events=list(read_json_lines(run / "events.jsonl")),
    )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """One line per iteration, in order. A resumed run may have written an iteration twice:
    the later line is the one that counts."""
    records: dict[int, dict[str, Any]] = {}
    for line in read_json_lines(path):
        iteration = line.get("iteration")
        if is_number(iteration):
            records[int(iteration)] = line
    return [records[iteration] for iteration in sorted(records)]


def series(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Per metric its finite points (iteration, value), in the order the metrics first appear."""
    records: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for key, value in line.items():
            if key != "iteration" and isinstance(value, int | float):
                points = records.setdefault(key, [])
                if math.isfinite(value):
                    points.append((int(line["iteration"]), float(value)))
    return records


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _stages(run: Path) -> list[tuple[str, list[Episode]]]:
    """The first, a middle and the last iteration, then the evaluation."""
    files = sorted((run / "episodes").glob("*.jsonl.gz"))
    picks = {0: "At the start", len(files) // 2: "Half-way", len(files) - 1: "At the end"}
    stages = []
    for at in sorted(at for at in picks if 0 <= at < len(files)):
        stem = files[at].name.partition(".")[0]
        iteration = f"iteration {int(stem)}" if stem.isdigit() else stem
        title = picks[at] if len(files) > 1 else "Training"
        stages.append((f"{title} · {iteration}", read_episodes(files[at])))
    stages.append(("Evaluation", read_episodes(run / "evaluation_games.jsonl.gz")))
    return [(title, episodes) for title, episodes in stages if episodes]


def read_episodes(path: Path, most: int = LOOKED_AT) -> list[Episode]:
    """The first episodes of a file, as far as it can be read."""
    if not path.is_file():
        return []
    return list(islice(_episodes(path), most))


def _episodes(path: Path) -> Iterator[Episode]:
    for _, record in read_packed_lines(path):
        try:
            yield episode_from_json(record)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # not an episode


def read_packed_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a packed JSONL file with the offset of each line, as far as it can be read."""
    offset = 0
    try:
        with gzip.open(path, "rb") as lines:
            for line in lines:
                if (record := parse_object(line.decode("utf-8", "replace"))) is not None:
                    yield offset, record
                offset += len(line)
    except (OSError, EOFError, zlib.error):
        return  # a file cut short by a kill: what came before it counts


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none."""
    return parse_object(_text(path)) or {}


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file; lines that are torn or of another kind are left out."""
    records = (parse_object(line) for line in _text(path).split("\n"))
    return (record for record in records if record is not None)


def _config(text: str) -> dict[str, Any]:
    try:
        records = load_yaml(text)
    except yaml.YAMLError:
        return {}
    return records if isinstance(records, dict) else {}


def _is_rating(rating: object) -> bool:
    return isinstance(rating, dict) and all(
        is_number(rating.get(key)) for key in ("elo", "low", "high")
    )
