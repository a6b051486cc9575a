"""The loop as a whole: what it does when weights collapse, disks fill, folders vanish, files rot,
or the engine speaks with other weights than the learner moves."""

from __future__ import annotations

import copy
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lives import Life, Moment, events, facts, train, whole

from sparring.run import checkpoint
from sparring.run.config import make_config
from sparring.run.rundir import read_lines
from sparring.training.requirements import nano_hint

GUARDED = (
    "guard={enabled: true, entropy_floor: 2, window: 1, grace: 1, score_drop: 9}",
    "sampling.mask_actions=false",  # two legal actions have less entropy than the floor
    *("evaluate.every=3", "learn.schedule=constant", "checkpoint.every=3", "iterations=8"),
)


def leap_once() -> None:
    """One step at a thousand times the learning rate, in the fourth iteration."""
    from sparring.learn.learner import Learner

    usual = Learner.lr
    Learner.lr = lambda self, i, n: usual(self, i, n) * (1000 if i == 3 else 1)  # type: ignore


def leap_always() -> None:
    from sparring.learn.learner import Learner

    usual = Learner.lr
    Learner.lr = lambda self, i, n: usual(self, i, n) * (1000 if i >= 3 else 1)  # type: ignore


def test_a_collapse_is_rolled_back_and_the_run_goes_on_more_carefully(tmp_path: Path) -> None:
    run = tmp_path / "run"
    life = train("kuhn", run, *GUARDED, first=leap_once)
    assert life.code == 0, life.err
    lines = list(read_lines(run / "metrics.jsonl"))
    assert [line["iteration"] for line in lines] == list(range(1, 9))
    assert lines[4]["learn/entropy"] < 2 < lines[3]["learn/entropy"]  # it did collapse
    assert [line.get("guard/rollbacks") for line in lines] == [*[None] * 4, 1, *[None] * 3]
    (rollback,) = events(run, "rollback")
    assert rollback["iteration"] == 5
    assert "back to step_000003" in rollback["detail"] and "entropy" in rollback["detail"]
    assert lines[5]["learn/lr"] == lines[2]["learn/lr"] / 2
    assert all(line["learn/entropy"] > 2 for line in lines[5:])  # well again


