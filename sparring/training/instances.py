"""Finished games as training instances: one for each player's perspective, grouped by table, in
parquet files that this package and verl both read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Message, Sample, Task, episode_to_json
from sparring.credit.credit import earned
from sparring.credit.group_relative import Scale, centred
from sparring.credit.samples import join
from sparring.run.games import load_game

FORMAT = 2  # of the parquet files; another one is refused
GAMES, TRAIN, VAL = "selfplay_games.jsonl", "train.parquet", "val.parquet"
AGENT = "sparring_game"  # the agent loop that plays such a row inside verl
Grouping = Literal["table", "game"]


@dataclass(frozen=True)
class Source:
    """What the games of one file have in common."""

    game: str  # a registry name, or module:Class
    options: dict[str, Any]
    grouping: Grouping = "table"
    truncated: bool = False  # drawn with top_p, top_k or temperature 0

    def as_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)


@dataclass(frozen=True)
class Instance:
    """One player's perspective of one game. Instances of one `index` are compared."""

    index: int
    seat: str
    episode: str
    task: Task
    reward: float
    prompt: list[Message]
    sample: Sample  # its advantages are not known yet: 0


def instances(episodes: Sequence[Episode], grouping: Grouping = "table") -> list[Instance]:
    """Two instances for each game of two: each player's first prompt, and all its replies.
    `table` puts all games on one table under one index, `game` only the two of a game."""
    tables = {group: i for i, group in enumerate(dict.fromkeys(e.group for e in episodes))}
    rows = []
    for number, episode in enumerate(episodes):
        if episode.void is not None:
            continue
        index = tables[episode.group] if grouping == "table" else number
        for seat in dict.fromkeys(turn.seat for turn in episode.turns):
            turns = [turn for turn in episode.turns if turn.seat == seat]
            prompt = [{"role": "user", "content": turns[0].prompt}]
            reward = earned(episode, seat)
            for sample in join([(turn, 0.0) for turn in turns if turn.trainable]):
                rows.append(Instance(index, seat, episode.id, episode.task, reward, prompt, sample))
    return rows


def split_tables(episodes: Sequence[Episode], val: float) -> tuple[list[Episode], list[Episode]]:
    """Games to train on and games to validate on; all games of a table are on one side. Where
    there are two tables or more and something is to be kept back, at least one is."""
    tables = list(dict.fromkeys(e.group for e in episodes))
    kept = min(len(tables) - 1, max(1, round(val * len(tables)))) if val > 0 else 0
    last = set(tables[len(tables) - kept :])
    return (
        [e for e in episodes if e.group not in last],
        [e for e in episodes if e.group in last],
    )


def lessons(
    rows: Sequence[Instance], *, scale: Scale = "none", leave_one_out: bool = False
) -> list[Sample]:
    """Samples with the advantages that GRPO gives within each index. A perspective of several
    conversations has an instance for each, and is compared once."""
    groups: dict[int, dict[tuple[str, str], list[Instance]]] = {}
    for one in rows:
        groups.setdefault(one.index, {}).setdefault((one.episode, one.seat), []).append(one)
    rewards = {index: [own[0].reward for own in group.values()] for index, group in groups.items()}
    batch = [reward for of_group in rewards.values() for reward in of_group]
    samples = []
    for index, group in groups.items():
        values = centred(rewards[index], scale=scale, leave_one_out=leave_one_out, batch=batch)
        for own, advantage in zip(group.values(), values, strict=True):
            for one in own:
                one.sample.advantages = [advantage * mask for mask in one.sample.mask]
                samples.append(one.sample)
    return samples


def game_record(episode: Episode, index: int) -> dict[str, Any]:
    """One line of selfplay_games.jsonl: all of the episode, and first what a person looks for."""
    facts = episode.facts
    head: dict[str, Any] = {"index": index, "score": facts.get("score")}
    head |= load_game(episode.game).record(episode)
    head["actions"] = facts.get("moves")
    return {**head, "episode": episode_to_json(episode)}


