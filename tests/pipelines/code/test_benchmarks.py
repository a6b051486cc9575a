"""MBPP and HumanEval: the published prompts, the programs made of replies, and what is counted."""

from __future__ import annotations

import asyncio
import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from sparring.core.errors import ConfigError
from sparring.core.plugin import find
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Request, Sampling, VoidGame
from sparring.evaluation.benchmark import Asked, attempt_all
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox import probe
from sparring.judge.sandbox.bwrap import SandboxMissing
from sparring.pipelines.code import benchmarks, humaneval, mbpp
from sparring.pipelines.code.attempts import Question, attempt_stats, cut, details, rule_by
from sparring.pipelines.code.benchmarks import find_data, parse_k

jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")


def row(number: int, name: str) -> dict[str, Any]:
    return {
        "task_id": number,
        "text": f"Write a function to {name}.",
        "code": f"def {name}(x):\r\n    return x + {number}",
        "test_setup_code": "",
        "test_list": [f"assert {name}(0) == {number}", f"assert {name}(1) == {number + 1}"],
    }


@pytest.fixture
def mbpp_file(tmp_path: Path) -> str:
    path = tmp_path / "mbpp.jsonl"
    rows = [row(n, f"f{n}") for n in (1, 2, 3, 4, 11, 12, 601)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'from math import sqrt\n\n\ndef root(x):\n    """ The root. """\n',
    "entry_point": "root",
    "canonical_solution": "    return sqrt(x)\n",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n    assert candidate(9) == 3\n",
}


@pytest.fixture
def humaneval_file(tmp_path: Path) -> str:
    path = tmp_path / "humaneval.jsonl"
    path.write_text(json.dumps(HUMANEVAL) + "\n")
    return str(path)


def test_three_shots_in_the_published_form(mbpp_file: str) -> None:
    problems = mbpp.load_mbpp(mbpp_file)
    assert [p.id for p in problems] == ["11", "12"]
    first = mbpp.questions(problems, mbpp.load_shots(mbpp_file))[0]
    shot = (
        "You are an expert Python programmer, and here is your task: Write a function to f{n}. "
        "Your code should pass these tests:\n\nassert f{n}(0) == {n}\nassert f{n}(1) == {m}\n"
        "[BEGIN]\n"
    )
    solved = "def f{n}(x):\n    return x + {n}\n[DONE]\n\n"
    expected = "".join((shot + solved).format(n=n, m=n + 1) for n in (2, 3, 4))
    expected += shot.format(n=11, m=12)
    assert first.messages == [{"role": "raw", "content": expected}]
    assert first.stop == ("[DONE]",)
    assert first.program(cut("def f11(x):\n    return 1\n[DONE]\n\nYou are", first.stop)) == (
        "def f11(x):\n    return 1\n"
    )


def test_zero_shot_is_chat(mbpp_file: str) -> None:
    question = mbpp.questions(mbpp.load_mbpp(mbpp_file), [])[0]
    assert [m["role"] for m in question.messages] == ["user"]
    assert "assert f11(1) == 12" in question.messages[0]["content"]
    assert question.program("```python\nx = 1\n```") == "x = 1\n"


def test_a_set_without_the_three_shots_says_so(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(row(n, f"f{n}")) + "\n" for n in (1, 2, 5, 11)))
    with pytest.raises(ConfigError, match="need the tasks 2, 3 and 4"):
        mbpp.load_shots(str(path))
    assert [p.id for p in mbpp.load_shots("shipped")] == [
        *("shared-digits", "every-other", "widest-gap")
    ]


def test_problems_without_tests_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bare.jsonl"
    path.write_text('{"id": "a", "prompt": "P."}\n')
    with pytest.raises(ConfigError, match=r"problem a of .* has no tests"):
        mbpp.load_mbpp(str(path))
    with pytest.raises(ConfigError, match="not one of HumanEval's"):
        humaneval.load_humaneval(str(path))


def test_humaneval_goes_on_with_the_prompt_or_takes_the_function(humaneval_file: str) -> None:
    problems = humaneval.load_humaneval(humaneval_file)
    (raw,) = humaneval.questions(problems, chat=False)
    assert raw.messages == [{"role": "raw", "content": HUMANEVAL["prompt"]}]
    reply = cut("    return sqrt(x)\n\ndef other():\n    pass", raw.stop)
    assert raw.program(reply) == HUMANEVAL["prompt"] + "    return sqrt(x)\n"
    (chat,) = humaneval.questions(problems, chat=True)
    whole = "```python\ndef root(x):\n    return sqrt(x)\n```"
    assert chat.program(whole) == (
        "from math import sqrt\n\n\n\ndef root(x):\n    return sqrt(x)\n"
    )
    assert chat.program("    return sqrt(x)") == HUMANEVAL["prompt"] + "    return sqrt(x)"


def attempt(questions: list[Question], says: Any, samples: int = 1) -> list[list[Any]]:
    async def go() -> list[list[Any]]:
        async with Judge(timeout_s=5) as judge:
            speak = ScriptedEngine({"p": says}).act
            sampling = Sampling(temperature=0.0, max_tokens=512)
            rule = rule_by(judge, questions)
            return await attempt_all(
                questions, speak, "p", rule, samples=samples, sampling=sampling
            )

    return asyncio.run(go())


