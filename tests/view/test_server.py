"""The view without a browser: who may ask, what is followed, re-scored, hidden, compared."""

from __future__ import annotations

import asyncio
import gzip
import json
import runpy
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_run import episode, pack, write_run
from starlette.testclient import TestClient

from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Task, View
from sparring.games.kuhn import KuhnPoker
from sparring.run.config import dump, load_recipe, make_config
from sparring.view import play, token_text
from sparring.view.config_page import differences, seeds_apart
from sparring.view.episode_index import EpisodeIndex
from sparring.view.ladder_page import ladder
from sparring.view.metrics import charts
from sparring.view.play import Session
from sparring.view.rescore import credits, replay
from sparring.view.rundata import read_log
from sparring.view.runs import find_runs
from sparring.view.server import make_app
from sparring.view.tail import Tail


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "spiral-7")


@pytest.fixture
def client(run: Path, tmp_path: Path) -> TestClient:
    return TestClient(make_app([run], tmp_path))


def test_only_this_machine_and_this_page_may_ask(client: TestClient) -> None:
    assert client.get("/api/runs").status_code == 200
    assert client.get("/api/runs", headers={"host": "evil.example"}).status_code == 400
    game = "/api/runs/spiral-7/games/000000/0/rescore"
    assert client.post(game, content="{}").status_code == 415  # what a form elsewhere could send
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py"):
        assert "def make_app" not in client.get(path).text
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy


def test_what_is_not_there_is_said(client: TestClient) -> None:
    answer = client.get("/api/runs/nope")
    assert answer.status_code == 404 and "no run 'nope'" in answer.json()["error"]
    assert client.get("/api/runs/spiral-7/games/000000/999").status_code == 404


def test_the_players_to_meet_are_those_that_there_are(client: TestClient) -> None:
    games = client.get("/api/runs/spiral-7/ladder").json()["games"]
    assert {game["name"]: game["programs"] for game in games} == {
        "tictactoe": ["perfect", "random"],
        "kuhn": ["perfect", "random"],
        "negotiation": ["scripted", "random"],
    }


