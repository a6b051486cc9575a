"""Word problems in GSM8K's form, and how a model is asked them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.judge.math import read_number
from sparring.tasks.source import load_tasks

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


# Under which names published sets have a question, its worked solution, and the bare number.
_QUESTION = ("question", "problem", "prompt")
_SOLUTION = ("answer", "solution", "gt_solution", "generated_solution")
_NUMBER = ("answer", "final_answer", "expected_answer", "gt_answer")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_DIGITS = re.compile(r"[-+$€£]*\d[\d.,/]*\s?%?")


def word_problem(task: Task, source: str = "") -> WordProblem:
    """A row of GSM8K, of GSM8K Platinum, or of a set in another's columns. The number stands after
    `####`, in the last `\\boxed{}`, or in a column of its own."""
    row, where = task.data, f"task {task.id}{f' of {source}' if source else ''}"
    question = next((row[k] for k in _QUESTION if _text(row.get(k))), None)
    texts = [row[k].strip() for k in _SOLUTION if _text(row.get(k))]
    number = next((str(row[k]).strip() for k in _NUMBER if _bare(row.get(k))), None)
    if question is None or not (texts or number):
        raise ConfigError(
            f"{where} is no word problem: it needs a text under {' or '.join(_QUESTION[:2])}, and "
            f"one under {', '.join(_SOLUTION[:3])}; it has {', '.join(map(str, row)) or 'nothing'}"
        )
    solution = next((text for text in texts if MARK in text), texts[-1] if texts else "")
    boxed = _BOXED.findall(solution)
    if MARK in solution:
        answer = solution.rpartition(MARK)[2].strip()
    elif boxed or number is not None:
        answer = (number or boxed[-1]).strip()
        steps = f"{solution}\n" if solution not in ("", number) else ""
        solution = f"{steps}{MARK} {answer}"
    else:
        raise ConfigError(
            f"the answer of {where} has no {MARK}, after which the number stands, no \\boxed{{}}, "
            f"and no column {' or '.join(_NUMBER[1:3])} has it"
        )
    if read_number(answer) is None:
        raise ConfigError(f"the number of {where} cannot be read: {answer!r}")
    return WordProblem(task.id, question.strip(), solution, answer)


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _bare(value: object) -> bool:
    """A number, or a text that is nothing else."""
    if isinstance(value, str):
        return _DIGITS.fullmatch(value.strip()) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def load_word_problems(
    source: str, split: str | None = None, limit: int | None = None
) -> list[WordProblem]:
    return [word_problem(task, source) for task in load_tasks(source, split, limit)]


def without_calculator(solution: str) -> str:
    """GSM8K writes <<48/2=24>> for a calculator to fill in; who has none is not to write it."""
    return _CALCULATOR.sub("", solution)


def refuse_test_file(source: str) -> None:
    """What calls itself a test set is one, though its rows do not say so."""
    words = set(re.split(r"[^a-z]+", Path(source).name.lower()))
    named = words & {"test", "platinum"}
    if named and not source.startswith("shipped"):
        raise ConfigError(
            f"{source} calls itself a {min(named)} set, and what is for testing never enters "
            "training; if it is no such set, give the file another name"
        )


def refuse_shared(train: Iterable[str], test: Iterable[str]) -> None:
    """What is for testing never enters training, whatever file it comes in. Questions are compared
    by their words alone."""
    tested = {_words(question) for question in test}
    shared = [question for question in train if _words(question) in tested]
    if shared:
        raise ConfigError(
            f"{len(shared)} questions of the evaluation are among those to train on, such as "
            f"{shared[0][:60]!r}; tasks.source and math.gsm8k.data should share none"
        )


def _words(question: str) -> str:
    return " ".join(re.findall(r"\w+", question.lower()))
