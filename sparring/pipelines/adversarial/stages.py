"""The stages in which a generator reasons its way to a program. They are data: one more stage is
one more entry, here or in a recipe, and prompts, schedule and checkpoints follow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.core.errors import nearest
from sparring.pipelines.adversarial.problems import parameters
from sparring.tasks.code import Problem, formatted


@dataclass(frozen=True, slots=True)
class Stage:
    """`sees` names the earlier stages whose replies are in the prompt; None: all. The last
    stage's reply is the program."""

    name: str
    instruction: str
    sees: tuple[str, ...] | None = None


STAGES = (
    Stage(
        "informal",
        "In a few plain sentences, say what the problem asks for and how you would go about it. "
        "Write no code.",
    ),
    Stage(
        "structured",
        "Break the solution into numbered steps, then list the edge cases that it must get right. "
        "Write no code.",
    ),
    Stage("pseudocode", "Write the algorithm as pseudocode. Write no Python."),
    Stage(
        "constraints",
        "State the constraints on the input, the invariants that the algorithm keeps, and its "
        "complexity in time and space.",
        sees=("structured", "pseudocode"),
    ),
    Stage(
        "code",
        "Write the function in Python. Answer only with the whole function in one ```python block.",
    ),
)


# Python's words and signs, and those of pseudocode.
_PSEUDOCODE = ((r"\bdef\b", "function"), (r"\breturn\b", "result"), (r" = ", " := "), (r":$", ""))


def reference_reply(stage: str, problem: Problem) -> str:
    """What a generator may say in a stage before the program, read off the problem and its
    reference, for policies to imitate; nothing for stages that are not among ours."""
    names = ", ".join(parameters(problem.signature)) or "nothing"
    pseudocode = formatted(problem.code)
    for sign, word in _PSEUDOCODE:
        pseudocode = re.sub(sign, word, pseudocode, flags=re.MULTILINE)
    return {
        "informal": problem.prompt,
        "structured": f"1. Take {names}.\n2. Work out the result.\n3. Return it.",
        "pseudocode": pseudocode,
        "constraints": f"The input is {names}, of the kinds that the example has.",
    }.get(stage, "")


def make_stages(entries: Sequence[Any] | None) -> tuple[Stage, ...]:
    """The stages a config asks for: names of those above, or new ones as {name, instruction,
    sees}."""
    if entries is None:
        return STAGES
    known = {stage.name: stage for stage in STAGES}
    stages: list[Stage] = []
    for entry in entries:
        stage = _stage(entry, known)
        earlier = [s.name for s in stages]
        if stage.name in earlier:
            raise ValueError(f"there are two stages {stage.name!r}")
        for name in stage.sees or ():
            # Ours may lack some of theirs: a recipe may leave a stage out.
            if stage is not known.get(stage.name) and name not in earlier:
                raise ValueError(
                    f"stage {stage.name!r} sees {name!r}, which is no stage before it; "
                    f"{nearest(name, earlier)}"
                )
        stages.append(stage)
    if not stages:
        raise ValueError("a generator needs at least one stage, which writes the program")
    return tuple(stages)


def _stage(entry: Any, known: Mapping[str, Stage]) -> Stage:
    if isinstance(entry, str):
        if entry not in known:
            raise ValueError(f"there is no stage {entry!r}; {nearest(entry, known)}")
        return known[entry]
    if isinstance(entry, Stage):
        return entry
    if not isinstance(entry, Mapping) or not {"name", "instruction"} <= set(entry):
        raise ValueError(f"a stage is a name or {{name, instruction, sees}}, and not {entry!r}")
    for key in entry:
        if key not in ("name", "instruction", "sees"):
            raise ValueError(
                f"stage {entry['name']!r} has no {key!r}; "
                f"{nearest(str(key), ('name', 'instruction', 'sees'))}"
            )
    sees = entry.get("sees")
    return Stage(
        str(entry["name"]), str(entry["instruction"]), None if sees is None else tuple(sees)
    )


def visible(stage: Stage, replies: Mapping[str, str]) -> dict[str, str]:
    """The earlier replies that a stage sees."""
    return {
        name: text for name, text in replies.items() if stage.sees is None or name in stage.sees
    }
