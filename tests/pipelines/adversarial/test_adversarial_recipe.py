"""The adversarial recipe, whole, on nano: its schedule, its checkpoints by name, its resumes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from browser import assert_tables_align
from lives import Life, Moment, events, facts, sparring

from sparring.core.errors import ConfigError
from sparring.judge.sandbox import probe
from sparring.pipelines.adversarial.crossplay import crossplay
from sparring.run import checkpoint
from sparring.run.config import Config, ScheduleConfig, load_recipe
from sparring.run.machine import detect, settle
from sparring.run.rundir import RunDir
from sparring.run.schedule import plan
from sparring.training import checkpoint_names
from sparring.training.jobs import make_jobs
from sparring.training.loop import train
from sparring.training.state import build

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
# Larger steps than the recipe's, so that a difference in the last digit would grow.
LOUD = ("tracking.tensorboard=false", "learn.lr=1e-3", "learn.critic_lr=1e-2", "evaluate.every=3")
TWO = (*LOUD, "games.adversarial_tests.stages=[informal, code]", "collect.episodes=8")
TWO += ("schedule.every=2", "checkpoint.keep=1")
FEW = ("collect.episodes=2", "evaluate.games=1")


def smoke(*overrides: str) -> Config:
    """As the command line settles it on this machine."""
    return settle(load_recipe("adversarial", list(overrides), smoke=True), detect())[0]


def live(run: Path, *words: str, die_at: Moment | None = None) -> Life:
    command = ("train", "adversarial", "--smoke", "--run", run, *TWO)
    return sparring(*command, *words, cwd=run.parent, die_at=die_at)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two stages, six steps, that was never interrupted."""
    path = tmp_path_factory.mktemp("adversarial") / "run"
    life = live(path)  # as those that are: how many threads there are decides the last digits
    assert life.code == 0, life.err
    return path


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run", symlinks=True))


def test_the_plan_goes_through_stages_and_phases_in_order() -> None:
    steps = plan(ScheduleConfig(discriminator=2, generator=1, alternating=3), ["a", "b"])
    assert [step.seat[0] for step in steps[:6]] == list("ddgdgd")
    assert [step.phase for step in steps[:6]] == [
        *["discriminator"] * 2, "generator", *["alternating"] * 3,
    ]  # fmt: skip
    assert [(step.stage, step.epoch) for step in steps[5:7]] == [(1, 6), (2, 1)]
    assert [step.last for step in steps].count(True) == 2
    defaults = ScheduleConfig()
    assert (defaults.discriminator, defaults.generator, defaults.alternating) == (2, 2, 2)
    assert load_recipe("adversarial").iterations == 30
    assert load_recipe("adversarial", ["schedule.generator=5"]).iterations == 45


def test_only_the_stage_in_training_trains_and_only_one_seat_learns() -> None:
    parts = build(smoke())
    seen = []
    for iteration, step in enumerate(parts.steps, 1):
        job = make_jobs(parts, iteration)[0]
        assert job.learning == {step.seat} and job.stages == {step.name}
        seen.append((step.name, step.seat))
    assert len(seen) == 15 and seen[0] == ("informal", "discriminator")
    assert seen[-2] == ("code", "generator")
    together = build(smoke("schedule.together=true"))
    job = make_jobs(together, 2)[0]
    assert job.stages is None and job.learning == {"generator"}


