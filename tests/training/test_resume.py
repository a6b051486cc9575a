"""A run may die at any moment: resumed, it comes to what it would have come to, digit for digit."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from lives import COMMAND, SMALL, Moment, events, facts, train, whole

KINDS = {
    "plain": ("kuhn", ()),
    "lora": ("kuhn", ("learn.weights=lora", "learn.lora_r=4", "learn.lr=1e-2")),
    "league": (
        "tictactoe",
        (
            "opponents={kind: league, start: true, every: 1, size: 2, share: 0.7, mixture: nash, "
            "matches: 2, players: [random]}",
            "collect.episodes=16",
        ),
    ),
    "memory": (
        "kuhn",
        (
            "credit={kind: prompt_baseline, trace: 0.9}",
            "learn.kl=0.2",
            "learn.reference=ema",
            "learn.minibatches=2",
            "learn.moments=bfloat16",
        ),
    ),
    "mixed": ("spiral", ("collect.episodes=12", "credit={kind: leave_one_out}", "collect.group=4")),
    "filtered": (
        "kuhn",
        (
            "credit={kind: group_relative, level: turn}",
            "collect={episodes: 16, group: 2, filter_groups: true, max_num_gen_batches: 3}",
            "sampling.mask_actions=true",
            "learn.importance_sampling_mode=token_mask",
            "learn.reference=average",
            "learn.minibatches=2",
        ),
    ),
}
# Each moment ends one life; the next one resumes.
MOMENTS = {
    "plain": (
        Moment("config.yaml", 2),  # before the run's config is whole
        Moment("checkpoints", 1),  # before there is a folder for them
        Moment(".step_000000.unfinished/state.json"),  # in the first checkpoint
        Moment("metrics.jsonl"),
        Moment("000001.jsonl.gz", 2),  # the games are on record, their metrics are not
        Moment(".step_000002.unfinished/manifest.json"),
        Moment("000004.jsonl.gz"),  # between two checkpoints
        Moment(".best.unfinished", 2),
        Moment(".step_000002.gone"),  # while it is pruned
        Moment("000006.jsonl.gz", 3),
        Moment("report.html"),  # when all is done but the telling
    ),
    "lora": (Moment("000003.jsonl.gz"), Moment(".step_000004.unfinished", 4)),
    "league": (Moment("000001.jsonl.gz"), Moment("000003.jsonl.gz"), Moment("000006.jsonl.gz")),
    "memory": (Moment("000004.jsonl.gz"), Moment(".step_000006.unfinished", 6)),
    "mixed": (Moment("000003.jsonl.gz"),),
    "filtered": (Moment("000004.jsonl.gz"),),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_that_died_often_equals_one_that_never_did(tmp_path: Path, kind: str) -> None:
    recipe, overrides = KINDS[kind]
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    life = train(recipe, unbroken, *overrides)
    assert life.code == 0, life.err
    for moment in MOMENTS[kind]:
        life = train(recipe, broken, *overrides, resume=True, die_at=moment)
        assert life.code == -signal.SIGKILL, f"{moment} did not come: {life.out}{life.err}"
    life = train(recipe, broken, *overrides, resume=True)
    assert life.code == 0, life.err
    assert whole(broken) == whole(unbroken)
    lines = facts(unbroken)
    assert [line["iteration"] for line in lines] == list(range(1, 7))
    assert len({line["learn/loss"] for line in lines}) == 6  # it did learn
    assert events(broken, "resumed") and not events(unbroken, "resumed")
    assert not list((broken / "checkpoints").glob(".*"))  # nothing half-done is left lying


@pytest.mark.skipif(
    os.environ.get("SPARRING_FULL") != "1",
    reason="SPARRING_FULL=1 kills a command of its own; run/test_killed_under_load.py kills forks",
)
def test_the_command_itself_killed_from_outside(tmp_path: Path) -> None:
    """No forks, no hooks: a process, a signal, and then another process."""
    keys = ("iterations=24", "checkpoint.every=2", "evaluate.every=12")  # time to be killed in
    command = [COMMAND, "train", "kuhn", "--smoke", *SMALL, *keys]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    killed, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    process = subprocess.Popen([*command, "--run", str(killed)], **quiet)
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if killed.exists() and len(facts(killed)) >= 3:
            break
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 3 <= len(facts(killed)) < 24
    assert train("kuhn", killed, *keys, resume=True).code == 0
    assert train("kuhn", unbroken, *keys).code == 0
    assert whole(killed) == whole(unbroken)
    assert next(e["iteration"] for e in events(killed, "resumed")) >= 2


def test_a_run_that_is_extended_equals_one_that_was_as_long_from_the_start(tmp_path: Path) -> None:
    keys = ("learn.schedule=constant", "learn.entropy_end=null", "evaluate.games=0")
    assert train("kuhn", tmp_path / "run", *keys, "iterations=2").code == 0
    more = ("iterations=4", "checkpoint.keep=9", "evaluate.every=7")
    life = train("kuhn", tmp_path / "run", *keys, *more, resume=True)
    assert life.code == 0, life.err
    assert train("kuhn", tmp_path / "alone", *keys, *more).code == 0
    for mine, theirs in zip(facts(tmp_path / "run"), facts(tmp_path / "alone"), strict=True):
        assert {k: v for k, v in mine.items() if not k.startswith("eval/")} == {
            k: v for k, v in theirs.items() if not k.startswith("eval/")
        }
    assert "iterations" in events(tmp_path / "run", "config")[0]["detail"]
