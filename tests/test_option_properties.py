"""Any options at all, valid, out of range, of another type or misspelt, behind any command and any
recipe: it works, or it ends with exit code 2 and leaves nothing behind. Every command is done for
real with nano. Of a recipe, many draws stop right before the first game, when all that it needs is
there, and two are trained at a tiny size."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_bad_input import SMALL, sparring

from sparring.cli.app import app
from sparring.run.config import Config, load_recipe
from sparring.run.games import game_class, option_types
from sparring.run.recipes import recipe_names
from sparring.run.rundir import RunDir
from sparring.run.sections import Section

VALUES = (
    *("-1", "0", "1", "2", "7", "0.5", "1e-3", ".nan", ".inf", "nan", "inf", "abc", "true", "null"),
    *("[]", "{}", "[1, 2]", "'3'", "2026-99-99", "{", "", " ", "ß", "-", "a/b", "shipped"),
)
FULL = (
    os.environ.get("SPARRING_FULL") == "1"
)  # draws more, and trains drawn options of every recipe
QUICK = settings(
    max_examples=12 if FULL else 5,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Begun(BaseException):
    """A training would play its first game now: all that it was asked for could be had."""


# What comes first after a run's folder was made, of the loop and of the phases of mathematics.
FIRST_WORK = (
    "sparring.training.loop.imitate",
    "sparring.training.loop._record_first",
    "sparring.pipelines.coherent_math.phases.evaluation",
)


def keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a config. Ray's and servers' start what is not of this process."""
    for name, field in section.model_fields.items():
        inside = field.annotation
        if isinstance(inside, type) and issubclass(inside, Section):
            yield from keys(inside, f"{prefix}{name}.")
        elif f"{prefix}{name}" not in ("ray.replicas", "ray.address", "servers"):
            yield f"{prefix}{name}"


def option_keys(recipe: str) -> list[str]:
    games = load_recipe(recipe).games
    own = [f"games.{game}.{option}" for game in games for option in option_types(game_class(game))]
    return [*keys(Config), *own, *(f"games.{game}.weight" for game in games)]


def misspelt(word: str) -> st.SearchStrategy[str]:
    last = len(word) - 1
    return st.integers(0, last).map(lambda i: word[:i] + word[i + 1 :])


@contextmanager
def empty_folder() -> Iterator[Path]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def held(words: list[str], folder: Path) -> int:
    """Run it: success, or exit code 2 with everything as it was."""
    before = tree(folder)
    try:
        code, output = sparring(*words, stdin=TYPED)
    except Begun:
        code, output = 0, ""
    assert code in (0, 2), f"{words}: exit {code}\n{output}"
    if code == 2:
        assert output.strip(), f"{words}: refused without a word"
        assert tree(folder) == before, f"{words}: refused, and left something behind"
    return code


@pytest.mark.parametrize("recipe", recipe_names())
def test_any_overrides_of_a_recipe(recipe: str) -> None:
    known = option_keys(recipe)
    key = st.one_of(st.sampled_from(known), st.sampled_from(known).flatmap(misspelt))
    override = st.builds("{}={}".format, key, st.sampled_from(VALUES))

    @QUICK
    @given(st.lists(override, min_size=1, max_size=2))
    def check(overrides: list[str]) -> None:
        with empty_folder() as folder:
            held(["train", recipe, "--smoke", *overrides], folder)

    with ExitStack() as stack:
        for name in FIRST_WORK:
            stack.enter_context(mock.patch(name, side_effect=Begun))
        with empty_folder(), pytest.raises(Begun):  # as it stands it gets that far
            sparring("train", recipe, "--smoke")
        check()