def test_the_whole_recipe_on_nano(tmp_path: Path) -> None:
    words = ("train", "adversarial", "--smoke", *LOUD, "collect.episodes=16")
    life = sparring(*words, cwd=tmp_path)
    assert life.code == 0, life.err
    run = RunDir.existing(tmp_path / "runs" / "adversarial-smoke")
    before, *lines = facts(run.path)
    assert before["iteration"] == 0 and before["eval/score"] >= 0
    assert [line["iteration"] for line in lines] == list(range(1, 16))
    assert [line["schedule/stage"] for line in lines] == [s for s in range(1, 6) for _ in "123"]
    for line in lines:
        who = line["schedule/learner"]
        other = {"generator": "discriminator", "discriminator": "generator"}[who]
        assert line[f"learn/{who}/steps"] >= 1 and f"learn/{other}/steps" not in line
        assert 0 <= line["tests/validity"] <= 1
    assert any(line["reward/adversarial_tests/discriminator"] > 0 for line in lines)
    assert any(line.get("learn/discriminator/grad_norm", 0) > 0 for line in lines)
    for line in lines:
        trained = {
            turn.stage
            for e in run.read_episodes(line["iteration"])
            for turn in e.turns
            if turn.trainable
        }
        learner = line["schedule/learner"]
        names = ["informal", "structured", "pseudocode", "constraints", "code"]
        stage = names[line["schedule/stage"] - 1]
        assert trained == ({stage} if learner == "generator" else {""})
    found = sorted(p.name for p in run.checkpoints.glob("checkpoint_*") if p.is_symlink())
    assert found == ["checkpoint_best", *[f"checkpoint_stage_{s}_epoch_3" for s in range(1, 6)]]
    met = json.loads((run.path / "crossplay.json").read_text())
    assert met["names"] == ["untrained", *[f"stage {s}" for s in range(1, 6)]]
    assert [len(row) for row in met["discriminator_wins"]] == [6] * 6
    assert len(met["over_time"]) == 5 and met["problems"] == 2
    bugs = json.loads((run.path / "bugs.json").read_text())
    assert bugs["bugs"] == sum(line["tests/bugs"] for line in lines) > 0
    assert {"problem", "test", "broke", "ran", "stages"} == set(bugs["most"][0])
    page = (run.path / "report.html").read_text()
    assert_tables_align(run.path / "report.html")
    for title in ("Stage by stage", "Cross-play of the stages", "Tests that found bugs"):
        assert title in page or title.replace("&#x27;", "'") in page


def test_each_name_has_its_json(finished: Path) -> None:
    folder = finished / "checkpoints"
    told = json.loads((folder / "checkpoint_stage_2_epoch_3.json").read_text())
    assert (told["stage"], told["stage_name"], told["epoch"]) == (2, "code", 3)
    assert told["checkpoint"] == "step_000006" and told["device"] == "cpu"
    assert told["config"]["recipe"] == "adversarial" and told["time"].endswith("Z")
    line = facts(finished)[-1]
    assert {k: told["metrics"][k] for k in line} == line
    best = json.loads((folder / "checkpoint_best.json").read_text())
    score = best["metrics"]["eval/score"]
    assert score == max(line.get("eval/score", -1) for line in facts(finished)[1:])
    held = {k.rpartition("held_out/")[2]: v for k, v in best["metrics"].items() if "held_out" in k}
    assert score == pytest.approx(0.7 * held["reward/generator"] + 0.3 * held["validity"])
    assert (folder / "checkpoint_best").resolve() == (folder / "best").resolve()
    files = {p.name for p in (folder / "checkpoint_best").iterdir()}
    assert {"generator.critic.safetensors", "discriminator.critic_optimizer.safetensors"} <= files


def test_names_come_every_so_many_epochs_and_their_steps_are_kept(finished: Path) -> None:
    folder = finished / "checkpoints"
    names = {p.name for p in folder.glob("checkpoint_stage_*") if p.is_symlink()}
    assert names == {f"checkpoint_stage_{s}_epoch_{e}" for s in (1, 2) for e in (2, 3)}
    assert {2, 3, 5, 6} <= set(checkpoint.steps(folder))
    assert 4 not in checkpoint.steps(folder)