@jailed
def test_attempts_are_judged_counted_and_kept(mbpp_file: str) -> None:
    problems = mbpp.load_mbpp(mbpp_file)
    asked = mbpp.questions(problems, mbpp.load_shots(mbpp_file))
    seen: list[Request] = []

    def says(request: Request) -> str:
        seen.append(request)
        if "f12" in request.messages[-1]["content"]:
            return "print('nothing defined')\n[DONE]"
        return f"def f11(x):\n    return x + {11 if len(seen) % 2 else 5}\n[DONE] more"

    attempts = attempt(asked, says, samples=4)
    found = attempt_stats(attempts, [1, 2, 4])
    assert (found["problems"], found["problems_passed"], found["samples"]) == (2, 1, 4)
    assert found["pass_rate"] == found["pass@1"] == 0.25
    assert found["pass@2"] == pytest.approx((1 - 1 / 6) / 2) and found["pass@4"] == 0.5
    assert found["void"] == 0 and sum(found["verdicts"].values()) == 8
    assert len({request.seed for request in seen}) == 8
    kept = details(problems, attempts)
    assert [(each["id"], each["passed"]) for each in kept] == [("11", True), ("12", False)]
    assert kept[0]["attempts"][0]["code"] == "def f11(x):\n    return x + 11\n"
    assert kept[1]["attempts"][0]["verdict"] == "fail"


@jailed
def test_a_question_that_cannot_be_asked_is_void(mbpp_file: str) -> None:
    def too_long(request: Request) -> str:
        raise VoidGame("the prompt does not fit")

    attempts = attempt(mbpp.questions(mbpp.load_mbpp(mbpp_file), []), too_long)
    found = attempt_stats(attempts, [1])
    assert (found["void"], found["problems_passed"], found["verdicts"]) == (2, 0, {"prompt": 2})


def evaluate(name: str, policy: str, data: str | None, **options: Any) -> tuple[int, Any]:
    out = io.StringIO()
    with redirect_stdout(out):
        code = benchmarks.evaluate(Asked(name, policy, data, as_json=True, **options))
    return code, json.loads(out.getvalue())


@jailed
def test_reference_runs_every_problem_of_the_file(mbpp_file: str, humaneval_file: str) -> None:
    code, found = evaluate("mbpp", "reference", mbpp_file)
    assert code == 0
    assert (found["problems"], found["problems_passed"], found["pass_rate"]) == (7, 7, 1.0)
    assert evaluate("humaneval", "reference", humaneval_file)[1]["problems_passed"] == 1
    assert evaluate("mbpp", "reference", "shipped")[1]["problems_passed"] == 50


@jailed
@pytest.mark.parametrize("chat", [False, True])
def test_nano_is_evaluated_on_both(
    mbpp_file: str, humaneval_file: str, chat: bool, tmp_path: Path
) -> None:
    kept = tmp_path / "details" / "mbpp.json"
    options = {"chat": chat, "max_tokens": 8}
    code, found = evaluate("mbpp", "nano", mbpp_file, k="1,2", details=kept, **options)
    assert code == 0 and found["problems"] == 2 and found["samples"] == 2
    assert set(found) >= {"problems_passed", "pass_rate", "pass@1", "pass@2", "interval_95"}
    assert len(json.loads(kept.read_text())["details"]) == 2
    assert evaluate("mbpp", "nano", mbpp_file, k="1,2", **options)[1] == found
    code, found = evaluate("humaneval", "nano", humaneval_file, **options)
    assert code == 0 and found["problems"] == 1


@jailed
def test_variables_override(mbpp_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MBPP_DATASET_PATH", os.path.dirname(mbpp_file))
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "1")
    _, found = evaluate("mbpp", "nano", None, max_tokens=4)
    assert found["problems"] == 1
    assert evaluate("mbpp", "nano", None, max_tokens=4, problems=2)[1]["problems"] == 2
    assert evaluate("mbpp", "reference", None)[1]["problems"] == 7
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "many")
    with pytest.raises(ConfigError, match="MBPP_EVAL_NUM_QUESTIONS is 'many'"):
        evaluate("mbpp", "nano", None)


def test_a_folder_of_data_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MBPP_DATASET_PATH", raising=False)
    monkeypatch.setenv("SPARRING_DATA", str(tmp_path))
    (tmp_path / "humaneval_plus.jsonl.gz").touch()
    (tmp_path / "mbpp.jsonl").touch()
    assert find_data("humaneval+", None) == str(tmp_path / "humaneval_plus.jsonl.gz")
    assert find_data("mbpp", None) == str(tmp_path / "mbpp.jsonl")
    assert find_data("mbpp", "other.jsonl") == "other.jsonl"
    with pytest.raises(ConfigError, match=r"where is mbpp\+"):
        find_data("mbpp+", None)  # it is not there


def test_bad_input_is_refused_with_the_reason(
    mbpp_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MBPP_DATASET_PATH", raising=False)
    monkeypatch.delenv("SPARRING_DATA", raising=False)
    with pytest.raises(ConfigError, match="did you mean 'mbpp'"):
        find("benchmarks", "mbbp")
    for policy, data, says in (
        ("nano", None, "MBPP_DATASET_PATH"),
        ("nano", "missing.jsonl", "no file 'missing.jsonl'"),
        ("./no-such-policy", mbpp_file, "smollm2"),
    ):
        with pytest.raises(ConfigError, match=says):
            evaluate("mbpp", policy, data)
    for k, says in (("1,x", "such as 1,10"), ("0", "from 1"), ("1,10", "needs 10 samples")):
        with pytest.raises(ConfigError, match=says):
            parse_k(k, 5)
    assert parse_k("10,1", None) == [1, 10]


def test_without_a_jail_nothing_is_evaluated(
    mbpp_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxMissing, match="bubblewrap"):
        evaluate("mbpp", "reference", mbpp_file)
    code, found = evaluate("mbpp", "reference", mbpp_file, sandbox="unsafe")
    assert code == 0 and found["problems_passed"] == 7