TINY = (
    *SMALL, "policy=nano", "iterations=1", "collect.group=2", "sampling.max_tokens=4",
    "evaluate.every=99", "engine.max_batch=8",
)  # fmt: skip
# Values that some run can have: others are refused, which is drawn for above.
USABLE = {
    "learn.lr": ("1e-3", "1"), "learn.epochs": ("1", "2"), "learn.minibatches": ("1", "3"),
    "learn.weights": ("full", "lora"), "learn.clip_high": ("0", "0.5"), "seed": ("0", "7"),
    "learn.aggregation": ("grpo", "bnpo", "dr_grpo", "dapo"), "learn.kl": ("0", "0.1"),
    "learn.packing": ("true", "false"), "collect.concurrency": ("1", "7"),
    "credit.kind": ("role_baseline", "group_relative", "leave_one_out", "prompt_baseline", "gae"),
    "opponents.kind": ("self", "league"), "guard.enabled": ("true", "false"),
}  # fmt: skip


# The phases of coherent-math are drawn for one by one, as commands.
TRAINED = [n for n in recipe_names() if n != "coherent-math"] if FULL else ["kuhn", "matching"]


@pytest.mark.parametrize("recipe", TRAINED)
def test_drawn_trainings_run(recipe: str) -> None:
    """The whole of it, and success is more than being let in."""
    key = st.sampled_from(sorted(USABLE)).flatmap(
        lambda key: st.sampled_from(USABLE[key]).map(f"{key}={{}}".format)
    )
    codes = []

    @settings(QUICK, max_examples=2)
    @given(st.lists(key, min_size=1, max_size=2))
    def check(overrides: list[str]) -> None:
        with empty_folder() as folder:
            codes.append(held(["train", recipe, "--smoke", *TINY, *overrides], folder))

    check()
    assert 0 in codes, f"{recipe}: every drawn training was refused"


NANO = ("--policy", "nano", "--out", "out", "--smoke")
# What each command needs at least, on the files of `folder`; options are drawn behind it.
BASES: dict[tuple[str, ...], list[str]] = {
    ("train",): ["kuhn", "--smoke", "--run", "run"],
    ("play",): ["kuhn", "--policy", "nano"],
    ("arena",): ["nano", "--against", "random", "--game", "kuhn", "--games", "2"],
    ("report",): ["RUN"],
    ("recipes",): [],
    ("games",): [],
    ("init",): ["mine"],
    ("exploit",): ["nano", "--game", "kuhn", "--replies", "2"],
    ("tournament",): ["random", "perfect", "--game", "kuhn", "--games", "2"],
    ("export", "verifiers"): ["kuhn", "--out", "out"],
    ("submit",): ["kuhn", "--dry-run"],
    ("eval",): ["gsm8k", "--policy", "nano", "--data", "math.jsonl", "--max-tokens", "2"],
    ("compare",): ["a.jsonl", "b.jsonl"],
    ("finetune",): ["--model", "nano", "--data", "shown.jsonl", "--out", "out", "--epochs", "1"],
    ("selfplay",): ["kuhn", "--policy", "random", "--games", "2", "--out", "out"],
    ("merge",): ["--policy", "RUN", "--out", "out"],
    ("solve",): ["--checkpoint", "nano", "--problem", "add", "--max-tokens", "1"],
    ("data", "save"): ["math.jsonl", "out.jsonl"],
    ("convert", "mbpp"): ["mbpp.jsonl", "out.json"],
    ("judge", "python"): ["programs.jsonl"],
    ("judge", "equivalence"): ["claims.jsonl", "--inputs", "2", "--crosshair-paths", "0"],
    ("export", "verl"): ["RUN", "--out", "out"],
    ("export", "games"): [],
    ("math", "sft"): ["--out", "out", "--smoke", "tasks.source=math.jsonl"],
    ("math", "rollouts"): [*NANO, "tasks.source=math.jsonl"],
    ("math", "preferences"): ["--rollouts", "rollouts.jsonl", "--out", "out", "--smoke"],
    ("math", "dpo"): ["--model", "nano", "--preferences", "pairs.jsonl", "--out", "out", "--smoke"],
    ("math", "eval"): [*NANO, "math.gsm8k.data=apart.jsonl"],
}
TYPED = "p\nb\npass\nbet\ncheck\nfold\ncall\n" * 4  # at the keyboard, by whoever is asked
# Refused as it stands, for want of a file that takes minutes to make.
REFUSED = {("math", "preferences")}
DEAR = {("math", "rollouts"): 3, ("math", "sft"): 2, ("math", "dpo"): 3}  # draws of these
SLOW = {
    ("doctor",): "it multiplies in every dtype, and its one option is a flag",
    ("serve",): "it serves until it is stopped",
    ("view",): "it serves until it is stopped",
}
FILES = {
    "math.jsonl": {"question": "What is 1 + 1?", "answer": "#### 2"},
    "shown.jsonl": {"system_prompt": "", "user_prompt": "a", "output": "b"},
    "programs.jsonl": {"id": 1, "code": "x = 1", "tests": ["assert x == 1"]},
    "mbpp.jsonl": {"task_id": 601, "text": "t", "code": "def f(): return 1", "test_list": []},
    "claims.jsonl": {
        "id": 1,
        "p": "def f(x: int) -> int:\n    return x\n",
        "q": "def f(x: int) -> int:\n    return x + 1\n",
        "function": "f",
        "claim": "inequivalent",
        "input": "(1,)",
    },
    "a.jsonl": {"id": "1", "correct": True},
    "b.jsonl": {"id": "1", "correct": False},
    "apart.jsonl": {"question": "What is 2 + 2?", "answer": "#### 4"},
    "pairs.jsonl": {"question": "1 + 1?", "chosen": "It is 2.", "rejected": "It is 3."},
}


