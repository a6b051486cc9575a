"""sparring solve: what is asked, what is shown and written, and how an attempt is chosen."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lives import sparring

from sparring.core.errors import ConfigError
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Request, Sampling
from sparring.judge.python.programs import make_judge
from sparring.judge.sandbox import probe
from sparring.pipelines.adversarial import cli
from sparring.pipelines.adversarial.game import AdversarialTests
from sparring.pipelines.adversarial.solve import (
    Attempt,
    Solver,
    calls_of,
    one_problem,
    policy_of,
    solve_all,
    split_tests,
)
from sparring.run.config import load_recipe
from sparring.training.loop import train

jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
SIGNATURE = "def double(n: int) -> int:"


class Scripted(ScriptedEngine):
    def listen(self, request: Request, hear: Any) -> None:
        hear(f"<{request.seed % 1}>")


def solved(
    programs: list[str], tests: str, *, written: str | None = None, **options: Any
) -> tuple[list[Attempt], list[tuple[str, str]]]:
    """What a solver makes of attempts that end in these programs."""
    codes, heard = iter(programs), []

    def generator(request: Request) -> str:
        return next(codes) if request.view and request.view.state == "code" else "words"

    engine: Any = Scripted({"g": generator, "d": lambda request: written or ""})
    game = AdversarialTests(**options)
    solver = Solver(game, engine, "g", Sampling(), "d" if written else None)
    problem = one_problem("Double a number.", SIGNATURE, tests)

    async def go() -> list[Attempt]:
        async with make_judge("bubblewrap", 3) as judge:
            return await solver.solve(
                problem, len(programs), judge, lambda stage, piece: heard.append((stage, piece))
            )

    return asyncio.run(go()), heard


RIGHT = "```python\ndef double(n):\n    return 2 * n\n```"
ALSO = "```python\ndef double(n):\n    return n + n\n```"
SQUARE = "```python\ndef double(n):\n    return n * n\n```"


@jailed
def test_the_best_attempt_is_the_one_that_passes_most_of_its_tests() -> None:
    made, heard = solved(
        [SQUARE, "nonsense", RIGHT], "assert double(2) == 4; assert double(3) == 6"
    )
    assert [a.number for a in made] == [2, 0, 1]
    assert [a.passed for a in made] == [2, 1, 0]
    assert [stage for stage, _ in heard] == list(made[0].stages)  # the first attempt, as it spoke


@jailed
def test_among_equals_the_one_that_others_agree_with_is_the_best() -> None:
    """double(2) tells no two of these apart; what they return for the discriminator's 5 does."""
    made, _ = solved(
        [SQUARE, RIGHT, ALSO], "assert double(2) == 4", written="assert double(5) == 1"
    )
    assert [a.passed for a in made] == [1, 1, 1]
    assert made[0].number == 1 and made[-1].number == 0
    assert made[0].agrees == 3 and made[-1].agrees == 2


@jailed
def test_a_discriminator_that_learned_to_name_inputs_alone_is_heard_as_well() -> None:
    for written, options in (
        ("```python\ndouble(5)\ndouble(open('x'))\n```", {"inputs_only": True}),
        ("5\nopen('x')", {"style": "terse"}),
    ):
        programs = [SQUARE, RIGHT, ALSO]
        if "style" in options:
            programs = ["n * n", "2 * n", "n + n"]
        made, _ = solved(programs, "assert double(2) == 4", written=written, **options)
        assert made[0].number == 1 and [a.agrees for a in made] == [3, 3, 2], written


