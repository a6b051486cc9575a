"""Asked to leave, every command that works for long ends what is under way or gives it up, keeps
what is done, and leaves with 75; the same command then comes to what it would have come to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lives import Life, Moment, facts, sparring, train, whole
from terminal import on_terminal

from sparring.run import interrupt
from sparring.run.config import make_config
from sparring.run.rundir import RunDir, read_lines
from sparring.training.loop import _given_up_at_checkpoint


def test_what_does_not_end_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "GRACE_S", 0.2)
    monkeypatch.setattr(interrupt, "BATCH_GRACE_S", 0.2)
    ended = []

    async def judge() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)
        finally:
            ended.append("judge")

    began = time.monotonic()
    at_the_end = pytest.raises(interrupt.Interrupted, match="left before what remains")
    with at_the_end, interrupt.listening(), interrupt.deferred("game"):
        with pytest.raises(interrupt.GivenUp, match="SIGTERM came"):
            asyncio.run(interrupt.in_time(judge()))
        with pytest.raises(interrupt.GivenUp), interrupt.limited():
            interrupt.check()  # as an engine does between two tokens
        interrupt.check()  # where nothing may be given up, nothing is
        with pytest.raises(interrupt.Interrupted, match="after iteration 3 of 9, with a check"):
            interrupt.leave(3, 9)
        interrupt.leave(9, 9)
    assert ended == ["judge"] and time.monotonic() - began < 20


def test_a_warning_long_ahead_gives_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "GRACE_S", 0.0)
    monkeypatch.setattr(interrupt, "BATCH_GRACE_S", 0.0)

    async def work(seconds: float) -> str:
        if not interrupt.asked():
            os.kill(os.getpid(), signal.SIGUSR1)
        asyncio.get_running_loop().call_later(1, os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.sleep(seconds)
        return "done"

    with pytest.raises(interrupt.Interrupted), interrupt.listening(), interrupt.deferred("game"):
        assert asyncio.run(interrupt.in_time(work(0.3))) == "done"
        with pytest.raises(interrupt.GivenUp):  # the limit itself came
            asyncio.run(interrupt.in_time(work(60)))


def test_an_import_that_swallows_the_signal_and_fails_is_left_too() -> None:
    left_at_once = pytest.raises(interrupt.Interrupted, match="SIGINT came: left at once")
    with left_at_once, interrupt.listening():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise ImportError("cannot load module more than once per process")


def test_where_nothing_is_under_way_it_leaves_at_once() -> None:
    # A shell's background job, which these tests may be, ignores the signal from the start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(interrupt.Interrupted, match="left at once"), interrupt.listening():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


BUSY = """
import time
from sparring.run import interrupt
with interrupt.listening(), interrupt.deferred("sleep"):
    print("at work", flush=True)
    for _ in range(1200):  # a signal right before one long sleep would be seen after it
        time.sleep(0.05)