def all_commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
    command = command or typer.main.get_command(app)
    for name, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(all_commands())


def test_every_command_is_drawn_for() -> None:
    assert set(COMMANDS) == set(BASES) | set(SLOW)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of one iteration, for commands that need one: what passes the boundary, runs."""
    path = tmp_path_factory.mktemp("trained") / "run"
    code, output = sparring("train", "kuhn", "--smoke", "--run", path, *SMALL)
    assert code == 0, output
    return path


def _begun_only(path: tuple[str, ...]) -> Any:
    """A drawn `train` stops where its folder would be made: others of it are trained above."""
    if path != ("train",):
        return nullcontext()
    return mock.patch.object(RunDir, "open", side_effect=Begun)


@contextmanager
def files(path: tuple[str, ...], run: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder with the files that commands read, and the words of a command that works."""
    with empty_folder() as folder, _begun_only(path):
        for name, row in FILES.items():
            (folder / name).write_text(json.dumps(row) + "\n")
        yield folder, [*path, *(str(run) if word == "RUN" else word for word in BASES[path])]


@pytest.mark.parametrize("path", list(BASES), ids=" ".join)
def test_any_options_of_a_command(path: tuple[str, ...], run: Path) -> None:
    params = [p for p in COMMANDS[path].params if p.opts[0].startswith("--")]
    flags = {p.opts[0] for p in params if getattr(p, "is_flag", False)}
    names = sorted({p.opts[0] for p in params} - {"--processes", "--smoke"}) or ["--json"]
    wrong = st.sampled_from(names).flatmap(lambda name: misspelt(name[2:]).map("--{}".format))

    def typed_as(name: str, value: str) -> list[str]:
        return [name] if name in flags else [name, value]

    option = st.builds(typed_as, st.one_of(st.sampled_from(names), wrong), st.sampled_from(VALUES))
    argument = st.sampled_from(["", "abc", "a=b", "x=1", "--"]).map(lambda word: [word])

    @settings(QUICK, max_examples=DEAR.get(path, QUICK.max_examples))
    @given(st.lists(option, min_size=1, max_size=2), st.lists(argument, max_size=1))
    def check(drawn: list[list[str]], more: list[list[str]]) -> None:
        typed = [word for group in (*drawn, *more) for word in group]
        with files(path, run) as (folder, words):
            held([*words, *typed], folder)

    check()


@pytest.mark.parametrize("path", sorted(set(BASES) - REFUSED), ids=" ".join)
def test_what_options_are_drawn_behind_works(path: tuple[str, ...], run: Path) -> None:
    """All that is drawn would otherwise be refused for another reason."""
    with files(path, run) as (_, words):
        try:
            code, output = sparring(*words, stdin=TYPED)
        except Begun:
            return
        assert code == 0, output