def test_a_collapse_that_rolls_back_resumes_like_any_other_run(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert train("kuhn", unbroken, *GUARDED, first=leap_once).code == 0
    # In the iteration that rolls back; after it and before a checkpoint; after the next one.
    for moment in ("000005.jsonl.gz", "000006.jsonl.gz", "000007.jsonl.gz"):
        train("kuhn", broken, *GUARDED, resume=True, first=leap_once, die_at=Moment(moment))
    assert train("kuhn", broken, *GUARDED, resume=True, first=leap_once).code == 0
    assert whole(broken) == whole(unbroken)
    assert events(broken, "rollback") == events(unbroken, "rollback") != []


def test_the_guard_stops_the_run_when_that_is_what_was_asked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    life = train("kuhn", run, *GUARDED, "guard.action=stop", first=leap_once)
    assert life.code == 1
    assert "collapsed at iteration 5: entropy fell to" in life.err
    assert "best checkpoint is step_00000" in life.err and "Traceback" not in life.err
    assert [e["iteration"] for e in events(run, "stopped")] == [5]
    assert not events(run, "rollback")


def test_the_guard_stops_a_run_that_collapses_time_and_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    life = train("kuhn", run, *GUARDED, "guard.most=1", "guard.window=1", first=leap_always)
    assert life.code == 1 and "collapsed at iteration" in life.err
    assert len(events(run, "rollback")) == len(events(run, "stopped")) == 1


def keep_own_copy(scale: float = 1.0) -> None:
    """An engine that was given the weights once and is never told of new ones."""
    import sparring.training.loop

    usual = sparring.training.loop.build

    def build(*words: Any) -> Any:
        parts = usual(*words)
        parts.engine.policies = copy.deepcopy(parts.engine.policies)
        for p in parts.engine.policies.parameters("main").values():
            p.data *= scale
        return parts

    sparring.training.loop.build = build


def speak_with_others() -> None:
    """An engine with other weights of the same version."""
    keep_own_copy(scale=2.0)


def test_a_run_stops_whose_engine_has_other_weights(tmp_path: Path) -> None:
    run = tmp_path / "run"
    life = train("kuhn", run, "learn.lr=3e-2", first=keep_own_copy)
    assert life.code == 1
    assert "the engine does not have today's weights" in life.err
    assert "--resume" in life.err and "Traceback" not in life.err
    gaps = [line["learn/canary"] for line in facts(run)]
    assert len(gaps) == 1 and gaps[0] < 1e-3  # the first games had the very weights that learned


def test_published_weights_keep_the_canary_quiet(tmp_path: Path) -> None:
    assert train("kuhn", tmp_path / "run", "learn.lr=3e-2").code == 0
    assert max(line["learn/canary"] for line in facts(tmp_path / "run")) < 1e-3


def test_a_learner_that_begins_anew_is_no_engine_with_other_weights(tmp_path: Path) -> None:
    """The canary is of the weights that spoke, which the learner leaves before its first step."""
    keys = ("learn.restart=true", "learn.lr=1e-2", "learn.schedule=constant", "learn.epochs=3")
    life = train("kuhn", tmp_path / "run", *keys, "sampling.mask_actions=false")
    assert life.code == 0, life.err
    lines = facts(tmp_path / "run")
    assert all(line["learn/canary"] < 1e-4 for line in lines)
    assert lines[0]["learn/drift"] < 1e-4 and lines[-1]["learn/drift"] > 0.1
    life = train("kuhn", tmp_path / "other", *keys, first=speak_with_others)
    assert life.code == 1 and "the engine speaks with other weights" in life.err


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    every = ("checkpoint.every=1", "checkpoint.keep=9")
    assert train("kuhn", unbroken, *every).code == 0
    train("kuhn", broken, *every, die_at=Moment("000005.jsonl.gz"))
    weights = broken / "checkpoints" / "step_000004" / "main.policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"mischief")
    with (broken / "metrics.jsonl").open("a") as log:
        log.write('{"iteration": 5, "episo')  # and a line torn in two
    life = train("kuhn", broken, *every, resume=True)
    assert life.code == 0, life.err
    said = "step_000004 is damaged: main.policy.safetensors is not what was written"
    assert said in life.err and "going on from step_000003" in life.err
    (event,) = events(broken, "damaged_checkpoint")
    assert said in event["detail"]
    assert [e["iteration"] for e in events(broken, "resumed")] == [3]
    assert whole(broken) == whole(unbroken)
    assert (broken / "checkpoints" / "damaged_step_000004").is_dir()


def test_what_was_the_best_before_a_damaged_checkpoint_is_still_there(tmp_path: Path) -> None:
    """The newest was the best, and is damaged: what was the best before it can be gone back to."""
    run = tmp_path / "run"
    keys = ("checkpoint.every=1", "checkpoint.keep=2", "evaluate.every=3", "seed=3")
    assert train("kuhn", run, *keys).code == 0
    scores = [line["eval/score"] for line in facts(run) if "eval/score" in line]
    assert scores[0] < scores[1]  # so that 6 is the best
    assert checkpoint.steps(run / "checkpoints") == [0, 3, 5, 6]
    (run / "checkpoints" / "step_000006" / "state.json").write_text("torn")
    train("kuhn", run, *keys, resume=True, die_at=Moment(".step_000006.unfinished"))
    assert [e["iteration"] for e in events(run, "resumed")] == [5]
    best = run / "checkpoints" / "best"
    assert best.resolve().name == "step_000003" and checkpoint.damage(best.resolve()) is None


def test_with_no_whole_checkpoint_left_nothing_is_touched(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train("kuhn", run, die_at=Moment("000004.jsonl.gz"))
    for state in run.glob("checkpoints/step_*/state.json"):
        state.write_text("{}")
    before = (run / "metrics.jsonl").read_bytes()
    life = train("kuhn", run, resume=True)
    assert life.code == 1 and "no usable checkpoint is left" in life.err
    assert (run / "metrics.jsonl").read_bytes() == before != b""


def small_files() -> None:
    """No file may grow past 6 MB: the first checkpoint fits, the optimizer of the next does not."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000_000, 6_000_000))


def stopped_cleanly(life: Life, run: Path, step: int) -> None:
    assert life.code == 1, life.err
    assert "could not be written" in life.err and "Traceback" not in life.err
    assert f"The last good one is step_{step:06d}" in life.err and "--resume" in life.err
    assert checkpoint.steps(run / "checkpoints")[-1] == step
    assert checkpoint.damage(run / "checkpoints" / checkpoint.step_name(step)) is None
    assert not list((run / "checkpoints").glob(".*"))


def test_a_checkpoint_that_cannot_be_written_stops_the_run(tmp_path: Path) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    assert train("kuhn", unbroken).code == 0
    life = train("kuhn", run, first=small_files)
    assert "File too large" in life.err
    stopped_cleanly(life, run, 0)
    assert train("kuhn", run, resume=True).code == 0
    assert whole(run) == whole(unbroken)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(disk)]
    if os.name != "posix" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a disk of 30 MB can be mounted only by root on Linux")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full_stops_the_run(tiny_disk: Path, tmp_path: Path) -> None:
    unbroken, run = tmp_path / "unbroken", tiny_disk / "run"
    board = "tracking.tensorboard=true"
    assert train("kuhn", unbroken, board).code == 0
    life = train("kuhn", run, board)
    assert "No space left on device" in life.err
    stopped_cleanly(life, run, 2)
    room = ["mount", "-o", "remount,size=200m", str(tiny_disk)]
    subprocess.run(room, check=True)
    assert train("kuhn", run, board, resume=True).code == 0
    assert whole(run) == whole(unbroken)


def lose_checkpoints() -> None:
    """The folder vanishes during the fourth iteration."""
    from sparring.learn.learner import Learner

    usual = Learner.fit

    def fit(self: Any, samples: Any, iteration: int, *words: Any) -> dict[str, float]:
        if iteration == 3:
            Path("run/checkpoints").rename("elsewhere")
        return usual(self, samples, iteration, *words)

    Learner.fit = fit  # type: ignore[method-assign]


def test_a_lost_checkpoint_folder_stops_the_run_until_it_is_back(tmp_path: Path) -> None:
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    assert train("kuhn", unbroken).code == 0
    life = train("kuhn", run, first=lose_checkpoints)
    assert life.code == 1 and "Traceback" not in life.err
    assert "checkpoint of iteration 4 could not be written" in life.err
    assert checkpoint.damage(tmp_path / "elsewhere" / "step_000002") is None
    again = train("kuhn", run, resume=True)
    assert again.code == 1 and "checkpoints is gone" in again.err
    assert len(facts(run)) == 4  # nothing was begun anew over it
    shutil.move(tmp_path / "elsewhere", run / "checkpoints")
    assert train("kuhn", run, resume=True).code == 0
    assert whole(run) == whole(unbroken)


def test_nothing_in_a_run_is_pickled(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train("kuhn", run, "evaluate.final=4", "evaluate.ladder=2", "tracking.tensorboard=true")
    files = [p for p in run.rglob("*") if p.is_file() and not p.is_symlink()]
    assert {p.suffix for p in files if "checkpoints" in p.parts} == {".safetensors", ".json"}
    for path in files:
        data = path.read_bytes()
        assert not data.startswith((b"\x80", b"PK")), path  # pickle, or torch's zip of one
        if path.suffix == ".safetensors":
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            assert isinstance(header, dict)


def test_a_step_without_a_finite_gradient_is_counted_and_not_taken(
    make_policies: Any, make_samples: Any
) -> None:
    import torch

    from sparring.learn.learner import Learner
    from sparring.run.config import LearnConfig

    learner = Learner(make_policies("full"), ["main"], LearnConfig(weights="full", minibatches=2))
    samples = make_samples(6)
    samples[0].advantages = [float("inf")] * len(samples[0].ids)
    stats = learner.fit(samples, 0)
    assert (stats["learn/steps"], stats["learn/skipped"]) == (1.0, 1.0)
    assert all(torch.isfinite(torch.tensor(value)) for value in stats.values())
    weights = learner.policies.state("main").values()
    assert all(bool(torch.isfinite(w).all()) for w in weights)


def test_seats_with_policies_of_their_own_play_to_the_end_unranked(tmp_path: Path) -> None:
    own = (
        "players={first: a, second: b}",
        "learn.policies=[a, b]",
        "evaluate.final=4",
        "evaluate.ladder=2",
    )
    life = train("kuhn", tmp_path / "two", *own, "iterations=3")
    assert life.code == 0, life.err
    assert (tmp_path / "two" / "report.html").exists()
    for metrics in facts(tmp_path / "two"):
        assert "learn/a/steps" in metrics  # b has not had a turn yet: a does not know the rules
        assert not any(key.startswith("eval/") for key in metrics)


def test_nano_that_is_asked_for_english_gets_a_hint() -> None:
    nano, other = (make_config({"policy": name, "games": {"kuhn": {}}}) for name in ("nano", "x"))
    hint = nano_hint(nano, 256.0)
    assert hint is not None and "replies of 256 tokens" in hint and "policy=smollm2" in hint
    assert nano_hint(nano, 8.0) is None and nano_hint(other, 256.0) is None