def test_a_run_killed_in_the_middle_of_a_stage_comes_to_the_same(
    tmp_path: Path, finished: Path
) -> None:
    run = tmp_path / "run"
    moments = (
        Moment("000002.jsonl.gz"),  # in the first stage
        Moment(".step_000003.unfinished/manifest.json"),  # in the checkpoint of its end
        Moment("checkpoint_stage_1_epoch_3.json"),  # when that is there, and has no name yet
        Moment("000005.jsonl.gz", 2),  # in the second stage
    )
    for moment in moments:
        life = live(run, "--resume", die_at=moment)
        assert life.code == -signal.SIGKILL, f"{moment} did not come: {life.out}{life.err}"
    life = live(run, "--resume")
    assert life.code == 0, life.err
    assert facts(run) == facts(finished)
    assert manifests(run) == manifests(finished)
    assert checkpoint_names.usable(run / "checkpoints") == checkpoint_names.usable(
        finished / "checkpoints"
    )
    assert events(run, "resumed")


def manifests(run: Path) -> dict[str, Any]:
    return {
        p.parent.name: {
            name: digest
            for name, digest in json.loads(p.read_text())["sha256"].items()
            if name.endswith(".safetensors")
        }
        for p in (run / "checkpoints").glob("step_*/manifest.json")
    }


def test_a_run_goes_on_from_a_checkpoint_by_name(tmp_path: Path, finished: Path) -> None:
    run = copied(finished, tmp_path)
    path = run / "checkpoints" / "checkpoint_stage_1_epoch_3"
    life = sparring(
        "train", "adversarial", "--smoke", *TWO, "--resume-from", path, cwd=tmp_path
    )  # the run is the one that the checkpoint is of
    assert life.code == 0, life.err
    assert facts(run) == facts(finished)
    assert (run / "checkpoints" / "later_step_000006").is_dir()
    [event] = events(run, "resumed")
    assert event["iteration"] == 3 and "checkpoint_stage_1_epoch_3" in event["detail"]


def test_a_damaged_or_missing_checkpoint_is_refused_with_the_usable_ones(
    tmp_path: Path, finished: Path
) -> None:
    run = copied(finished, tmp_path)
    file = run / "checkpoints" / "step_000003" / "generator.critic.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    before = sorted(p.name for p in (run / "checkpoints").iterdir())
    for name, reason in (
        ("checkpoint_stage_1_epoch_3", r"generator\.critic\.safetensors is not what was written"),
        ("checkpoint_stage_9_epoch_3", "there is no such checkpoint"),
    ):
        with pytest.raises(ConfigError, match=reason) as error:
            train(smoke(*TWO), run, resume_at=name)
        listed = str(error.value).partition("Usable: ")[2]
        assert "checkpoint_stage_2_epoch_3" in listed and "stage_1_epoch_3" not in listed
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == before
    assert facts(run) == facts(finished)


