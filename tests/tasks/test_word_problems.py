"""The shipped word problems are what the code makes, and their answers are right."""

from __future__ import annotations

import json
import re
from fractions import Fraction

from sparring.judge.math_answer import grade
from sparring.tasks.math import load_word_problems, refuse_shared
from sparring.tasks.source import SHIPPED
from sparring.tasks.word_problems import PER_TEMPLATE, TEMPLATES, make_problems, work_out

STEP = re.compile(r" ([\d./x+* -]+) = (\d+)\.$")


def test_the_file_is_what_the_code_makes():
    rows = [json.loads(line) for line in (SHIPPED / "word_problems.jsonl").open()]
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
    refuse_shared(train, test)