def write_split(
    folder: Path, source: Source, episodes: Sequence[Episode], val: float
) -> tuple[list[Episode], dict[str, int]]:
    """The files of instances to train on and to validate on; the games to train on, and counts."""
    train, kept = split_tables(episodes, val)
    counts = {}
    for file, part, split in ((TRAIN, train, "train"), (VAL, kept, "val")):
        turns = (turn for episode in part for turn in episode.turns)
        drawn = replace(source, truncated=any(turn.trainable and turn.truncated for turn in turns))
        rows = instances(part, source.grouping)
        write_parquet(folder / file, drawn, rows, split)
        counts[f"{split}_instances"] = len(rows)
    return train, counts


def write_parquet(path: Path, source: Source, instances: Sequence[Instance], split: str) -> None:
    """The columns verl's dataset asks for, and beside them what was sampled."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(one, source, split) for one in instances]
    table = pa.Table.from_pylist(
        rows, schema=_schema().with_metadata({"sparring": source.as_json()})
    )
    unfinished = path.with_name(f".{path.name}.unfinished")
    pq.write_table(table, unfinished)
    unfinished.replace(path)


def read_parquet(path: Path) -> tuple[Source, list[Instance]]:
    """What `write_parquet` wrote; anything else is refused by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise ConfigError(
            f"there is no {path.name} in {path.parent}; `sparring selfplay` writes it"
        )
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path} cannot be read as parquet: {error}") from error
    source = _source(path, (table.schema.metadata or {}).get(b"sparring"))
    if table.schema.names != _schema().names:
        raise ConfigError(f"{path} has other columns than {', '.join(_schema().names)}")
    return source, [_instance(row) for row in table.to_pylist()]


def _source(path: Path, note: bytes | None) -> Source:
    if note is None:
        raise ConfigError(f"{path} was not written by `sparring selfplay`: it says nothing of it")
    metadata = json.loads(note)
    written = metadata.pop("format", None)
    if written != FORMAT:
        raise ConfigError(
            f"{path} has format {written}, "
            f"and this version of sparring reads {FORMAT}: "
            "play the games again, or read them with the version that wrote them"
        )
    return Source(**metadata)


def _row(one: Instance, source: Source, split: str) -> dict[str, Any]:
    sample = one.sample
    return {
        "data_source": f"sparring/{source.game}",
        "prompt": one.prompt,
        "ability": "game",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(one.task.data)},
        "agent_name": AGENT,
        "extra_info": {
            "index": one.index,
            "split": split,
            "game": source.game,
            "options": json.dumps(source.options),
            "seat": one.seat,
            "task_id": one.task.id,
            "episode": one.episode,
            "score": one.reward,
        },
        "ids": sample.ids,
        "mask": sample.mask,
        "logprobs": sample.logprobs,
        "temperature": sample.temperature,
        "policy": sample.policy,
        # Where actions were masked, the logprobs are of these tokens alone.
        "allowed": sample.allowed,
    }


def _instance(row: Mapping[str, Any]) -> Instance:
    extra = row["extra_info"]
    sample = Sample(
        row["policy"],
        row["ids"],
        row["mask"],
        [0.0] * len(row["ids"]),
        row["logprobs"],
        row["temperature"],
        allowed=row["allowed"],
    )
    return Instance(
        extra["index"],
        extra["seat"],
        extra["episode"],
        Task(extra["task_id"], extra["game"], json.loads(row["reward_model"]["ground_truth"])),
        extra["score"],
        row["prompt"],
        sample,
    )


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    extra = {"index": pa.int64(), "split": text, "game": text, "options": text, "seat": text}
    extra |= {"task_id": text, "episode": text, "score": pa.float64()}
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "agent_name": text,
            "extra_info": pa.struct(extra),
            "ids": pa.list_(pa.int64()),
            "mask": pa.list_(pa.int64()),
            "logprobs": pa.list_(pa.float64()),
            "temperature": pa.float64(),
            "policy": text,
            "allowed": pa.list_(pa.list_(pa.int64())),
        }
    )