def test_a_checkpoint_of_another_architecture_or_device_is_refused(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(finished, tmp_path)
    with pytest.raises(ConfigError, match=r"another config \(learn\.lora_r differ\)"):
        train(smoke(*TWO, "learn.lora_r=4"), run, resume=True)
    other = train(smoke(*TWO, *FEW, "learn.lora_r=4"), tmp_path / "other")
    stray = run / "checkpoints" / "step_000006"
    shutil.rmtree(stray)
    shutil.copytree(other.checkpoints / "step_000006", stray)
    with pytest.raises(ConfigError, match=r"another model: .*lora.*Usable: .*stage_1") as error:
        train(smoke(*TWO), run, resume_at="checkpoint_stage_2_epoch_3")
    assert "checkpoint_stage_2_epoch_3" in str(error.value)
    state = json.loads((run / "checkpoints/step_000003/state.json").read_text())
    parts = build(smoke(*TWO))
    from sparring.training.state import _load

    with pytest.raises(ConfigError, match="written on cuda and this is cpu"):
        _load(RunDir(run), parts, "step_000003", {}, {**state, "device": "cuda"})
    assert facts(run) == facts(finished)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "games.adversarial_tests.stages=[codes]",
            "no stage 'codes'; did you mean 'code'",
        ),
        ("tasks.source=missing.json", "there is no file 'missing.json'"),
        ("tasks.source=bad.json", "problem 'p' of bad.json: it has no function_signature"),
        ("tasks.source=false.json", "false.json: the reference of problem 'p' does not pass"),
        ("schedule={enabled: true, discriminator: 0, generator: 0, alternating: 0}", "no steps"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(
    tmp_path: Path, override: str, message: str
) -> None:
    row = {
        "id": "p",
        "description": "Nothing.",
        "baseline_tests": ["assert f(1) == 2"],
        "reference_solution": "def f(x): return x",
    }
    signed = {**row, "function_signature": "def f(x):"}
    for name, each in (("bad.json", row), ("false.json", signed)):
        (tmp_path / name).write_text(json.dumps({"problems": [each]}))
    life = sparring("train", "adversarial", "--smoke", override, cwd=tmp_path)
    assert life.code == 2 and message in life.err, life.err
    assert not (tmp_path / "runs").exists()


def test_a_schedule_needs_a_game_with_stages() -> None:
    with pytest.raises(ConfigError, match="one game that reasons in stages"):
        load_recipe("kuhn", ["schedule.enabled=true"])


def test_a_sixth_stage_is_played_scheduled_and_named(tmp_path: Path) -> None:
    stages = (
        "games.adversarial_tests.stages=[informal, structured, pseudocode, constraints, "
        "{name: review, instruction: Look for a mistake., sees: [pseudocode]}, code]"
    )
    schedule = "schedule={enabled: true, discriminator: 0, generator: 1, alternating: 0}"
    run = train(smoke(*LOUD, stages, schedule, *FEW), tmp_path / "run")
    lines = facts(run.path)[1:]
    assert [line["schedule/stage"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert (run.checkpoints / "checkpoint_stage_6_epoch_1").is_symlink()
    turns = run.read_episodes(5)[0].turns
    assert [t.stage for t in turns if t.trainable] == ["review"]
    assert len(turns) == 7


def test_a_discriminator_learns_to_break_programs(tmp_path: Path) -> None:
    """Against programs that are right half of the time: digits, then the digits that tell."""
    overrides = ["iterations=11", "checkpoint.every=11", "tracking.tensorboard=false"]
    overrides += ["learn.entropy=0.01", "learn.entropy_end=null"]
    run = train(load_recipe("adversarial-discriminator", overrides), tmp_path / "run")
    lines = facts(run.path)
    rewards = [line["reward/adversarial_tests/discriminator"] for line in lines]
    assert sum(rewards[:2]) / 2 < 0.015 < 0.03 < sum(rewards[-2:]) / 2
    assert lines[-1]["tests/validity"] > 4 * lines[0]["tests/validity"]
    turns = [turn for e in run.read_episodes(1) for turn in e.turns]
    assert {t.policy for t in turns if t.seat == "generator"} == {"scripted"}
    assert all(t.trainable == (t.seat == "discriminator") for t in turns)
    small = train(load_recipe("adversarial-discriminator", smoke=True), tmp_path / "smoke")
    assert [line["iteration"] for line in facts(small.path)] == [1, 2, 3]


def test_both_seats_are_fitted_to_examples_and_meet_the_base_model(tmp_path: Path) -> None:
    overrides = [
        *("games.adversarial_tests.stages=[code]", "collect.episodes=2", "evaluate.games=2"),
        "schedule={enabled: true, discriminator: 1, generator: 0, alternating: 0}",
        "begin={generator: 'perfect:4', discriminator: 'perfect:4'}",
        "tracking.tensorboard=false",
    ]
    run = train(load_recipe("adversarial-warm", overrides, smoke=True), tmp_path / "run")
    first = facts(run.path)[0]
    assert first["imitation/lessons"] == 8
    assert {"imitation/generator/loss", "imitation/discriminator/loss"} <= set(first)
    asyncio.run(crossplay(run, 1))
    met = json.loads((run.path / "crossplay.json").read_text())
    assert met["names"] == ["untrained", "after imitation", "stage 1"] and met["problems"] == 1
    assert met["interval_95"][0][0][0] == 0 and set("".join(met["broken"][2])) <= {"0", "1"}
