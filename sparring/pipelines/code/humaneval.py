"""HumanEval: a function to be gone on with, as published, or to be written in a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sparring.core.errors import ConfigError
from sparring.pipelines.code.attempts import Question, need_tests
from sparring.tasks import load_tasks
from sparring.tasks.code import Problem, extract_code, problem_of

# A function's body ends where something begins in the first column.
STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@", "\n```")
CHAT = (
    "Complete this Python function. Answer with the whole function, imports included, in one "
    "```python block.\n\n```python\n{prompt}```"
)


def load_humaneval(source: str, limit: int | None = None) -> list[Problem]:
    folder = Path(source).expanduser() / "humaneval.jsonl"
    tasks = load_tasks(str(folder) if folder.is_file() else source, "test", limit)
    for task in tasks:
        missing = {"prompt", "canonical_solution", "test", "entry_point"} - set(task.data)
        if missing:
            raise ConfigError(
                f"problem {task.id} of {source} is not one of HumanEval's: it has no "
                f"{', '.join(sorted(missing))}"
            )
    problems = [problem_of(task) for task in tasks]
    need_tests(problems, source)
    return problems


def questions(problems: Sequence[Problem], *, chat: bool) -> list[Question]:
    if chat:
        return [Question.chat(p, CHAT.format(prompt=p.prompt), _whole(p)) for p in problems]
    return [Question.raw(p, p.prompt, _continued(p), STOPS) for p in problems]


def _continued(problem: Problem) -> Callable[[str], str]:
    return lambda text: problem.prompt + text


def _whole(problem: Problem) -> Callable[[str], str]:
    """What the prompt imports and helps with stays there, whether or not the reply repeats it; a
    reply that does not define the function is taken for its body."""

    def program(text: str) -> str:
        code = extract_code(text)
        header, marker = problem.prompt, f"def {problem.entry}("
        if marker in code:
            return header[: header.rfind(marker)] + "\n" + code
        return header + code

    return program
