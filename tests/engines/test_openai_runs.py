"""Players on servers in runs, arenas and recorded games; where keys go."""

import asyncio
import gzip
import itertools
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rogue import (
    Rogue,
    chat_reply,
    echoes_the_key,
    hangs_up,
    raw,
    refuses,
    says,
)
from test_openai import RUBBISH, SECRET, engine_of
from test_openai import rogue as rogue
from typer.testing import CliRunner

from sparring.cli.app import app
from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.game import Game, Outcome
from sparring.core.types import Task
from sparring.learn.demonstrations import Demonstration, read_demonstrations
from sparring.run.config import make_config
from sparring.run.rundir import RunDir, RunError, read_lines
from sparring.run.servers import ServerConfig, server_of
from sparring.training.loop import train


def test_a_player_is_named_by_its_address() -> None:
    found = server_of("meta/llama:8b@https://host.example/api/v1", {})
    assert found and (found.model, found.url) == ("meta/llama:8b", "https://host.example/api/v1")
    assert server_of("runs/a@12", {}) is None and server_of("base", {}) is None
    named = ServerConfig(url="http://x/v1", model="y")
    assert server_of("rival", {"rival": named}) is named


# --- keys ------------------------------------------------------------------------------------


def config_of(rogue: Rogue, **changes: Any) -> dict[str, Any]:
    return {
        "policy": "nano",
        "iterations": 2,
        "games": {"tictactoe": {"style": "terse"}},
        "players": {"x": "rival"},
        "servers": {
            "rival": {"url": rogue.url, "model": "m", "retries": 0, "backoff_s": 0.01, **changes}
        },
        "sampling": {"max_tokens": 1},
        "collect": {"episodes": 8},
        "evaluate": {"games": 0, "every": 2},
        "engine": {"device": "cpu", "dtype": "float32"},
        "learn": {"lora_r": 2},
    }


def plays_tictactoe(handler: Any, body: dict[str, Any]) -> None:
    """Any number: legal sometimes."""
    handler.send(200, chat_reply(str(sum(map(ord, body["messages"][-1]["content"])) % 9)))


def test_a_run_meets_a_player_on_a_server(rogue: Rogue, tmp_path: Path) -> None:
    rogue.default = plays_tictactoe
    run = train(make_config(config_of(rogue, price_out=1.0)), tmp_path / "run")
    lines = list(read_lines(run.metrics))
    assert [line["iteration"] for line in lines] == [1, 2]
    for line in lines:
        assert line["server/rival/requests"] > 0 and line["server/rival/failures"] == 0
        assert line["server/rival/tokens_out"] == 3 * line["server/rival/requests"]
        assert line["server/rival/cost"] == pytest.approx(line["server/rival/tokens_out"] / 1e6)
        assert line["rate/void"] == 0
    turns = [turn for e in run.read_episodes(1) for turn in e.turns]
    assert {t.trainable for t in turns if t.policy == "rival"} == {False}
    assert {t.trainable for t in turns if t.policy == "main"} == {True}
    [event] = [e for e in read_lines(run.events) if e["event"] == "not_trainable"]
    assert "rival is a player on a server" in event["detail"]


def test_a_run_outlives_a_server_that_fails_half_the_time(rogue: Rogue, tmp_path: Path) -> None:
    bad = itertools.cycle([*RUBBISH.values(), refuses(400, "no")])
    turn = itertools.cycle([True, True, True, False])

    def moody(handler: Any, body: dict[str, Any]) -> None:
        (plays_tictactoe if next(turn) else next(bad))(handler, body)

    rogue.default = moody
    config = config_of(rogue)
    config["collect"]["episodes"] = 48
    run = train(make_config(config), tmp_path / "run")
    episodes = [e for i in (1, 2) for e in run.read_episodes(i)]
    void = [e for e in episodes if e.void]
    assert 0 < len(void) < len(episodes)
    assert all(e.void and e.void.startswith(f"rival at {rogue.url}: ") for e in void)
    assert all(line["rate/void"] > 0 for line in read_lines(run.metrics))


def test_a_run_stops_where_a_server_is_gone(rogue: Rogue, tmp_path: Path) -> None:
    """Its games are void, and a run of void games alone learns nothing."""
    rogue.default = hangs_up
    with pytest.raises(RunError, match=r"8 of the last 8 games are void.*the connection failed"):
        train(make_config(config_of(rogue)), tmp_path / "run")
    episodes = RunDir(tmp_path / "run").read_episodes(1)
    assert all(e.void and "the connection failed" in e.void for e in episodes)


def everything_in(folder: Path) -> bytes:
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found.append(gzip.decompress(data) if path.suffix == ".gz" else data)
    return b"".join(found)