@pytest.mark.parametrize(
    ("recipe", "trained"),
    [("kuhn", "kuhn"), ("Mine", "{run}/config.yaml"), ("", "{run}/config.yaml")],
)
def test_commands_to_copy_name_what_there_is(recipe: str, trained: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step_000003").mkdir(parents=True)
    (run / "checkpoints" / "step_000003" / "manifest.json").write_text("{}")
    config = make_config({"recipe": recipe, "games": {"kuhn": {}}})
    (run / "config.yaml").write_text(dump(config))
    (one,) = ladder(run)["checkpoints"]
    command = f"sparring train {trained.format(run=run)} begin.main={run}@3"
    assert one["commands"]["Train"] == command and not one["best"]
    assert load_recipe(command.split()[2], []).games


def test_where_several_policies_learned_commands_name_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = run / "checkpoints" / "step_000003"
    folder.mkdir(parents=True)
    (run / "config.yaml").write_text(dump(make_config({"recipe": "kuhn", "games": {"kuhn": {}}})))
    for name in ("first", "second"):
        (folder / f"{name}.policy.safetensors").touch()
    (one,) = ladder(run)["checkpoints"]
    assert one["policies"] == ["first", "second"]
    assert one["commands"] == {
        "Play": f"sparring play kuhn --policy {run}@3:first",
        "Match": f"sparring arena {run}@3:first --against random",
        "Train": f"sparring train kuhn begin.first={run}@3:first begin.second={run}@3:second",
    }
    (folder / "main.policy.safetensors").touch()
    (one,) = ladder(run)["checkpoints"]
    assert one["policies"] == [] and one["commands"]["Play"].endswith(f"{run}@3")


def test_the_seats_of_a_game_that_is_not_here_have_different_colours(tmp_path: Path) -> None:
    seats = ["reward/own_seats.py:Mine/a", "reward/own_seats.py:Mine/b"]
    run = tmp_path / "work" / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(json.dumps({"iteration": 1, **dict.fromkeys(seats, 0.5)}))
    read_log(run)
    (chart,) = charts(seats)["Rewards"]
    assert len(chart.curves) == 2 and chart.colours == {}  # a chart's own, one for each curve
    code = "from sparring import Game\nclass Mine(Game):\n    seats = ('a', 'b')\n"
    (tmp_path / "work" / "own_seats.py").write_text(code)  # as a run finds its game from anywhere
    (chart,) = charts(seats)["Rewards"]
    assert chart.colours == dict(zip(seats, ("seat-0", "seat-1"), strict=True))


def test_an_address_of_games_is_answered_before_the_run_is_indexed(tmp_path: Path) -> None:
    """As on the first look, or where indexing takes long."""
    (tmp_path / "run" / "episodes").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
    games = [episode("kuhn", ("random", "random"), n) for n in range(5)]
    groups = [replace(game, group="1-0" if n < 3 else "1-3") for n, game in enumerate(games)]
    pack(tmp_path / "run" / "episodes" / "000001.jsonl.gz", groups)
    app = make_app([tmp_path / "run"], tmp_path / "cache")
    app.state.view.update = lambda path: {"left": 9, "total": 9}  # nothing is read meanwhile
    client = TestClient(app)
    answer = client.get("/api/runs/run/group/000001", params={"group": "1-0"}).json()
    assert answer["count"] == len(answer["games"]) == 3
    assert client.get("/api/runs/run/games/000001/4").json()["group_size"] == 2


def test_a_tail_waits_for_whole_lines_and_notices_a_cut(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"a": 1}\n')
    tail = Tail(log)
    with log.open("a") as file:
        file.write('{"a": 2}\n{"a"')
    assert tail.read() == [{"a": 2}] and tail.read() == []
    with log.open("a") as file:
        file.write(": 3}\nnonsense\n")
    assert tail.read() == [{"a": 3}]
    log.write_text('{"a": 1}\n')
    assert tail.read() == [] and tail.restarted


def test_the_index_follows_files_that_change_and_go(tmp_path: Path) -> None:
    file = tmp_path / "run" / "episodes" / "000001.jsonl.gz"
    file.parent.mkdir(parents=True)
    pack(file, [episode("kuhn", ("random", "random"), n) for n in range(3)])
    index = EpisodeIndex(tmp_path / "run", tmp_path / "cache")
    index.update()
    assert index.page({})["count"] == 3
    assert index.read("000001", 2) == episode("kuhn", ("random", "random"), 2)
    pack(file, [episode("tictactoe", ("random", "random"), n) for n in range(5)])
    index.update()
    assert index.page({"game": "tictactoe"})["count"] == index.page({})["count"] == 5
    file.unlink()
    index.update()
    assert index.page({})["count"] == 0 and index.read("000001", 0) is None


def test_the_benchmarks_run_is_indexed_whole(tmp_path: Path) -> None:
    make_run = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "view.py"))["make_run"]
    index = EpisodeIndex(make_run(tmp_path / "run", 8), tmp_path / "cache")
    index.update()
    assert index.page({})["count"] == 8 and sum(index.facets()["outcome"].values()) == 8


def test_files_of_another_version_are_counted_and_not_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "run" / "episodes" / "000001.jsonl.gz"
    file.parent.mkdir(parents=True)
    pack(file, [episode("kuhn", ("random", "random"), 0)])
    old = gzip.decompress(file.read_bytes()).replace(b'"prompt":', b'"shown":')
    file.with_name("000002.jsonl.gz").write_bytes(gzip.compress(old))
    index = EpisodeIndex(tmp_path / "run", tmp_path / "cache")
    index.update()
    page = index.page({})
    assert page["count"] == 1 and page["unreadable"] == 1


def test_a_game_is_scored_again_by_todays_rules() -> None:
    played = episode("kuhn", ("main", "random"), 3)
    config = {"games": {"kuhn": {}}}
    again = asyncio.run(replay(played, config))
    assert again["same"] and again["rewards"] == played.rewards
    played.rewards = {seat: reward + 1 for seat, reward in played.rewards.items()}
    assert not asyncio.run(replay(played, config))["same"]  # the record is not what the rules say
    for turn in played.turns:
        turn.trainable = True
    given = credits(played, [played])
    assert set(given) >= {"role_baseline", "group_relative"} and "gae" not in given
    assert all(len(values) == len(played.turns) for values in given.values())


