"""Both code recipes, whole: collect, judge, learn, evaluate, resume; and who learns in them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparring.core.errors import ConfigError
from sparring.judge.sandbox import probe
from sparring.run.config import Config, load_recipe
from sparring.run.rundir import RunDir, read_lines
from sparring.training.jobs import make_jobs
from sparring.training.loop import train
from sparring.training.state import build

jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
BOTH = ["players={author: author, predictor: predictor}"]


def lines(run: RunDir) -> list[dict[str, Any]]:
    return list(read_lines(run.metrics))


def smoke(name: str, *overrides: str) -> Config:
    return load_recipe(name, ["tracking.tensorboard=false", *overrides], smoke=True)


@jailed
def test_grpo_code_execution_end_to_end(tmp_path: Path) -> None:
    run = train(smoke("grpo-code-execution"), tmp_path / "run")
    before, *trained = lines(run)
    assert [line["iteration"] for line in (before, *trained)] == [0, 1, 2, 3]
    evaluated = [line["iteration"] for line in (before, *trained) if "mbpp_eval/pass_rate" in line]
    assert evaluated == [0, 2, 3]
    assert before["mbpp_eval/problems"] == 4 and "mbpp_eval/problems_passed" in before
    kept = sorted(path.name for path in (run.path / "evaluations").iterdir())
    assert kept == ["mbpp_000000.json", "mbpp_000002.json", "mbpp_000003.json"]
    detail = json.loads((run.path / "evaluations" / kept[0]).read_text())
    assert len(detail["details"]) == 4 and "code" in detail["details"][0]["attempts"][0]
    for line in trained:
        assert -1 <= line["reward/avg_batch_reward"] <= 1
        assert sum(v for k, v in line.items() if k.startswith("verdicts/")) == 32
        assert line["learn/grad_norm"] > 0
    episodes = run.read_episodes(1)
    assert Counter(e.group for e in episodes) == {f"1-{table}": 8 for table in range(4)}
    assert len({(e.group, e.task.id) for e in episodes}) == 4  # a group shares its task


@jailed
def test_grpo_code_game_end_to_end_with_both_adapters_learning(tmp_path: Path) -> None:
    run = train(smoke("grpo-code-game", *BOTH, "mbpp.every=3"), tmp_path / "run")
    trained = lines(run)[1:]
    assert all("reward/successful_predictions_count" in line for line in trained)
    assert any(line.get("learn/author/grad_norm", 0) > 0 for line in trained)
    asked = [e for i in (1, 2, 3) for e in run.read_episodes(i) if len(e.turns) == 2]
    assert asked  # some programs of nano run and print
    for episode in asked:
        assert [(t.seat, t.policy, t.trainable) for t in episode.turns] == [
            ("author", "author", True),
            ("predictor", "predictor", True),
        ]
    assert any("learn/predictor/steps" in line for line in trained)


@jailed
def test_nano_learns_to_write_programs_that_run(tmp_path: Path) -> None:
    """One byte is a program: random bytes earn about -0.6, a digit +0.5."""
    run = train(
        smoke(
            "grpo-code-execution",
            *("iterations=20", "collect.episodes=32", "learn.weights=full", "learn.lr=5e-3"),
            *("mbpp.enabled=false", "checkpoint.every=20", "guard.enabled=false"),
        ),
        tmp_path / "run",
    )
    rewards = [line["reward/avg_batch_reward"] for line in lines(run)]
    assert sum(rewards[:3]) / 3 < -0.3
    assert sum(rewards[-3:]) / 3 > 0.3


@jailed
def test_a_stopped_run_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    config = smoke("grpo-code-game", "mbpp.problems=2")
    whole = train(config, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(metrics: dict[str, Any]) -> None:
        if metrics["iteration"] == 1:
            raise Stop

    with pytest.raises(Stop):
        train(config, tmp_path / "cut", progress=stop)
    cut = train(config, tmp_path / "cut", resume=True)

    def facts(run: RunDir) -> list[dict[str, Any]]:
        return [
            {
                k: v
                for k, v in line.items()
                if not k.startswith(("time/", "memory/")) and "per_s" not in k
            }
            for line in lines(run)
        ]

    assert facts(cut) == facts(whole)


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PATH", "/nowhere")
    probe.cache_clear()
    yield
    probe.cache_clear()


@pytest.mark.usefixtures("no_bubblewrap")
def test_without_a_jail_nothing_starts(tmp_path: Path) -> None:
    for name in ("grpo-code-execution", "grpo-code-game"):
        with pytest.raises(ConfigError, match=r"bubblewrap.*sandbox: unsafe"):
            train(smoke(name), tmp_path / name)
        assert not (tmp_path / name).exists()
    assert build(smoke("grpo-code-execution", "sandbox=unsafe")).config.sandbox == "unsafe"
    kuhn = load_recipe("kuhn", ["policy=nano"], smoke=True)
    assert build(kuhn).tasks == {}  # games that run no programs need no jail


@pytest.mark.usefixtures("no_bubblewrap")
def test_unsafe_runs_where_there_is_no_bubblewrap(tmp_path: Path) -> None:
    config = smoke("grpo-code-execution", "sandbox=unsafe", "iterations=1", "collect.episodes=8")
    assert lines(train(config, tmp_path / "run"))[-1]["rate/void"] == 0


def seats_that_train(config: Config) -> dict[str, str]:
    parts = build(config)
    job = make_jobs(parts, 1)[0]
    assert set(job.learned) == set(parts.learner.optimizers)
    return {
        seat: policy
        for seat, policy in job.seating.items()
        if policy in job.learned and job.learning is not None and seat in job.learning
    }


@jailed
def test_who_learns_is_said_by_players_and_seats(tmp_path: Path) -> None:
    game = "grpo-code-game"
    assert seats_that_train(smoke(game)) == {"author": "main"}
    assert seats_that_train(smoke(game, "players={}")) == {"author": "main", "predictor": "main"}
    only = "learn.seats=[author]"
    assert seats_that_train(smoke(game, "players={}", only)) == {"author": "main"}
    assert seats_that_train(smoke(game, *BOTH, only)) == {"author": "author"}
    assert seats_that_train(smoke(game, *BOTH)) == {"author": "author", "predictor": "predictor"}
    with pytest.raises(ConfigError, match="nothing learns"):
        build(smoke(game, "learn.seats=[predictor]"))
    with pytest.raises(ConfigError, match=r"learn.seats: no game has a seat 'autor'.*'author'"):
        smoke(game, "learn.seats=[autor]")
    with pytest.raises(ConfigError, match=r"players: no game has a seat 'critic'"):
        smoke(game, "players={critic: base}")


@jailed
def test_a_checkpoint_of_another_run_can_be_the_opponent(tmp_path: Path) -> None:
    one = ["iterations=1", "collect.episodes=8", "mbpp.enabled=false"]
    train(smoke("grpo-code-game", *one), tmp_path / "first")
    opponent = f"players={{predictor: {tmp_path}/first@1}}"
    run = train(smoke("grpo-code-game", *one, opponent), tmp_path / "second")
    (episode, *_) = run.read_episodes(1)
    assert episode.seating == {"author": "main", "predictor": f"{tmp_path}/first@1"}
    with pytest.raises(ConfigError, match="no checkpoint 9"):
        build(smoke("grpo-code-game", f"players={{predictor: {tmp_path}/first@9}}"))


@jailed
def test_missing_data_stops_a_run_before_it_begins(tmp_path: Path) -> None:
    for override in ("tasks.source=missing.jsonl", "mbpp.data=missing.jsonl"):
        with pytest.raises(ConfigError, match=r"no file 'missing\.jsonl'"):
            train(smoke("grpo-code-execution", override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_mbpps_variables_override_the_recipe_and_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "7")
    monkeypatch.setenv("MBPP_DATASET_PATH", "/custom/path")
    mbpp = load_recipe("grpo-code-execution").mbpp
    assert (mbpp.problems, mbpp.data) == (7, "/custom/path")
    mbpp = load_recipe("grpo-code-execution", ["mbpp.problems=9"]).mbpp
    assert (mbpp.problems, mbpp.data) == (7, "/custom/path")
    assert load_recipe("kuhn").mbpp.problems is None
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "many")
    with pytest.raises(ConfigError, match=r"mbpp\.problems.*many"):
        load_recipe("grpo-code-execution")
