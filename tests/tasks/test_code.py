"""The program in a reply, and problems of every form; our own are right."""

from __future__ import annotations

import ast
import asyncio
import warnings

import pytest

from sparring.core.errors import ConfigError
from sparring.core.source import parsed
from sparring.core.types import Task
from sparring.judge.python.judge import Judge
from sparring.judge.python.plan import compiled
from sparring.judge.python.programs import forbidden
from sparring.judge.sandbox import probe
from sparring.pipelines.equivalence.judge.crosshair import bare
from sparring.pipelines.equivalence.judge.instrument import instrumented
from sparring.pipelines.equivalence.judge.purity import parse
from sparring.pipelines.equivalence.judge.signature import BadInput, read_input, signature_of
from sparring.tasks import load_tasks
from sparring.tasks.code import extract_code, formatted, is_empty, problem_of


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print(1)", "print(1)"),
        ("Here:\n```python\nprint(1)\n```\nDone.", "print(1)\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```\n```python\ny = 2\n```", "x = 1\n"),
        ("```bash\nls\n```\n```Python\ny = 2\n```", "y = 2\n"),
        ("```python\nx = 1\nprint(x)", "x = 1\nprint(x)"),
        ("  ```python\n  x = 1\n  ```", "  x = 1\n"),
        ("print(2)\n```\nThis prints 2.", "print(2)\n"),
        ("```\nprint(3)", "print(3)"),
        ("say ```inline``` only", "say ```inline``` only"),
        ("", ""),
    ],
)
def test_extract_code(text: str, code: str) -> None:
    assert extract_code(text) == code


def test_what_counts_as_no_program() -> None:
    assert is_empty("") and is_empty("\n  \n") and is_empty("# a comment\n   # another")
    assert not is_empty("pass") and not is_empty('"""doc"""') and not is_empty("# c\nx")


def test_problems_of_all_three_forms() -> None:
    ours = problem_of(Task("a", data={"prompt": "P.", "tests": ["assert f(1) == 1"], "code": "c"}))
    assert (ours.prompt, ours.tests, ours.code) == ("P.", ("assert f(1) == 1",), "c")
    row = {"text": " T. ", "test_list": ["t1", "t2"], "test_setup_code": "s", "code": "a\r\nb"}
    theirs = problem_of(Task("601", data=row))
    assert (theirs.prompt, theirs.tests, theirs.setup, theirs.code) == (
        *("T.", ("t1", "t2"), "s", "a\nb"),
    )
    row = {"prompt": "def f():\n", "canonical_solution": "    return 1\n", "test": "def check…"}
    human = problem_of(Task("HumanEval/0", data={**row, "entry_point": "f"}))
    assert human.code == "def f():\n    return 1\n"
    assert (human.entry, human.tests) == ("f", ("def check…",))
    with pytest.raises(ConfigError, match="task 7 has no prompt"):
        problem_of(Task("7", data={"code": "x"}))


@pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
def test_our_own_problems_pass_their_own_tests_and_not_each_others() -> None:
    problems = [problem_of(task) for task in load_tasks("shipped:python", None)]
    assert len(problems) >= 40 and len({p.id for p in problems}) == len(problems)

    async def judge_all() -> list[tuple[bool, bool]]:
        async with Judge() as judge:
            right = [judge.tests(p.code, p.tests, setup=p.setup) for p in problems]
            wrong = [judge.tests("x = 0", p.tests) for p in problems]
            both = await asyncio.gather(*right, *wrong)
        half = len(problems)
        return [(a.passed, b.passed) for a, b in zip(both[:half], both[half:], strict=True)]

    assert set(asyncio.run(judge_all())) == {(True, False)}


def test_programs_are_formatted_alike_and_odd_escapes_are_nobodys_business() -> None:
    odd = "def f(x):\n\treturn x.split('\\.')  # tabs\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert formatted(odd) == "def f(x):\n    return x.split('\\\\.')"
    assert formatted("print 1\n") == "print 1"


def test_our_splits_share_no_problem() -> None:
    by_split = {split: load_tasks("shipped", split) for split in ("prompt", "train", "test")}
    prompts = [task.data["prompt"] for tasks in by_split.values() for task in tasks]
    assert len(set(prompts)) == len(prompts)
    assert {split: len(tasks) for split, tasks in by_split.items()} == {
        "prompt": 3,
        "train": 38,
        "test": 9,
    }


def test_what_a_model_wrote_oddly_warns_nobody() -> None:
    """Python warns where `1or 2` or `"\\d"` is compiled, on the terminal of whoever trains."""
    odd = 'def f(x: int) -> bool:\n    return x == 1or "\\d" == "d"'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SyntaxError):  # a warning that became an error
            compile(odd, "odd", "exec")
        tree = parsed(odd)
        assert tree is not None and isinstance(parse(odd), ast.Module)
        assert "__reached__" in instrumented(odd) and bare(odd)
        assert forbidden(odd) == "" and compiled((("tests", odd),))
        with pytest.raises(BadInput, match="1 or 2"):  # of the input, and no warning
            read_input("[1or 2]", signature_of(tree, "f"))