class Both(Game):
    """Both players choose at the same time."""

    seats = ("one", "two")

    async def play(self, task: Task, table: Table) -> Outcome:
        view = View(None, ("heads", "tails"))
        turns = await asyncio.gather(*(table[s].act("Choose.", view=view) for s in self.seats))
        return Outcome(one=1, two=-1, facts={"said": [turn.text for turn in turns]})


def test_a_move_made_at_the_same_time_is_hidden_until_both_are_in() -> None:
    async def match() -> tuple[dict[str, Any], dict[str, Any]]:
        session = Session(Both(), "both", "one", "random", {}, "unsafe")
        session.task = asyncio.create_task(session.run())
        await session.settle()
        await asyncio.sleep(0.05)  # the other player has long chosen
        during = session.state()
        await session.reply("heads")
        return during, session.state()

    during, after = asyncio.run(match())
    assert during["over"] is None and during["asked"]["actions"] == ["heads", "tails"]
    assert "two" not in json.dumps(during)
    assert [turn["seat"] for turn in after["over"]["turns"]] != [] and after["error"] == ""
    assert {turn["seat"] for turn in after["over"]["turns"]} == {"one", "two"}


def test_the_other_players_card_is_face_down() -> None:
    scene = KuhnPoker().scene(View("Qp", ("check", "bet")), "second")
    assert ">Q<" in scene and ">?<" in scene and ">K<" not in scene and ">J<" not in scene


def test_runs_that_differ_in_their_seed_alone_are_one_experiment() -> None:
    same = {"games": {"kuhn": {}}, "learn": {"lr": 0.1}}
    configs = {
        "a": {**same, "seed": 0},
        "b": {**same, "seed": 1},
        "c": {**same, "seed": 1, "learn": {"lr": 0.2}},
    }
    assert seeds_apart(configs) == [["a", "b"]]
    assert differences(configs) == [
        {"key": "learn.lr", "values": [0.1, 0.1, 0.2]},
        {"key": "seed", "values": [0, 1, 1]},
    ]


def test_runs_are_found_below_a_folder_and_phases_of_a_run_are_not(tmp_path: Path) -> None:
    for name in ("a", "a/sft", "group/b", "other/b"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "config.yaml").write_text("seed: 0\n")
    names = find_runs([tmp_path])
    assert sorted(path.relative_to(tmp_path).as_posix() for path in names.values()) == [
        *("a", "group/b", "other/b")
    ]
    assert len(names) == 3 and "a" in names  # two of one name are told apart


def test_models_are_loaded_in_the_thread_that_loads_tokenizers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Importing transformers in two threads at once fails at times."""
    threads: list[str] = []

    def load(policy: str) -> tuple[Any, str]:
        threads.append(threading.current_thread().name)
        return object(), policy

    monkeypatch.setattr("sparring.engines.load.load_player", load)
    monkeypatch.setattr("sparring.view.play._engines", {})
    asyncio.run(play._engine("nano"))
    threads.append(token_text.loader.submit(lambda: threading.current_thread().name).result())
    assert len(set(threads)) == 1


def test_a_policy_says_how_likely_it_would_choose_each_action() -> None:
    async def match() -> tuple[dict[str, float], dict[str, Any]]:
        session = Session(KuhnPoker(style="terse"), "kuhn", "first", "nano", {}, "unsafe")
        session.task = asyncio.create_task(session.run())
        await session.settle()
        hint = session.hint()
        assert session.request, session.error
        assert session.state()["asked"]["names"] == ["check", "bet"]  # what the buttons say
        await session.reply("p")
        return hint, session.state()

    hint, after = asyncio.run(match())
    assert list(hint) == ["p", "b"] and all(0 < chance < 1 for chance in hint.values())
    assert after["error"] == "" and (after["over"] or after["asked"])
