"""verifiers' environments here, and our games in verifiers: the same replies, the same rewards."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chat_server import choose, serving

from sparring.bridges import host
from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Request
from sparring.run.games import load_game

pytest.importorskip("verifiers", reason="verifiers is not installed")
ENVIRONMENTS = Path(__file__).parent / "verifiers_environments"
WORDS = ["b", "p", "c", "f", "k"]
VF_EVAL = Path(sys.executable).parent / "vf-eval"


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ENVIRONMENTS))
    monkeypatch.setattr(host, "WORKERS", 1)  # importing verifiers takes seconds


def vf_eval(name: str, out: Path, *words: str, path: Path, tasks: int) -> list[dict]:
    """The traces of a run of verifiers' own command."""
    with serving(lambda messages: choose(messages, WORDS)) as url:
        found = os.pathsep.join([str(path), str(ENVIRONMENTS), *sys.path])
        server = ["--client.base-url", url, "--client.api-key-var", "ANY_KEY"]
        done = subprocess.run(
            [VF_EVAL, name, "-m", "m", "-n", str(tasks), *server, "--output-dir", str(out),
             "--no-rich", "--no-push", *words],
            capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": found, "ANY_KEY": "any"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    return [trace for episode in episodes for trace in episode["traces"]]


def test_an_environment_is_a_game_with_its_own_rewards() -> None:
    """The reward is 2 for the right sum and half of 1 / (1 + length); tasks are taken in turn."""
    game = load_game("verifiers:owner/adding", settings={"taskset": {"count": 3}})
    assert game.seats == ("agent",) and game.cooperative
    replies = ["1", "3", "15", " 1 "]
    engine = ScriptedEngine({"s": lambda request: replies[request.order[0]]})
    jobs = [Job(f"{i}", "adding", game, game.task(i), i, {"agent": "s"}) for i in range(4)]
    episodes = asyncio.run(collect(jobs, engine.act))
    assert [e.void for e in episodes] == [None] * 4
    assert [e.turns[0].prompt for e in episodes] == ["0 + 1 =", "1 + 2 =", "2 + 3 =", "0 + 1 ="]
    assert episodes[0].turns[0].before == [{"role": "system", "content": "Add."}]
    expected = [2 + 0.25, 2 + 0.25, 0.5 / 3, 2 + 0.25]
    assert [e.rewards["agent"] for e in episodes] == pytest.approx(expected)
    assert game.measures(episodes, "s") == {"score": pytest.approx(sum(expected) / 4)}


def test_an_environment_that_raises_voids_its_game() -> None:
    game = load_game("verifiers:adding")
    engine = ScriptedEngine({"s": lambda request: "raise"})
    job = Job("0", "adding", game, game.task(0), 0, {"agent": "s"})
    (episode,) = asyncio.run(collect([job], engine.act))
    assert episode.void and "a reply that cannot be judged" in episode.void


def test_an_environment_that_is_not_installed_is_refused_with_the_command() -> None:
    with pytest.raises(ConfigError, match="prime env install someone/nothing"):
        load_game("verifiers:someone/nothing")


def test_an_exported_game_is_played_by_vf_eval_to_the_same_rewards(tmp_path: Path) -> None:
    from sparring.bridges.verifiers_export import export_game

    made = export_game("kuhn", {"style": "terse"}, tmp_path / "package")
    assert made["agents"] == ["first", "second"]
    traces = vf_eval("sparring-kuhn", tmp_path / "out", path=tmp_path / "package", tasks=8)

    def script(request: Request) -> str:
        return choose([*request.history, *request.messages], WORDS)

    game = load_game("kuhn", style="terse")
    jobs = [
        Job(f"{i}", "kuhn", game, game.match_task(i), i, dict.fromkeys(game.seats, "s"))
        for i in range(8)
    ]
    episodes = asyncio.run(collect(jobs, ScriptedEngine({"s": script}).act))
    ours = [
        (t.seat, t.prompt, t.text, e.rewards[t.seat], e.facts) for e in episodes for t in e.turns
    ]
    theirs = [
        (
            trace["agent"]["name"],
            trace["nodes"][0]["message"]["content"],
            trace["nodes"][-1]["message"]["content"],
            trace["rewards"]["reward"]["score"],
            trace["info"]["facts"],
        )
        for trace in traces
    ]
    assert len({reward for *_, reward, _ in ours}) > 2
    assert sorted(map(repr, theirs)) == sorted(map(repr, ours))


def test_what_cannot_be_exported_writes_nothing(tmp_path: Path) -> None:
    from sparring.bridges.verifiers_export import export_game

    with pytest.raises(ConfigError, match="does not make its own tasks"):
        export_game("code_execution", {}, tmp_path / "a")
    with pytest.raises(ConfigError, match="did you mean 'kuhn'"):
        export_game("khun", {}, tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        export_game("kuhn", {}, tmp_path / "full")
    assert not (tmp_path / "a").exists()
