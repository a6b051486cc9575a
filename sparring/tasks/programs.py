"""Programs to be rewritten, whichever set they are from, and which of their functions is meant."""

from __future__ import annotations

from sparring.judge.signature import BadSignature
from sparring.run.config import ConfigError
from sparring.types import Task

_CODE = ("code", "p", "program", "canonical_solution")
_FUNCTION = ("function", "entry_point", "entry")


def code_of(task: Task) -> str:
    """The program of a task, under whichever name its set keeps it."""
    code = next((task.data[key] for key in _CODE if isinstance(task.data.get(key), str)), None)
    if code is None:
        raise ConfigError(
            f"task {task.id} has no program: a text was expected under {', '.join(_CODE)}"
        )
    return code.replace("\r\n", "\n")


def function_of(task: Task, code: str, language: str) -> str:
    """The function to judge: as the task says, or the only one there is."""
    named = next((task.data[k] for k in _FUNCTION if isinstance(task.data.get(k), str)), None)
    if named:
        return named
    if language == "haskell":
        from sparring.judge.haskell import sole_function
        from sparring.judge.haskell_source import Refused

        try:
            return sole_function(code)
        except Refused as error:
            raise BadSignature(str(error)) from error
    from sparring.judge.purity import parse
    from sparring.judge.signature import only_function

    tree = parse(code)
    if isinstance(tree, str):
        raise BadSignature(tree)
    return only_function(tree)
