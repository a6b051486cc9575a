"""Makes the word problems that are shipped: templates with numbers drawn into them, whose every
step is worked out exactly.

`python tests/pipelines/coherent_math/made_word_problems.py` writes the file anew."""

from __future__ import annotations

import ast
import json
import operator
import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sparring.core.types import derive
from sparring.pipelines.coherent_math import plugin

PER_TEMPLATE = 20  # of which every fifth is for testing
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon", "Kim", "Lea")
THINGS = ("apples", "books", "cards", "coins", "eggs", "marbles", "pens", "shells", "stamps")
_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_SIGNS = {"*": "x"}


@dataclass(frozen=True)
class Template:
    """A question with places, where its numbers are drawn from, and its steps: what each finds,
    by which expression. A step's result goes by its letter in those after it."""

    question: str
    numbers: dict[str, tuple[int, int]]
    steps: tuple[tuple[str, str, str], ...]  # (letter, what it is, expression)


TEMPLATES = (
    Template(
        "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?",
        {"a": (3, 60), "b": (2, 40)},
        (("r", "{name} has", "a + b"),),
    ),
    Template(
        "{name} had {a} {things} and gave {b} of them to {other}. How many are left?",
        {"a": (10, 90), "b": (2, 40)},
        (("r", "There are left", "a - b"),),
    ),
    Template(
        "A box holds {a} {things}. How many {things} are in {b} boxes?",
        {"a": (3, 24), "b": (2, 12)},
        (("r", "The boxes hold", "a * b"),),
    ),
    Template(
        "{name} shares {a} {things} equally among {b} friends. How many does each friend get?",
        {"a": (12, 96), "b": (2, 9)},
        (("r", "Each friend gets", "a / b"),),
    ),
    Template(
        "{name} has {a} {things}. {other} has {b} times as many. How many do they have together?",
        {"a": (3, 30), "b": (2, 6)},
        (("c", "{other} has", "a * b"), ("r", "Together they have", "a + c")),
    ),
    Template(
        "{name} buys {a} {things} at ${b} each and pays with ${p}. How much change is there?",
        {"a": (2, 9), "b": (2, 9), "p": (50, 100)},
        (("c", "The {things} cost", "a * b"), ("r", "The change is", "p - c")),
    ),
    Template(
        "{name} earns ${a} an hour and works {b} hours a day for {d} days. How much is earned?",
        {"a": (8, 25), "b": (3, 8), "d": (2, 6)},
        (("c", "The hours are", "b * d"), ("r", "The pay is", "a * c")),
    ),
    Template(
        "{name} sold {a} {things} in April and half as many in May. How many were sold in all?",
        {"a": (10, 90)},
        (("c", "In May were sold", "a / 2"), ("r", "In all were sold", "a + c")),
    ),
    Template(
        "{name} reads {a} pages on Monday and {b} more than that on Tuesday. "
        "The book has {p} pages. How many are left to read?",
        {"a": (10, 40), "b": (2, 20), "p": (110, 200)},
        (
            ("c", "On Tuesday", "a + b"),
            ("d", "Read so far", "a + c"),
            ("r", "Left to read", "p - d"),
        ),
    ),
    Template(
        "A shirt costs ${a}. It is sold at {b}% off. How much does it cost now?",
        {"a": (20, 200), "b": (5, 60)},
        (("c", "The discount is", "a * b / 100"), ("r", "It now costs", "a - c")),
    ),
    Template(
        "A car drives {a} miles in {b} hours. How far does it drive in {d} hours at that speed?",
        {"a": (60, 300), "b": (2, 6), "d": (2, 9)},
        (("c", "The speed is", "a / b"), ("r", "It drives", "c * d")),
    ),
    Template(
        "{name} is {a} years old. {other} is {b} years younger. "
        "How old will {other} be in {d} years?",
        {"a": (12, 60), "b": (2, 11), "d": (2, 15)},
        (("c", "{other} is", "a - b"), ("r", "Then {other} is", "c + d")),
    ),
    Template(
        "A garden is {a} feet long and {b} feet wide. A fence costs ${d} per foot. "
        "What does it cost to fence it all around?",
        {"a": (8, 30), "b": (4, 20), "d": (2, 6)},
        (
            ("c", "Length and width make", "a + b"),
            ("e", "All around it is", "c * 2"),
            ("r", "The fence costs", "e * d"),
        ),
    ),
    Template(
        "{name} saves ${a} a week. How many weeks does it take to buy a bicycle of ${p} "
        "if {other} adds ${b}?",
        {"a": (4, 20), "b": (10, 60), "p": (80, 240)},
        (("c", "To be saved are", "p - b"), ("r", "The weeks are", "c / a")),
    ),
    Template(
        "There are {a} rows of {b} seats in a hall, and {d} seats are empty. "
        "How many people sit there?",
        {"a": (4, 20), "b": (5, 20), "d": (2, 30)},
        (("c", "The seats are", "a * b"), ("r", "The people are", "c - d")),
    ),
    Template(
        "A recipe for {a} people needs {b} eggs. How many eggs are needed for {d} people?",
        {"a": (2, 6), "b": (2, 12), "d": (6, 24)},
        (("c", "One person needs", "b / a"), ("r", "They need", "c * d")),
    ),
)


def make_problems(per_template: int = PER_TEMPLATE) -> list[dict[str, str]]:
    """All problems, the same every time."""
    problems = []
    for t, template in enumerate(TEMPLATES):
        rng = random.Random(derive("word problems", t))
        seen: set[str] = set()
        while len(seen) < per_template:
            made = fill(template, rng)
            if made is None or made[0] in seen:
                continue
            split = "test" if len(seen) % 5 == 4 else "train"
            name = f"{t + 1}-{len(seen) + 1}"
            seen.add(made[0])
            problems.append({"id": name, "question": made[0], "answer": made[1], "split": split})
    return problems


def fill(template: Template, rng: random.Random) -> tuple[str, str] | None:
    """A question and its solution, or None where the numbers do not come out whole."""
    name, other = rng.sample(NAMES, 2)
    words = {"name": name, "other": other, "things": rng.choice(THINGS)}
    values = {k: Fraction(rng.randint(*bounds)) for k, bounds in template.numbers.items()}
    lines = []
    for letter, finds, expression in template.steps:
        result = work_out(expression, values)
        if result <= 0 or result.denominator != 1:
            return None
        working = " ".join(
            str(values[part]) if part in values else _SIGNS.get(part, part)
            for part in expression.split()
        )
        lines.append(f"{finds.format(**words)} {working} = {result}.")
        values[letter] = result
    question = template.question.format(**words, **{k: str(v) for k, v in values.items()})
    return question, "\n".join([*lines, f"#### {values['r']}"])


def work_out(expression: str, values: dict[str, Fraction]) -> Fraction:
    """An expression of letters, whole numbers and the four operations, exactly."""

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp):
            return Fraction(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.Name):
            return values[node.id]
        # The templates hold nothing else.
        assert isinstance(node, ast.Constant) and isinstance(node.value, int)
        return Fraction(node.value)

    return value(ast.parse(expression, mode="eval").body)


if __name__ == "__main__":
    text = "".join(json.dumps(problem) + "\n" for problem in make_problems())
    (plugin.folder("data") / "word_problems.jsonl").write_text(text)
