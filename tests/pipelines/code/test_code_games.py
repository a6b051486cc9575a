"""The code games: rewards exactly as promised, and no way round the rules for an author."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.game import Game, opened
from sparring.core.scripted import ScriptedEngine, programs
from sparring.core.types import Episode, Task, Verdict
from sparring.judge.python.judge import Execution, Judge
from sparring.judge.python.programs import forbidden
from sparring.judge.sandbox import probe
from sparring.pipelines.code.code_tests import beyond_constants
from sparring.pipelines.code.prediction import normal, predicted_text
from sparring.run.games import load_game
from sparring.tasks import load_tasks
from sparring.tasks.code import problem_of

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
TASK = Task("t", data={"prompt": "Write anything."})


def play_all(
    name: str,
    replies: list[dict[str, str]],
    before: Callable[[Game], Any] | None = None,
    task: Task = TASK,
    **options: Any,
) -> list[Episode]:
    """One game per reply; a reply says what each seat says."""
    game = load_game(name, **options)

    async def go() -> list[Episode]:
        async with opened([game]):
            if before:
                before(game)
            jobs, scripts = [], {}
            for i, reply in enumerate(replies):
                for seat, text in reply.items():
                    scripts[f"{seat}{i}"] = lambda request, text=text: text
                seating = {seat: f"{seat}{i}" for seat in game.seats}
                jobs.append(Job(str(i), name, game, task, i, seating))
            return await collect(jobs, ScriptedEngine(scripts).act)

    return asyncio.run(go())


EXECUTIONS = [
    ("print(1)", 1.0, "output"),
    ("Sure!\n```python\nprint('hi')\n```\nThis prints hi.", 1.0, "output"),
    ("import sys\nprint(1)\nsys.exit(0)", 1.0, "output"),
    ("x = 1", 0.5, "no output"),
    ("print('  ')", 0.5, "no output"),
    ("import sys\nsys.stderr.write('x')", 0.5, "no output"),
    ("print(", -0.5, "syntax"),
    ("def f():\nreturn 1", -0.5, "syntax"),
    ("if True:\n    x = 1\n  y = 2", -0.5, "syntax"),
    ("I cannot do that.", -0.5, "syntax"),
    ("", -0.5, "syntax"),
    ("# later", -0.5, "syntax"),
    ("1 / 0", -1.0, "exception"),
    ("print('done')\nraise ValueError", -1.0, "exception"),
    ("print(1)\nimport sys\nsys.exit(3)", -1.0, "exception"),
    ("raise SyntaxError('only pretending')", -1.0, "exception"),
    ("raise IndentationError('only pretending')", -1.0, "exception"),
    ("import os\nprint(1, flush=True)\nos._exit(7)", -1.0, "exception"),
    ("print(1)\nwhile True: pass", -1.0, "time-out"),
    ("x = 'x' * (1 << 33)", -1.0, "memory"),
    ("while True: print('x' * 1000000)", -1.0, "output limit"),
]


def test_code_execution_pays_by_how_a_program_ends() -> None:
    episodes = play_all(
        "code_execution", [{"author": text} for text, _, _ in EXECUTIONS], timeout_s=1
    )
    found = [(e.rewards["author"], e.facts["end"]) for e in episodes]
    assert found == [(reward, kind) for _, reward, kind in EXECUTIONS]
    assert all(e.void is None and len(e.verdicts) == 1 for e in episodes)
    assert [e.verdicts[0].kind for e in episodes] == [kind for _, _, kind in EXECUTIONS]


ADD = Task(
    "add",
    data={
        "prompt": "Add two numbers.",
        "code": "def add(a, b):\n    return a + b\n",
        "tests": ["assert add(1, 2) == 3", "assert add(2, 2) == 4", "assert add(0, 5) == 5"],
    },
)
TESTED = [
    ("def add(a, b): return a + b", 1.0, "passed"),
    ("```python\ndef add(a, b):\n    return 3\n```", 1 / 3, "wrong"),
    ("def add(a, b):\n    return a * b", 1 / 3, "wrong"),
    ("def add(a, b):\n    return 1 / (a - 1) + 4", 0, "exception"),
    ("def add(a, b):\n    while a < 2: pass\n    return 4", 1 / 3, "time-out"),
    ("def plus(a, b): return a + b", 0, "exception"),
    ("import sys\nsys.exit(0)", 0, "exception"),
    (
        "class Always:\n    def __eq__(self, other): return True\ndef add(a, b): return Always()",
        0,
        "",
    ),
    ("I cannot do that.", 0, "syntax"),
    ("", 0, "syntax"),
]


def test_code_tests_pay_the_share_of_tests_passed() -> None:
    replies = [{"author": text} for text, _, _ in TESTED]
    episodes = play_all("code_tests", replies, task=ADD, timeout_s=1)
    for episode, (text, reward, end) in zip(episodes, TESTED, strict=True):
        assert episode.rewards["author"] == pytest.approx(reward), text
        assert len(episode.verdicts) == 3 and end in episode.facts["end"], text
    sums = load_game("code_tests").summary(episodes)
    assert sums["code_tests/all_passed"] == pytest.approx(1 / len(TESTED))


def test_a_part_of_the_reward_may_be_for_passing_every_test() -> None:
    replies = [{"author": text} for text, _, _ in TESTED[:2]]
    right, constant = play_all("code_tests", replies, task=ADD, timeout_s=2, whole=0.75)
    assert right.rewards["author"] == 1
    assert constant.rewards["author"] == pytest.approx(1 / 12)  # a quarter of a third


def test_what_a_constant_passes_may_be_left_out_of_the_reward() -> None:
    """A third of the tests is what repeating the shown answer passes, and two are half of the
    rest."""
    texts = ["def add(a, b): return a + b", "def add(a, b): return 3"]
    texts.append("def add(a, b): return a + b if a else 0")
    replies = [{"author": text} for text in texts]
    episodes = play_all("code_tests", replies, task=ADD, timeout_s=2, constants=False)
    assert [e.rewards["author"] for e in episodes] == pytest.approx([1, 0, 0.5])
    assert [e.facts["passed"] for e in episodes] == pytest.approx([1, 1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("tests", "passed", "share"),
    [
        (("assert f(1)", "assert f(2) == True", "assert not f(3)"), 2 / 3, 0),
        (("assert f(1) == [1, 2]", "assert f(2) == [1,2]", "assert f(3) == []"), 1, 1),
        (("assert f(1) == 1", "assert f(2) == 1"), 0.5, 0.5),  # a constant is what is wanted
        (("for x in 1, 2: f(x)", "if f(1): raise ValueError", "f("), 2 / 3, 0.5),
    ],
)
def test_the_best_constant_is_found_in_the_tests(tests, passed, share) -> None:
    assert beyond_constants(passed, tests) == pytest.approx(share)


def test_a_scripted_author_prints_a_test_and_a_scripted_predictor_is_right() -> None:
    game = load_game("code_prediction")
    unclear = Task("u", data={**ADD.data, "tests": ["assert not add(0, 0)"]})

    async def go() -> list[Episode]:
        async with opened([game]):
            seating = dict.fromkeys(game.seats, "scripted")
            jobs = [Job(t.id, "code_prediction", game, t, 0, seating) for t in (ADD, unclear)]
            return await collect(jobs, programs(game).act)

    shown, nothing = asyncio.run(go())
    assert shown.facts["code"].endswith("return a + b\nprint(add(1, 2))\n")
    assert shown.turns[1].text == "```\n3\n```" and shown.rewards["predictor"] == 1
    assert nothing.turns[0].text == ""  # which is not imitated


def test_a_terse_scripted_author_prints_a_result_of_two_digits() -> None:
    game = load_game("code_prediction", style="terse")

    async def go() -> list[Episode]:
        async with opened([game]):
            seating = dict.fromkeys(game.seats, "scripted")
            jobs = [Job(str(i), "code_prediction", game, ADD, i, seating) for i in range(5)]
            return await collect(jobs, programs(game).act)

    episodes = asyncio.run(go())
    assert len({episode.facts["code"] for episode in episodes}) == 5
    for episode in episodes:
        assert re.fullmatch(r"print\(\d[-+*]\d\)", episode.facts["code"])
        assert episode.rewards == {"author": -1, "predictor": 1}


@pytest.mark.parametrize(("style", "reply"), [("short", "```python\ndef"), ("terse", "a + b")])
def test_the_scripted_author_writes_the_reference_in_the_style_that_is_played(
    style: str, reply: str
) -> None:
    game = load_game("code_tests", style=style)
    problems = [t for t in load_tasks("shipped:python", "train") if not game.unusable(t)][:8]

    async def go() -> list[Episode]:
        async with opened([game]):
            jobs = [
                Job(task.id, "code_tests", game, task, 0, {"author": "scripted"})
                for task in [ADD, *problems]
            ]
            return await collect(jobs, programs(game).act)

    episodes = asyncio.run(go())
    assert episodes[0].turns[0].text.startswith(reply)
    assert [episode.rewards["author"] for episode in episodes] == [1.0] * len(episodes)


def test_the_prompt_keeps_tests_back_and_a_task_without_any_is_refused() -> None:
    game: Any = load_game("code_tests")
    prompt = game.prompt(problem_of(ADD))
    assert "add(1, 2) == 3" in prompt and "add(2, 2)" not in prompt
    with pytest.raises(ConfigError, match="no tests"):
        game.check(TASK)


class Broken(Judge):
    async def run(self, code: str, **options: Any) -> Execution:
        return Execution("void", "jail", "the jail died")

    async def tests(self, *program: Any, **options: Any) -> Verdict:
        return Verdict("void", "jail", "the jail died")


@pytest.mark.parametrize("name", ["code_execution", "code_prediction", "code_tests"])
def test_a_broken_jail_voids_and_costs_nobody(name: str) -> None:
    def breaks(game: Any) -> None:
        game.judge.__class__ = Broken

    (episode,) = play_all(name, [{"author": "print(1)", "predictor": "1"}], breaks, ADD)
    assert episode.void == "the judge could not rule (jail): the jail died"
    assert episode.rewards == {} and episode.verdicts[0].status == "void"


GAMES = [  # author, predictor, author's reward, how it ends
    ("print(6 * 7)", "42", -1, "predicted"),
    ("print(6 * 7)", "```\n42\n```", -1, "predicted"),
    ("print(6 * 7)", "I think it is\n```text\n41\n```\nno:\n```\n42", -1, "predicted"),
    ("print(1)\nprint(2)", "1  \n2\n\n", -1, "predicted"),
    ("print(6 * 7)", "43", 1, "not predicted"),
    ("print(6 * 7)", "", 1, "not predicted"),
    ("print(1)\nprint(2)", "1 2", 1, "not predicted"),
    ("print(' x')", "x", 1, "not predicted"),
    ("import math\nprint(math.comb(5, 2))", "10", -1, "predicted"),
    ("class A:\n    def __init__(self): self._x = 3\nprint(A()._x)", "3", -1, "not allowed"),
    ("x = 1", "", -1, "no output"),
    ("print()", "", -1, "no output"),
    ("", "", -1, "syntax"),
    ("print(", "", -1, "syntax"),
    ("print(1 / 0)", "", -1, "exception"),
    ("print(1)\nwhile True: pass", "1", -1, "time-out"),
    ("print('x' * 1000)", "x" * 1000, -1, "too much output"),
    ("print(1)\n" + "x = 1\n" * 1000, "1", -1, "too long"),
    ("print(sorted({'a', 'b', 'c'}) == list({'a', 'b', 'c'}), list({c for c in 'qwertyuiop'}))",
     "", -1, "not deterministic"),
    ("print(repr(object())[-4:-1])", "", -1, "not deterministic"),
    ("print(repr(lambda: 0)[-4:-1])", "", -1, "not deterministic"),
    ("print('a\\tb', 'é', '<b>')", "a\tb é <b>", -1, "predicted"),
    ("print('<|im_end|>')", "<|im_end|>", -1, "no plain text"),
    ("print('</think>')", "</think>", -1, "no plain text"),
    ("print(chr(0))", "", -1, "no plain text"),
    ("print('a', chr(8203))", "a", -1, "no plain text"),
    ("print(hash('sparring'))", "", -1, "not allowed"),
    ("print(object())", "", -1, "not deterministic"),
    ("print(id(None) % 4096)", "", -1, "not allowed"),
    ("import random\nprint(random.random())", "", -1, "not allowed"),
    ("import time\nprint(time.time() // 86400)", "", -1, "not allowed"),
    ("print(open('/etc/passwd').read(10))", "", -1, "not allowed"),
    ("print(__import__('datetime').date.today())", "", -1, "not allowed"),
]  # fmt: skip


def test_code_prediction_and_its_rules() -> None:
    replies = [{"author": author, "predictor": predictor} for author, predictor, _, _ in GAMES]
    episodes = play_all("code_prediction", replies, timeout_s=1)
    found = [(e.rewards["author"], e.facts["end"]) for e in episodes]
    assert found == [(reward, end) for _, _, reward, end in GAMES]
    assert all(e.rewards["predictor"] == -e.rewards["author"] for e in episodes)
    for episode in episodes:
        asked = [turn.seat for turn in episode.turns]
        fair = episode.facts["end"] in ("predicted", "not predicted")
        assert asked == (["author", "predictor"] if fair else ["author"])
        assert episode.facts["predicted"] is (None if not fair else episode.rewards["author"] < 0)


def test_the_predictor_sees_the_program_and_nothing_of_its_output() -> None:
    reply = {"author": "```python\nprint(6 * 7)\n```", "predictor": "?"}
    (episode,) = play_all("code_prediction", [reply])
    assert "print(6 * 7)" in episode.turns[1].prompt and "42" not in episode.turns[1].prompt


def test_terse_authors_write_only_what_is_printed() -> None:
    episodes = play_all(
        "code_prediction",
        [{"author": "7", "predictor": "7"}, {"author": "q", "predictor": "q"}],
        style="terse",
    )
    assert [(e.rewards["author"], e.facts["end"]) for e in episodes] == [
        (-1, "predicted"),
        (-1, "exception"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "import os",
        "import collections.abc as c, sys",
        "from collections import _sys",
        "from . import math",
        "print(().__class__)",
        "import string\nstring._re",
        "print(__builtins__)",
        "getattr(1, 'real')",
        "exec('1')",
        "x = eval",
        "import collections\nself = collections\nself._sys",
        "import collections as self\nself._sys",
        "import collections\nprint(collections)",
        "(i for i in ()).gi_frame.f_builtins",
        "self = (i for i in ())\nself.gi_frame",
        "def f(): pass\nmatch f:\n    case object(__globals__=names): pass",
        "'{0.__globals__}'.format(print)",
        "('{0._' + '_globals__}').format(print)",
        "'{0.__globals__}'.format_map({})",
        "from string import Formatter",
        "import functools\nfunctools.get_cache_token()",
    ],
)
def test_what_reaches_outside_is_seen(code: str) -> None:
    assert forbidden(code)


@pytest.mark.parametrize(
    "code",
    [
        "import math, itertools",
        "from collections import Counter, deque",
        "class A:\n    def __init__(self):\n        super().__init__()\n        self._x = 1\n"
        "    def __eq__(self, other): return True",
        "if __name__ == '__main__':\n    print(1)",
        "print('__import__')",
        "print('{} {:.2f} {x.real}'.format(1, 2, x=3))",
        "class A:\n    x = 1\nmatch A():\n    case A(x=1): pass",
        "import math as m\nprint(m.pi)",
        "def broken(:",
    ],
)
def test_plain_programs_are_left_alone(code: str) -> None:
    assert forbidden(code) == ""


def test_modules_are_an_option() -> None:
    reply = {"author": "import random\nrandom.seed(1)\nprint(random.randrange(1, 2))"}
    (episode,) = play_all(
        "code_prediction", [{**reply, "predictor": "1"}], modules=["random", "math"]
    )
    assert episode.facts["end"] == "predicted"


def test_reading_predictions() -> None:
    assert predicted_text("a\n```\nb\n```\nc") == "b\n" and predicted_text("plain") == "plain"
    for printed in ("```\nhi\n```\n", "```\n", "a\n  ```python\nb\n"):  # as an author may print
        assert normal(predicted_text(f"```\n{printed}```", printed)) == normal(printed)
        assert normal(predicted_text("```\nhi\n```\n```\nb\n```", printed)) != normal(printed)
    assert normal("\n a \n\nb\t\n\n") == " a\n\nb"


def test_a_game_that_is_not_open_says_so() -> None:
    game = load_game("code_execution")
    with pytest.raises(RuntimeError, match="not open"):
        asyncio.run(game.execute("print(1)"))  # type: ignore[attr-defined]


def test_options_are_checked() -> None:
    for options in ({"timeout_s": 0}, {"style": "tense"}):
        with pytest.raises(ValueError, match=r"timeout_s|terse"):
            load_game("code_execution", **options)
    with pytest.raises(ValueError, match="max_output"):
        load_game("code_prediction", max_output=0)
    with pytest.raises(ConfigError, match="no prompt"):
        load_game("code_execution").check(Task("x", data={"code": "1"}))
