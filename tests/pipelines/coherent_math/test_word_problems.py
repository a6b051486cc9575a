"""The shipped word problems are what the code makes, and their answers are right."""

from __future__ import annotations

import json
import os
import re
from fractions import Fraction
from pathlib import Path

import pytest
from made_word_problems import PER_TEMPLATE, TEMPLATES, make_problems, work_out

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.judge.math import grade
from sparring.pipelines.coherent_math import plugin
from sparring.pipelines.coherent_math.questions import (
    load_word_problems,
    refuse_shared,
    word_problem,
)

STEP = re.compile(r" ([\d./x+* -]+) = (\d+)\.$")


def test_the_file_is_what_the_code_makes():
    rows = [json.loads(line) for line in (plugin.folder("data") / "word_problems.jsonl").open()]
    assert rows == make_problems() and len(rows) == len(TEMPLATES) * PER_TEMPLATE >= 200
    assert len({row["question"] for row in rows}) == len(rows)


def test_every_step_adds_up_and_uses_only_what_is_known():
    """Read again from the words, without the templates."""
    for problem in load_word_problems("shipped:word_problems"):
        known = {*re.findall(r"\d+", problem.question), "2", "100"}
        *steps, last = problem.solution.splitlines()
        for line in steps:
            match = STEP.search(line)
            assert match is not None, line
            assert set(re.findall(r"\d+", match[1])) <= known, line
            assert work_out(match[1].replace("x", "*"), {}) == Fraction(match[2]), line
            known.add(match[2])
        assert last == f"#### {match[2]}" and grade(problem.solution, problem.answer).passed


def test_what_is_for_testing_is_apart():
    train = load_word_problems("shipped:word_problems", "train")
    test = load_word_problems("shipped:word_problems", "test")
    assert len(train) >= 200 and len(test) >= 60
    refuse_shared([p.question for p in train], [p.question for p in test])


@pytest.mark.parametrize(
    ("row", "answer", "solution"),
    [
        ({"question": "Q?", "answer": "2 + 2 = 4\n#### 4"}, "4", "2 + 2 = 4\n#### 4"),
        ({"problem": "Q?", "solution": "It is 4.\n#### 4"}, "4", "It is 4.\n#### 4"),
        ({"question": "Q?", "gt_solution": "It is 4.\n#### 4"}, "4", "It is 4.\n#### 4"),
        # As mathematics is published elsewhere: a box, or the number in a column of its own.
        (
            {"problem": "Q?", "solution": "So \\boxed{1,204}.", "answer": "1,204"},
            "1,204",
            "So \\boxed{1,204}.\n#### 1,204",
        ),
        ({"problem": "Q?", "solution": "So \\boxed{4}."}, "4", "So \\boxed{4}.\n#### 4"),
        ({"question": "Q?", "answer": "4"}, "4", "#### 4"),
        ({"question": "Q?", "answer": 4, "cleaning_status": "consensus"}, "4", "#### 4"),
    ],
)
def test_rows_as_they_are_published(row, answer, solution):
    found = word_problem(Task("1", data=row))
    assert (found.question, found.answer, found.solution) == ("Q?", answer, solution)
    assert grade(found.solution, found.answer).passed


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "Q?"}, "question or problem, and one under answer, solution, gt_solution.*text"),
        ({"question": "Q?", "answer": "seven of them"}, "has no ####"),
        ({"question": "Q?", "answer": "#### many"}, "cannot be read: 'many'"),
    ],
)
def test_rows_that_are_no_word_problems_say_what_is_missing(row, words):
    with pytest.raises(ConfigError, match=words):
        word_problem(Task("1", data=row))


@pytest.mark.parametrize("name", ["gsm8k_train", "gsm8k_test", "gsm8k_platinum"])
def test_the_published_files_are_read_whole(name):
    path = Path(os.environ.get("SPARRING_DATA", "")) / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {name}.jsonl: set SPARRING_DATA to its folder")
    found = load_word_problems(str(path))
    assert len(found) == {"gsm8k_train": 7473, "gsm8k_test": 1319, "gsm8k_platinum": 1209}[name]