def test_a_key_is_sent_and_found_nowhere(
    rogue: Rogue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Not even when the server says it back, in words and in refusals."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("RIVAL_KEY", SECRET)
    kinds = itertools.cycle(
        [
            echoes_the_key,
            plays_tictactoe,
            refuses(401, f"Incorrect API key provided: {SECRET}"),
            raw(f"<html>{SECRET}</html>".encode()),
            plays_tictactoe,
        ]
    )
    rogue.default = lambda handler, body: next(kinds)(handler, body)
    run = train(make_config(config_of(rogue, key="RIVAL_KEY")), tmp_path / "run")
    assert set(rogue.keys) == {f"Bearer {SECRET}"}
    kept = everything_in(run.path)
    assert b"***" in kept and b"RIVAL_KEY" in kept, "the search looks where it should"
    assert SECRET.encode() not in kept
    out, err = capfd.readouterr()
    assert SECRET not in caplog.text + out + err


@pytest.mark.parametrize(
    "changes",
    [
        {"key": SECRET},
        {"url": f"https://{SECRET}@host.example/v1"},
        {"url": f"https://host.example/v1?key={SECRET}"},
        {"api_key": SECRET},
        {"key": SECRET, "url": None},
    ],
)
def test_a_key_in_a_config_is_refused_and_not_repeated(rogue: Rogue, changes: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        make_config(config_of(rogue, **changes))
    assert SECRET not in str(refused.value)


def test_a_variable_that_is_named_must_be_set(rogue: Rogue, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the variable RIVAL_KEY.*is not set"):
        train(make_config(config_of(rogue, key="RIVAL_KEY")), tmp_path / "run")
    assert not (tmp_path / "run").exists() and rogue.paths == []


def test_a_key_with_a_line_break_is_refused_unseen(
    rogue: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIVAL_KEY", f"{SECRET}\nX-More: 1")
    with pytest.raises(ConfigError, match="RIVAL_KEY holds characters") as refused:
        engine_of(rogue, key="RIVAL_KEY")
    assert SECRET not in str(refused.value)


# --- before a run begins -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "status", "reason"),
    [
        (["n"], 200, "has no model 'm'"),
        (None, 401, "answered 401; is the variable SPARRING_API_KEY"),
        (None, 403, "answered 403"),
    ],
)
def test_a_server_that_cannot_serve_is_refused_before_anything_is_written(
    rogue: Rogue, tmp_path: Path, models: list[str] | None, status: int, reason: str
) -> None:
    rogue.models, rogue.models_status = models, status
    with pytest.raises(ConfigError, match=reason):
        train(make_config(config_of(rogue)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_that_is_not_there_is_refused(rogue: Rogue, tmp_path: Path) -> None:
    config = make_config(config_of(rogue))
    rogue.shutdown()
    rogue.server_close()
    with pytest.raises(ConfigError, match=r"rival: no server answers at .*; start it"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_without_a_list_of_models_is_taken_at_its_word(rogue: Rogue) -> None:
    rogue.models = None
    engine_of(rogue).line.reach()
    assert rogue.paths == ["/v1/models"]


def test_opponents_can_be_players_by_name(rogue: Rogue, tmp_path: Path) -> None:
    rogue.default = plays_tictactoe
    config = config_of(rogue)
    config["players"] = {}
    config["opponents"] = {"kind": "players", "players": ["rival"], "share": 1.0}
    run = train(make_config(config), tmp_path / "run")
    seatings = [e.seating for e in run.read_episodes(1)]
    assert all(sorted(s.values()) == ["main", "rival"] for s in seatings)
    assert {s["x"] for s in seatings} == {"main", "rival"}, "and the learner changes seats"
    config["opponents"]["players"] = []
    with pytest.raises(ConfigError, match=r"opponents\.players is empty"):
        train(make_config(config), tmp_path / "other")


def test_nobody_learns_where_every_seat_is_on_a_server(rogue: Rogue, tmp_path: Path) -> None:
    config = config_of(rogue)
    config["players"] = {"o": f"m@{rogue.url}", "x": "rival"}
    with pytest.raises(ConfigError, match="nothing learns"):
        train(make_config(config), tmp_path / "run")


# --- on the command line -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "against"), [("SERVER", "random"), ("nano", "SERVER"), ("SERVER", "nano")]
)
def test_a_server_plays_in_the_arena(rogue: Rogue, who: str, against: str) -> None:
    rogue.default = plays_tictactoe
    address = f"m@{rogue.url}"
    players = [address if name == "SERVER" else name for name in (who, against)]
    words = ["arena", players[0], "--against", players[1], "--game", "tictactoe"]
    result = CliRunner().invoke(app, [*words, "--games", "4", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["games"] == 4 and found["void"] == 0 and rogue.bodies


def test_a_server_plays_with_itself_on_record(rogue: Rogue, tmp_path: Path) -> None:
    rogue.default = plays_tictactoe
    words = ["selfplay", "tictactoe", "--policy", f"m@{rogue.url}", "--games", "4"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "games")])
    assert result.exit_code == 0, result.output
    lines = list(read_lines(tmp_path / "games" / "selfplay_games.jsonl"))
    assert len(lines) == 4 and all(line["episode"]["turns"] for line in lines)
    assert not any(turn["trainable"] for line in lines for turn in line["episode"]["turns"])


def test_a_server_is_a_teacher(rogue: Rogue, tmp_path: Path) -> None:
    """Whatever earned something in its games is shown to a model, with all that came before."""

    rogue.default = says("seven")
    told = [{"role": "system", "content": "count"}, {"role": "user", "content": "one"}]

    class Lesson(Game):
        seats = ("good", "bad")

        async def play(self, task: Task, table: Any) -> Outcome:
            await table["good"].act("one", system="count")
            await table["good"].reply("two")
            await table["bad"].act("three")
            return Outcome(good=1, bad=-1)

    seats = {"good": "m", "bad": "m"}
    jobs = [Job(str(i), "lesson", Lesson(), Task("t"), i, seats) for i in range(2)]
    episodes = asyncio.run(collect(jobs, engine_of(rogue).act))
    episodes[1].void = "a judge broke"
    file = tmp_path / "games.jsonl"
    file.write_text("".join(f"{json.dumps({'episode': asdict(e)})}\n" for e in episodes))
    shown = read_demonstrations(str(file))
    begun = tuple((m["role"], m["content"]) for m in told)
    assert shown == [
        Demonstration(begun, "seven"),
        Demonstration((*begun, ("assistant", "seven"), ("user", "two")), "seven"),
    ]
    words = ["finetune", "--model", "nano", "--data", str(file), "--out", str(tmp_path / "made")]
    result = CliRunner().invoke(app, [*words, "--epochs", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output.splitlines()[-1])["demonstrations"] == 2
