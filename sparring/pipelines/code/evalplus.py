"""EvalPlus' HumanEval+ and MBPP+: the problems of the two with many more inputs. A program is
compared with the reference on every base and plus input, by EvalPlus' own rules for equality."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.pipelines.code import humaneval
from sparring.pipelines.code.attempts import Question
from sparring.tasks.code import Problem, extract_code

FILES = {"humaneval+": "humaneval_plus.jsonl.gz", "mbpp+": "mbpp_plus.jsonl.gz"}
STOPS = ("\nassert ", "\nprint(", "\nif __name__", "\n```", '\n"""')
CHAT = "Write this Python function. Answer with the code alone, in one ```python block.\n\n{prompt}"

# Equality as EvalPlus has it: the type and, where numbers are not whole, numpy's `allclose`.
SAME = """
import copy, math
from math import inf, nan

def close(got, expected, atol):
    if isinstance(expected, (list, tuple)):
        return len(got) == len(expected) and all(
            close(a, b, atol) for a, b in zip(got, expected))
    if isinstance(expected, float) and math.isnan(expected):
        return False
    return got == expected or abs(got - expected) <= atol + 1e-7 * abs(expected)

def floats(value):
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)

def same(got, expected, atol, given):
    if got == expected:
        return True
    if atol == 0 and floats(expected):
        atol = 1e-6
    return atol != 0 and type(got) is type(expected) and close(got, expected, atol)
"""
# Problems whose right answers are several.
_SETS = (
    *("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly"),
    *("larg_nnum", "intersection_array", "find_dissimilar", "Diff"),
)
_ANY_MATCH = ("check_str", "text_match_three", "text_starta_endb")
_ORACLES = {
    "find_zero": (  # a number once and for all: an object could be another one for each power
        "abs(sum(c * math.pow(x, i) for x in [float(got)] for i, c in enumerate(given[0]))) <= atol"
    ),
    "are_equivalent": "True",
    "sum_div": "got == 0 or same(got, expected, atol, given)",
    "surface_Area": (
        "same(got, expected, atol, given) or abs(got - round(given[0] ** 2 + 2 * given[0] * "
        "math.sqrt((given[0] / 2) ** 2 + given[1] ** 2))) <= atol"
    ),
    "digit_distance_nums": (
        "same(got, expected, atol, given) or got == sum(abs(int(a) - int(b)) for a, b in zip("
        "*(str(n).zfill(max(map(len, map(str, given)))) for n in given)))"
    ),
    **dict.fromkeys(_SETS, "set(got) == set(expected)"),
    **dict.fromkeys(
        _ANY_MATCH,
        "(expected if isinstance(expected, bool) else expected is not None) == "
        "(got if isinstance(got, bool) else got is not None)",
    ),
}


def load_evalplus(name: str, source: str, limit: int | None = None) -> list[Problem]:
    """The problems of a file as EvalPlus publishes it, or of a folder that holds it."""
    path = Path(source).expanduser()
    path = path / FILES[name] if path.is_dir() else path
    problems: list[Problem] = []
    try:
        for row in _rows(path):
            if len(problems) == limit:
                break
            problems.append(_problem(row, name))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read as EvalPlus' {FILES[name]}: {type(error).__name__}: {error}"
        ) from error
    return problems


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        yield from map(json.loads, lines)


def _problem(row: dict[str, Any], name: str) -> Problem:
    code = row["canonical_solution"]
    if name == "humaneval+":
        code = row["prompt"] + code
    entry = row["entry_point"]
    return Problem(
        id=row["task_id"],
        prompt=row["prompt"],
        tests=(check_text(code, entry, inputs(row), float(row["atol"])),),
        code=code,
        entry=entry,
    )


def check_text(code: str, entry: str, given: Sequence[Sequence[Any]], atol: float) -> str:
    """A `check` that compares a candidate with the reference on every input."""
    reference = f"{code}\nreference = {entry}\nINPUTS = {list(given)!r}\n"
    oracle = _ORACLES.get(entry, "same(got, expected, atol, given)")
    return (
        f"{SAME}\n{reference}\natol = {atol!r}\n\ndef check(candidate):\n    for given in INPUTS:\n"
        "        expected = reference(*copy.deepcopy(given))\n"
        "        got = candidate(*copy.deepcopy(given))\n"
        f"        assert {oracle}\n"
    )


def questions(problems: Sequence[Problem], name: str, *, chat: bool) -> list[Question]:
    """HumanEval+ is asked as HumanEval; MBPP+ as a docstring to be gone on with, or in a chat."""
    if name == "humaneval+":
        return humaneval.questions(problems, chat=chat)
    if chat:
        return [Question.chat(p, CHAT.format(prompt=p.prompt), extract_code) for p in problems]
    return [Question.raw(p, p.prompt, str, STOPS) for p in problems]


def inputs(row: dict[str, Any]) -> list[list[Any]]:
    """All inputs, with the types that JSON cannot hold."""
    given = [list(one) for one in [*row["base_input"], *row["plus_input"]]]
    example = _example(row.get("assertion") or "", row["entry_point"])
    if example is not None:
        given = [_typed(one, example) for one in given]
    if _are_complex([value for one in given for value in one if isinstance(value, str)]):
        given = [[complex(v) if isinstance(v, str) else v for v in one] for one in given]
    return given


def _example(assertion: str, entry: str) -> list[Any] | None:
    """The arguments of the row's first assert: JSON has no tuples or sets, and these show them."""
    for node in ast.walk(ast.parse(assertion)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == entry:
            try:
                return [ast.literal_eval(argument) for argument in node.args]
            except ValueError:
                return None
    return None


def _are_complex(texts: list[str]) -> bool:
    """JSON has no complex numbers, and EvalPlus writes them as texts."""
    try:
        return bool([complex(text) for text in texts]) and any("j" in text for text in texts)
    except ValueError:
        return False


def _typed(value: Any, example: Any) -> Any:
    """A value from JSON with the types of the example."""
    if isinstance(value, list) and isinstance(example, list | tuple):
        models = list(example) or [None]
        nested = next((m for m in models if isinstance(m, list | tuple | set)), example)
        items = []
        for n, item in enumerate(value):
            model = models[min(n, len(models) - 1)]
            deeper = isinstance(item, list) and not isinstance(model, list | tuple | set)
            items.append(_typed(item, nested if deeper else model))
        return tuple(items) if isinstance(example, tuple) else items
    if isinstance(value, list) and isinstance(example, set):
        return set(value)
    if isinstance(value, dict) and isinstance(example, dict) and example:
        model = next(iter(example.values()))
        return {k: _typed(v, model) for k, v in value.items()}
    return value
