"""Word problems in GSM8K's form, and how a model is asked them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sparring.judge.math_answer import read_number
from sparring.run.config import ConfigError
from sparring.tasks.source import load_tasks
from sparring.types import Task

MARK = "####"
# What is asked in fine-tuning, in preferences and in evaluation alike.
ASK = f"{{question}}\n\nSolve this step by step. End with a line of {MARK} and the number."
_CALCULATOR = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, slots=True)
class WordProblem:
    """A question, a worked solution that ends in `#### n`, and the n of it."""

    id: str
    question: str
    solution: str
    answer: str


def word_problem(task: Task, source: str = "") -> WordProblem:
    row, where = task.data, f"task {task.id}{f' of {source}' if source else ''}"
    question, solution = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not question.strip() or not isinstance(solution, str):
        raise ConfigError(f"{where} is no word problem: it needs texts under question and answer")
    _, mark, answer = solution.rpartition(MARK)
    if not mark:
        raise ConfigError(f"the answer of {where} has no {MARK}, after which the number stands")
    if read_number(answer) is None:
        raise ConfigError(f"the number of {where} cannot be read: {answer.strip()!r}")
    return WordProblem(task.id, question.strip(), solution.strip(), answer.strip())


def load_word_problems(
    source: str, split: str | None = None, limit: int | None = None
) -> list[WordProblem]:
    return [word_problem(task, source) for task in load_tasks(source, split, limit)]


def without_calculator(solution: str) -> str:
    """GSM8K writes <<48/2=24>> for a calculator to fill in; who has none is not to write it."""
    return _CALCULATOR.sub("", solution)


def refuse_shared(train: Sequence[WordProblem], test: Sequence[WordProblem]) -> None:
    """What is for testing never enters training, whatever file it comes in."""
    tested = {" ".join(p.question.split()) for p in test}
    shared = [p for p in train if " ".join(p.question.split()) in tested]
    if shared:
        raise ConfigError(
            f"{len(shared)} questions of the evaluation are among those to train on, such as "
            f"{shared[0].id}: {shared[0].question[:60]!r}"
        )
