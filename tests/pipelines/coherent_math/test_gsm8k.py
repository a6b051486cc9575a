"""GSM8K: what is counted, how attempts vote, and how two evaluations are compared."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from lives import sparring

from sparring.core.errors import ConfigError
from sparring.core.types import Request, Turn, VoidGame
from sparring.evaluation.significance import compare, compare_files, difference_interval, mcnemar
from sparring.pipelines.coherent_math.gsm8k import evaluate_policy, majority, write_details
from sparring.pipelines.coherent_math.questions import (
    load_word_problems,
    refuse_shared,
    without_calculator,
)

ROWS = [
    {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
    {"question": "Half of nine?", "answer": "9/2=4.5\n#### 4.5"},
    {"question": "A thousand and one?", "answer": "#### 1,001"},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def speaker(said: dict[str, list[str]]):
    """Says what is written for a question, one after the other."""
    left = {question: iter(texts) for question, texts in said.items()}

    async def speak(request: Request) -> Turn:
        question = request.messages[0]["content"].split("\n")[0]
        text = next(left[question])
        if text == "void":
            raise VoidGame("no room")
        return Turn(request.seat, request.policy, "", text, token_ids=[1, 2])

    return lambda: (SimpleNamespace(act=speak), "x")


def test_details_are_compared_whatever_a_model_wrote(data: Path, tmp_path: Path):
    """Unicode ends lines with more than JSON does; a run could not compare its own evaluations."""
    said = {row["question"]: ["so\u2028\x85\n#### 4"] for row in ROWS}
    _, solved = evaluate_policy(load_word_problems(str(data)), "x", player=speaker(said))
    file = tmp_path / "details.jsonl"
    write_details(file, solved)
    assert compare_files(file, file)["problems"] == 3
    raw = json.loads(file.read_text().split("\n")[0])
    file.write_text(json.dumps(raw, ensure_ascii=False) + "\n")  # as other programs write it
    assert "\u2028" in file.read_text() and compare_files(file, file)["problems"] == 1


def test_answers_are_counted_and_voids_are_seen(data: Path):
    problems = load_word_problems(str(data))
    said = {
        "Two and two?": ["It is 4."],
        "Half of nine?": ["#### 5"],
        "A thousand and one?": ["void"],
    }
    found, solved = evaluate_policy(problems, "x", player=speaker(said))
    assert (found["problems"], found["problems_passed"], found["void"]) == (3, 1, 1)
    assert found["pass_rate"] == pytest.approx(1 / 3) and found["pass_rate_marked"] == 0
    assert found["verdicts"] == {"correct": 1, "wrong": 1, "prompt": 1}
    line = solved[1].as_dict()
    assert (line["prediction"], line["reference"], line["correct"]) == ("5", "4.5", False)
    assert line["read_from"] == "####" and line["tokens"] == 2


def test_the_majority_speaks_and_the_silent_have_no_vote(data: Path):
    assert majority(["#### 5", "#### 4", "the answer is 4", "?", "?", "?"]) == 1
    assert majority(["#### 5", "#### 4"]) == 0 and majority(["?", "?"]) == 0
    problems = load_word_problems(str(data), limit=1)
    said = {"Two and two?": ["#### 5", "#### 4", "so 4.0"]}
    found, solved = evaluate_policy(problems, "x", samples=3, player=speaker(said))
    assert found["maj@3"] == 1.0 and found["mean_of_samples"] == pytest.approx(2 / 3)
    assert solved[0].as_dict()["votes"] == {"5": 1, "4": 2}


def test_mcnemar_and_its_interval():
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(1, 9) == pytest.approx(22 / 1024)  # 2 · (1 + 10) / 2^10
    low, high = difference_interval(5, 15, 100)
    centre, reach = 10 / 102, 1.96 * (22 - 100 / 102) ** 0.5 / 102
    assert (low, high) == (pytest.approx(centre - reach), pytest.approx(centre + reach))
    found = compare([True, False, False, True], [True, True, True, False])
    assert (found["only_first"], found["only_second"], found["difference"]) == (1, 2, 0.25)


def test_the_file_s_own_answers_are_right_and_a_policy_leaves_its_details(
    tmp_path: Path, data: Path
):
    words = ("eval", "gsm8k", "--data", data, "--json", "--policy")
    life = sparring(*words, "reference", cwd=tmp_path)
    found = json.loads(life.out)
    assert life.code == 0 and (found["problems"], found["problems_passed"]) == (3, 3)
    assert found["pass_rate"] == 1.0
    for name, seed in (("a", 0), ("b", 1)):
        more = ("--max-tokens", 4, "--samples", 2, "--seed", seed, "--details", f"{name}.jsonl")
        life = sparring(*words, "nano", *more, cwd=tmp_path)
        assert life.code == 0 and json.loads(life.out)["samples"] == 2, life.err
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["question"] for line in lines] == [row["question"] for row in ROWS]
    life = sparring("compare", "a.jsonl", "b.jsonl", "--json", cwd=tmp_path)
    assert life.code == 0 and json.loads(life.out)["problems"] == 3


def test_what_cannot_be_used_is_named(tmp_path: Path, data: Path):
    bad = tmp_path / "bad.jsonl"
    for row, said in (
        ({"question": "a", "answer": "no mark"}, "has no ####"),
        ({"question": "a", "answer": "#### many"}, "cannot be read"),
        ({"question": "", "answer": "#### 1"}, "is no word problem"),
    ):
        bad.write_text(json.dumps(row))
        life = sparring("eval", "gsm8k", "--policy", "reference", "--data", bad, cwd=tmp_path)
        assert life.code == 2 and said in life.err
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "7", "question": "?", "correct": true}\n')
    one = tmp_path / "one.jsonl"
    one.write_text('{"id": "8", "question": "?", "correct": true}\n')
    life = sparring("compare", one, other, cwd=tmp_path)
    assert life.code == 2 and "the same questions" in life.err
    assert sparring("compare", one, tmp_path / "none", cwd=tmp_path).code == 2
    assert sparring("compare", one, data, cwd=tmp_path).code == 2


def test_training_on_what_is_tested_is_refused(data: Path):
    test = [problem.question for problem in load_word_problems(str(data))]
    train = ["  Two and\ntwo? ".strip()]
    with pytest.raises(ConfigError, match="1 questions of the evaluation"):
        refuse_shared(train, test)
    refuse_shared(["Other?"], test)
    assert without_calculator(ROWS[0]["answer"]) == "2+2=4\n#### 4"