"""


def test_a_second_control_c_leaves_at_once(tmp_path: Path) -> None:
    with on_terminal([sys.executable, "-c", BUSY], tmp_path) as terminal:
        terminal.wait_for("at work")
        terminal.press_control_c()
        terminal.wait_for("SIGINT: leaving after this sleep; a second one leaves at once")
        assert terminal.process.poll() is None
        terminal.press_control_c()
        assert terminal.exit_code(20) == -signal.SIGINT
        assert "leaving at once: what was under way is lost" in terminal.text


def test_what_launchers_pass_on_is_no_second_signal() -> None:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", BUSY], **pipes)
    assert process.stdout is not None and process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None and process.stderr.readline() == "\n"
    assert "SIGTERM: leaving after this sleep" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    time.sleep(interrupt._SAME_S + 0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGTERM


def at_batch(count: int, number: int, hang: bool = False) -> None:
    """A signal when so many batches of games or questions have been begun; that one may hang."""
    from sparring.evaluation import benchmark
    from sparring.pipelines.coherent_math import gsm8k

    interrupt.GRACE_S = interrupt.BATCH_GRACE_S = 0.3 if hang else 60.0
    benchmark.batch_size = gsm8k.batch_size = lambda engine: 4
    usual, begun = interrupt.in_time, 0

    async def signalled(work: Any, *seconds: float) -> Any:
        nonlocal begun
        begun += 1

        async def slow() -> Any:
            if begun == count:
                os.kill(os.getpid(), number)
                if hang:
                    await asyncio.sleep(120)
            return await work

        return await usual(slow(), *seconds)

    interrupt.in_time = signalled


def at_epoch(number: int) -> None:
    """A signal in the second epoch."""
    from sparring.learn.learner import Learner

    usual = Learner.fit

    def fit(self: Any, lessons: Any, iteration: int, *words: Any) -> Any:
        if iteration == 1:
            os.kill(os.getpid(), number)
        return usual(self, lessons, iteration, *words)

    Learner.fit = fit  # type: ignore[method-assign]


def cache_in(folder: Path) -> None:
    os.environ["SPARRING_CACHE"] = str(folder)


def both(first: Any, second: Any) -> None:
    first()
    second()


def left(life: Life, said: str) -> None:
    assert life.code == interrupt.AGAIN, life.err
    assert said in life.err and "--resume" in life.err and "Traceback" not in life.err, life.err
    assert "never retrieved" not in life.err


@pytest.mark.parametrize("hang", [False, True], ids=["ended", "given up"])
def test_a_run_keeps_all_but_the_iteration_it_was_asked_in(tmp_path: Path, hang: bool) -> None:
    keys = ("iterations=4", "checkpoint.every=9", "evaluate.every=9", "evaluate.games=0")
    life = train("kuhn", tmp_path / "run", *keys, first=partial(at_batch, 3, signal.SIGINT, hang))
    done = 2 if hang else 3
    left(life, f"SIGINT came: left after iteration {done} of 4, with a checkpoint")
    assert [line["iteration"] for line in facts(tmp_path / "run")] == [1, 2, 3][:done]
    assert (tmp_path / "run" / "checkpoints" / f"step_{done:06d}").is_dir()
    assert train("kuhn", tmp_path / "run", *keys, resume=True).code == 0
    assert train("kuhn", tmp_path / "alone", *keys).code == 0
    found, expected = whole(tmp_path / "run"), whole(tmp_path / "alone")
    found["checkpoints"].pop(f"step_{done:06d}")
    assert found == expected


def test_learning_that_does_not_end_in_time_is_given_up_for_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights have moved: what a resumed run repeats begins at a checkpoint on disk."""
    monkeypatch.setattr(interrupt, "GRACE_S", 0.2)
    monkeypatch.setattr(interrupt, "BATCH_GRACE_S", 0.2)
    (tmp_path / "checkpoints" / "step_000002").mkdir(parents=True)
    config = make_config({"games": {"kuhn": {}}, "iterations": 9})
    with (
        pytest.raises(interrupt.Interrupted, match="SIGTERM came: left after iteration 2 of 9"),
        interrupt.listening(),
        interrupt.deferred("iteration"),
        _given_up_at_checkpoint(RunDir(tmp_path), config),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        while True:  # as the learner does between two batches
            interrupt.check()
            time.sleep(0.01)


DATA = "\n".join(
    f'{{"system_prompt": "", "user_prompt": "after {i}?", "output": "{i + 1}"}}' for i in range(6)
)
QUESTIONS = "\n".join(
    f'{{"question": "What is {i} and {i}?", "answer": "Add. #### {2 * i}"}}' for i in range(10)
)
COMMANDS: dict[str, tuple[tuple[Any, ...], str, Any]] = {
    "selfplay": (
        ("selfplay", "matching", "size=2", "max_length=4", "--policy", "nano", "--games", 12,
         "--batch", 4, "--temperature", 1, "--max-tokens", 2),
        "left after game 8 of 12",
        partial(at_batch, 2, signal.SIGTERM),
    ),
    "eval": (
        ("eval", "gsm8k", "--policy", "nano", "--data", "questions.jsonl", "--max-tokens", 4),
        "left after question 4 of 10",
        partial(at_batch, 2, signal.SIGTERM, True),
    ),
    "finetune": (
        ("finetune", "--model", "nano", "--data", "data.jsonl", "--epochs", 3),
        "left after epoch 2 of 3",
        partial(at_epoch, signal.SIGTERM),
    ),
}  # fmt: skip


def test_an_evaluation_that_is_only_printed_goes_on_too(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text(QUESTIONS + "\n")
    words, said, how = COMMANDS["eval"]
    cache = partial(cache_in, tmp_path / "cache")
    left(sparring(*words, cwd=tmp_path, first=partial(both, cache, how)), said)
    assert list((tmp_path / "cache").rglob("*.unfinished"))
    asked_twice = partial(at_batch, 3, signal.SIGTERM, True)  # two batches of four and two are left
    life = sparring(*words, cwd=tmp_path, first=partial(both, cache, asked_twice))
    assert life.code == 0 and "of 10 right" in life.out, life.err
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").rglob("*.*"))
    again = partial(at_batch, 99, signal.SIGTERM)
    whole = sparring(*words, cwd=tmp_path, first=partial(both, cache, again))
    assert whole.out.splitlines()[-3:-1] == life.out.splitlines()[-3:-1]  # less the seconds


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_that_works_for_long_leaves_and_goes_on(tmp_path: Path, command: str) -> None:
    (tmp_path / "data.jsonl").write_text(DATA + "\n")
    (tmp_path / "questions.jsonl").write_text(QUESTIONS + "\n")
    words, said, how = COMMANDS[command]
    place, resume = ("--details", []) if command == "eval" else ("--out", ["--resume"])
    left(sparring(*words, place, "broken", cwd=tmp_path, first=how), said)
    again = partial(at_batch, 99, signal.SIGTERM)
    life = sparring(*words, place, "broken", *resume, cwd=tmp_path, first=again)
    assert life.code == 0, life.err
    assert sparring(*words, place, "whole", cwd=tmp_path, first=again).code == 0
    names = {p.name for p in tmp_path.iterdir()} - {"data.jsonl", "questions.jsonl"}
    assert names == {"broken", "whole"}  # nothing unfinished is left beside them
    if command == "finetune":
        assert facts(tmp_path / "broken") == facts(tmp_path / "whole")
    elif command == "selfplay":
        games = [list(read_lines(tmp_path / n / "selfplay_games.jsonl")) for n in names]
        assert games[0] == games[1] and len(games[0]) == 12
    else:
        assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()


def test_the_phases_leave_and_go_on(tmp_path: Path) -> None:
    words = ("train", "coherent-math", "--smoke", "--run", "run")
    life = sparring(*words, cwd=tmp_path, first=partial(at_epoch, signal.SIGUSR1))
    left(life, "SIGUSR1 came: left after epoch 2 of ")
    assert not (tmp_path / "run" / "sft").exists()
    log = tmp_path / "run" / "console.log"
    before = len(log.read_text())
    after = Moment("rollouts.jsonl")  # what comes after it is of no interest here
    life = sparring(*words, "--resume", cwd=tmp_path, die_at=after)
    assert life.code == -signal.SIGKILL and (tmp_path / "run" / "sft").exists(), life.err
    said = log.read_text()[before:]
    assert "eval_base (as it was)" in said and "sft: epoch 3, " in said
    assert "sft: epoch 2, " not in said