def test_tests_are_parted_where_python_parts_them() -> None:
    assert split_tests("assert f(';') == 1;assert f(2)==3") == (
        "assert f(';') == 1",
        "assert f(2) == 3",
    )
    for wrong, message in (("assert f(", "do not parse"), ("f(1)", "no assert")):
        with pytest.raises(ConfigError, match=message):
            split_tests(wrong)
    with pytest.raises(ConfigError, match="no `def name"):
        one_problem("Double.", "double(n)", None)
    with pytest.raises(ConfigError, match="empty"):
        one_problem("  ", None, None)
    unsigned = one_problem("Double.", None, "assert double(2) == double(1) + 2")
    assert calls_of(unsigned) == ["double(2)", "double(1)"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("solve") / "run"
    small = ["tracking.tensorboard=false", "games.adversarial_tests.stages=[informal, code]"]
    train(load_recipe("adversarial", [*small, "collect.episodes=4"], smoke=True), path)
    return path


@jailed
def test_a_run_and_each_of_its_checkpoints_can_be_named(run: Path) -> None:
    last = policy_of(str(run / "checkpoints" / "checkpoint_stage_2_epoch_3"))
    assert last == f"{run}@6:generator"
    assert policy_of(str(run)).startswith(f"{run}@") and policy_of("smollm2") == "smollm2"
    with pytest.raises(ConfigError, match=r"no such checkpoint.*Usable: checkpoint_best"):
        policy_of(str(run / "checkpoints" / "checkpoint_stage_9_epoch_1"))
    with pytest.raises(ConfigError, match="no run is there"):
        policy_of("/nowhere/checkpoints/checkpoint_best")


@jailed
def test_one_problem_from_the_command_line(run: Path, tmp_path: Path) -> None:
    life = sparring(
        *("solve", "--checkpoint", run, "--problem", "Return the number.", "--seed", 3),
        *("--signature", "def same(n):", "--tests", "assert same(1) == 1; assert same(2) == 2"),
        *("--execute-tests", "--max-tokens", 2, "--temperature", 0.5, "--top-p", 0.8),
        *("--attempts", 2, "--output", "out.json"),
        cwd=tmp_path,
    )
    assert life.code == 0, life.err
    for words in ("── informal ──", "── code ──", "── program ──", "of 2 tests passed"):
        assert words in life.out
    told = json.loads((tmp_path / "out.json").read_text())
    [result] = told["results"]
    assert told["checkpoint"] == str(run) and len(result["attempts"]) == 2
    assert list(result["stages"]) == ["informal", "code"] and result["passed"] is False
    assert [t["test"] for t in result["tests"]] == ["assert same(1) == 1", "assert same(2) == 2"]


@jailed
def test_a_batch_and_a_file(run: Path, tmp_path: Path) -> None:
    rows = [
        {
            "id": name,
            "description": "Return it.",
            "function_signature": f"def {name}(n):",
            "baseline_tests": [f"assert {name}(1) == 1"],
            "reference_solution": f"def {name}(n): return n",
        }
        for name in ("one", "two")
    ]
    (tmp_path / "problems.json").write_text(json.dumps({"problems": rows}))
    life = sparring(
        *("solve", "--checkpoint", run, "--batch", "--problems-file", "problems.json"),
        "--execute-tests",
        *("--max-tokens", 2, "--no-reasoning", "--output", "out.json"),
        cwd=tmp_path,
    )
    assert life.code == 0, life.err
    assert "══ one ══" in life.out and "══ two ══" in life.out and "informal" not in life.out
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [r["id"] for r in results] == ["one", "two"]
    (tmp_path / "problem.txt").write_text("Return nothing at all.")
    words = ("solve", "--checkpoint", run, "--problem-file", "problem.txt", "--max-tokens", 1)
    life = sparring(*words, cwd=tmp_path)
    assert life.code == 0 and "── program ──" in life.out, life.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one of --problem, --problem-file and --problems-file"),
        (("--problem", "x", "--problems-file", "y"), "give one of"),
        (("--problem", "x", "--batch"), "name their file with --problems-file"),
        (("--problem", "x", "--execute-tests"), "there are none"),
        (("--problem", "x", "--tests", "assert f("), "do not parse"),
        (("--problem", "x", "--signature", "f(x)"), "no `def name"),
        (("--problem", "x", "--output", "no/where.json"), "no folder no"),
        (("--problem", "x", "--top-p", "2"), "2 is not above 0 and at most 1"),
        (("--problem-file", "missing.txt"), "missing.txt cannot be read"),
        (("--problems-file", "missing.json"), "there is no file 'missing.json'"),
    ],
)
def test_wrong_words_are_named_before_a_model_is_loaded(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    life = sparring("solve", "--checkpoint", "nano", *words, cwd=tmp_path)
    assert life.code == 2 and message in life.err, life.err
    assert "Traceback" not in life.err and not list(tmp_path.iterdir())


def test_many_problems_are_lines_and_those_that_are_there_are_not_asked_again(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def generator(request: Request) -> str:
        name = request.messages[-1]["content"].partition("«")[2].partition("»")[0]
        if request.view and request.view.state == "code":
            asked.append(name)
            if name == "third" and len(asked) < 4:
                raise KeyboardInterrupt
        return RIGHT

    problems = [
        replace(one_problem(f"«{name}» Double.", SIGNATURE, None), id=name)
        for name in ("first", "second", "third")
    ]
    shown: list[str] = []
    lines = tmp_path / "lines"

    def go() -> list[list[Attempt]]:
        engine: Any = Scripted({"g": generator})
        solver = Solver(AdversarialTests(), engine, "g", Sampling())
        return asyncio.run(
            solve_all(
                solver, problems, attempts=1, sandbox=None, lines=lines, batch=1,
                on_problem=lambda problem, made: shown.append(problem.id),
            )
        )  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        go()
    assert [json.loads(line)["id"] for line in lines.read_text().splitlines()] == shown
    assert shown == ["first", "second"]
    found = go()
    assert asked == ["first", "second", "third", "third"]
    assert shown == ["first", "second", "first", "second", "third"]
    assert ["return 2 * n" in made[0].code for made in found] == [True] * 3


def test_finished_problems_of_a_file_that_has_changed_are_not_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids alone told whether the work was the same: what an older text came to was kept."""

    async def killed(*args: Any, lines: Path, **options: Any) -> None:
        lines.write_text('{"id": "double"}\n')
        raise KeyboardInterrupt

    def solve(description: str) -> None:
        row = {"id": "double", "description": description, "function_signature": SIGNATURE}
        row["reference_solution"] = "def double(n):\n    return 2 * n\n"
        own = {"problems": [{**row, "baseline_tests": ["assert double(2) == 4"]}]}
        file.write_text(json.dumps(own))
        cli.run(
            "nano", problem=None, problem_file=None, problems_file=file, signature=None, tests=None,
            execute_tests=False, sampling=Sampling(), attempts=1, output=tmp_path / "out.json",
            reasoning=False, device="cpu", sandbox="bubblewrap", seed=0,
        )  # fmt: skip

    file = tmp_path / "problems.json"
    monkeypatch.setattr(cli.solve, "load_solver", lambda *args, **options: None)
    monkeypatch.setattr(cli.solve, "solve_all", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            solve("Double a number.")
    with pytest.raises(ConfigError, match=r"other work \(asked differ\)"):
        solve("Double a number, and add one.")
