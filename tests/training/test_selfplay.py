"""`sparring selfplay`: games on record, instances grouped by table, and a killed one goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lives import Moment, sparring

from sparring.core.errors import ConfigError
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Episode, Task, Turn
from sparring.credit.group_relative import GroupRelative
from sparring.credit.samples import to_samples
from sparring.run.rundir import read_lines
from sparring.training import selfplay
from sparring.training.instances import (
    Source,
    instances,
    lessons,
    read_parquet,
    split_tables,
    write_parquet,
)
from sparring.training.selfplay import Plan, play_plan

GAME = {"style": "terse", "size": 2, "hard": 1, "max_length": 3, "penalty": 1}
WORDS = [f"{key}={value}" for key, value in GAME.items()]


def plan(**settings: Any) -> Plan:
    return Plan(
        "matching", "nano", **{"games": 12, "options": GAME, "temperature": 1.0, **settings}
    )


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("selfplay") / "games"
    play_plan(plan(), folder, device="cpu")
    return folder


def test_every_game_is_a_line_with_both_views_all_turns_actions_and_score(games: Path) -> None:
    lines = list(read_lines(games / "selfplay_games.jsonl"))
    assert [line["index"] for line in lines] == [i // 4 for i in range(12)]
    for line in lines:
        data = line["episode"]["task"]["data"]
        assert line["table"] == data["table"] and line["score"] == 0.0
        for seat, view in line["views"].items():
            scale = data["scales"][seat]
            for r, c in ((0, 0), (0, 1), (1, 0), (1, 1)):
                seen = data["seen"][seat][r][c]
                assert view["cells"][r][c] == (int(data["table"][r][c] * scale) if seen else None)
        assert [a["seat"] for a in line["actions"]] == [t["seat"] for t in line["episode"]["turns"]]
        assert all(t["token_ids"] and t["logprobs"] for t in line["episode"]["turns"])
    tables = [json.dumps(line["table"]) + json.dumps(line["views"]) for line in lines]
    assert len(set(tables)) == 3  # four games on each


def test_two_instances_a_game_and_the_table_is_the_group(games: Path) -> None:
    source, train = read_parquet(games / "train.parquet")
    _, val = read_parquet(games / "val.parquet")
    assert source == Source("matching", GAME, "table")
    assert [one.index for one in train] == [0] * 8 + [1] * 8 and len(val) == 8
    assert [one.seat for one in train[:4]] == ["first", "second"] * 2
    lines = list(read_lines(games / "selfplay_games.jsonl"))
    turns = [t for t in lines[0]["episode"]["turns"] if t["seat"] == "first"]
    sample = train[0].sample
    assert sample.ids == [*turns[1]["prompt_ids"], *turns[1]["token_ids"]]
    assert sum(sample.mask) == 2
    told = [p for p, m in zip(sample.logprobs, sample.mask, strict=True) if m]
    assert told == [p for t in turns for p in t["logprobs"]]
    assert train[0].prompt == [{"role": "user", "content": turns[0]["prompt"]}]


def episode(number: int, group: str, reward: float) -> Episode:
    turns = [
        Turn(seat, "base", "?", "!", prompt_ids=[1, 2], token_ids=[3], logprobs=[-1.0],
             trainable=True)
        for seat in ("first", "second")
    ]  # fmt: skip
    rewards = {"first": reward, "second": reward}
    return Episode(str(number), "matching", Task("t"), 0, group, turns=turns, rewards=rewards)


def test_a_group_of_one_game_has_no_advantage_ever_and_one_of_a_table_has() -> None:
    played = [episode(i, "a", reward) for i, reward in enumerate((1.0, 0.5, 0.5, 0.0))]
    by_game = lessons(instances(played, "game"), scale="group")
    assert len(by_game) == 8 and not any(any(sample.advantages) for sample in by_game)
    by_table = lessons(instances(played, "table"))
    assert [s.advantages[-1] for s in by_table] == [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, -0.5, -0.5]
    assert all(s.advantages[:2] == [0.0, 0.0] for s in by_table)  # what was heard is not learned
    void = episode(4, "a", 9.0)
    void.void = "broken"
    assert len(instances([*played, void])) == 8


def test_no_table_is_on_both_sides() -> None:
    played = [episode(i, str(i // 2), 0.0) for i in range(20)]
    train, val = split_tables(played, 0.1)
    assert {e.group for e in val} == {"9"} and len(train) == 18
    assert split_tables(played, 0.0)[1] == []
    assert split_tables(played[:2], 0.5)[1] == []  # one table is for training
    assert {e.group for e in split_tables(played[:4], 0.1)[1]} == {"1"}


def everything(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_killed_anywhere_it_comes_to_the_same_games(tmp_path: Path) -> None:
    words = ["selfplay", "matching", "--policy", "nano", "--games", 12, "--temperature", 1]
    words += ["--batch", 4, *WORDS]
    whole = sparring(*words, "--out", "whole", cwd=tmp_path)
    assert whole.code == 0, whole.err
    assert "matching · nano 12/12" in whole.out and "train_instances" in whole.out
    for moment in (Moment("selfplay_games.jsonl", 3), Moment("train.parquet", 1)):
        resume = ["--resume"] if (tmp_path / "killed").exists() else []
        life = sparring(*words, "--out", "killed", *resume, cwd=tmp_path, die_at=moment)
        assert life.code == -9, f"{moment} did not come: {life.out}{life.err}"
    with (tmp_path / "killed" / "selfplay_games.jsonl").open("a") as torn:
        torn.write('{"index": 3, "sco')
    life = sparring(*words, "--out", "killed", "--resume", cwd=tmp_path)
    assert life.code == 0, life.err
    assert everything(tmp_path / "killed") == everything(tmp_path / "whole")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["matchin"], "did you mean 'matching'?"),
        (["matching", "sise=2"], "did you mean 'size'?"),
        (["matching", "size=1"], "from 2 to 16"),
        (["matching", "faster"], "write option=value"),
        (["matching", "--grouping", "pairs"], "`table` or `game`"),
        (["matching", "--policy", "nanoo"], "did you mean 'nano'?"),
        (["code_execution"], "does not make its own tasks"),
    ],
)
def test_what_is_asked_wrongly_is_refused_and_nothing_is_written(
    tmp_path: Path, words: list[str], said: str
) -> None:
    life = sparring("selfplay", *words, "--games", 2, "--out", "x", cwd=tmp_path)
    assert life.code == 2 and said in life.err and "Traceback" not in life.err
    assert list(tmp_path.iterdir()) == []


def test_another_plan_and_games_that_are_there_are_refused(games: Path, tmp_path: Path) -> None:
    before = everything(games)
    with pytest.raises(ConfigError, match="add --resume"):
        play_plan(plan(), games)
    with pytest.raises(ConfigError, match="games, seed differ"):
        play_plan(plan(games=16, seed=1), games, resume=True)
    assert everything(games) == before
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        play_plan(plan(), tmp_path)


def test_variables_of_the_environment_set_what_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_LENGTH", "5")
    made = selfplay.make_plan("matching", ["size=3"], {}, grouping="table", policy="nano")
    assert made.options == {"max_length": 5, "size": 3}
    made = selfplay.make_plan("matching", ["max_length=7"], {}, grouping="game", policy="nano")
    assert (made.options, made.grouping) == ({"max_length": 7}, "game")
    assert selfplay.make_plan("kuhn", [], {}, grouping="table", policy="nano").options == {}


def test_programs_play_too_and_pool_to_the_optimum(tmp_path: Path) -> None:
    options = {"style": "short", "size": 4}
    found = play_plan(Plan("matching", "scripted", games=8, options=options), tmp_path / "out")
    assert (found["score"], found["agreement"], found["agreed_turns"]) == (1.0, 1.0, 3.0)
    assert found["bound_greedy"] <= 0.8 and found["train_instances"] == 0


class Half(Game):
    """Void in some games, and without a reward in others."""

    seats = ("left", "right")

    async def play(self, task: Task, table: Table) -> Outcome:
        odd = int(task.id) % 2 == 1
        return Outcome(left=1.0, void="odd" if odd else None) if table.seed % 3 else Outcome()


def test_void_games_and_those_that_reward_nobody_are_no_part_of_the_mean(tmp_path: Path) -> None:
    shown: list[dict[str, Any]] = []
    asked = Plan(f"{Path(__file__)}:Half", "random", games=24, group=1, batch=8)
    found = play_plan(asked, tmp_path / "out", progress=shown.append)
    assert [line["iteration"] for line in shown] == [*range(1, 25)]
    assert 0 < found["void"] < 24 and found["reward_left"] == 1.0
    assert {line.get("reward/avg_batch_reward", 1.0) for line in shown} == {1.0}


def test_a_parquet_of_another_version_is_refused_by_name(games: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(games / "train.parquet")
    newer = {"sparring": json.dumps({"format": 3, "game": "matching"})}
    for note, said in ((newer, "has format 3, and this version of sparring reads 2"),
                       ({}, "was not written by")):  # fmt: skip
        pq.write_table(table.replace_schema_metadata(note), tmp_path / "train.parquet")
        with pytest.raises(ConfigError, match=said):
            read_parquet(tmp_path / "train.parquet")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ConfigError, match="cannot be read as parquet"):
        read_parquet(tmp_path / "train.parquet")
    with pytest.raises(ConfigError, match=r"no val\.parquet"):
        read_parquet(tmp_path / "val.parquet")
    source, found = read_parquet(games / "train.parquet")
    write_parquet(tmp_path / "train.parquet", source, found, "train")
    assert read_parquet(tmp_path / "train.parquet") == (source, found)


def test_instances_keep_what_was_allowed_and_all_that_was_earned(tmp_path: Path) -> None:
    """Logprobs of masked actions are of the allowed tokens, and rewards of turns count too: what is
    learned from the file is what would have been learned from the games."""
    games = [episode(0, "a", 1.0), episode(1, "a", 0.0)]
    for game in games:
        for turn in game.turns:
            turn.allowed = [[3, 4]]
    games[1].turns[0].reward = 2.0
    write_parquet(tmp_path / "train.parquet", Source("kuhn", {}), instances(games), "train")
    _, rows = read_parquet(tmp_path / "train.parquet")
    assert [one.sample for one in rows] == [one.sample for one in instances(games)]
    assert rows[0].sample.allowed == to_samples(games, [[0.0, 0.0]] * 2)[0].allowed
    credit = GroupRelative(together=True).samples(games)
    assert [s.advantages for s in lessons(rows)] == [s.advantages for s in credit]


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_a_game_of_several_conversations_is_compared_once(scale: Any) -> None:
    """As in games that are learned from as they are played: a longer game weighs no more."""
    games = [episode(i, "a", float(i)) for i in range(3)]
    games[2].turns += [replace(games[2].turns[0], prompt_ids=[9, 9]) for _ in range(3)]
    credit = GroupRelative(together=True, scale=scale).samples(games)
    found = lessons(instances(games), scale=scale)
    assert len(found) == 9
    assert [s.advantages for s in found] == [s.advantages for s in credit]
