"""Fixtures that many tests share: nano policies, fresh for each test, and samples for them."""

import asyncio
import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may wait for a network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tests run beside each other: two threads that wait for each other on a busy core take six times as
# long as one. Tests about several threads ask for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # the package sets it after torch
# Or its table of all characters is made anew in every folder that a test works in.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parent.parent / ".hypothesis")
)

import pytest
import torch
import typer.testing
from workers import pytest_addoption, pytest_runtestloop  # noqa: F401

from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Request, Sample, Task, Turn

# Files of tests that take longest, in that order: begun first, none of them is left over at the end
# for one process while the others have nothing to do. (`--durations=0` says what each takes.)
LONGEST = (
    *("launch/test_slurm", "pipelines/adversarial/test_adversarial_recipe"),
    *("training/test_overlap", "engines/test_ray", "view/test_browser"),
    *("pipelines/equivalence/test_equivalence_recipes", "pipelines/coherent_math/test_phases"),
    *("test_recipes", "pipelines/equivalence/test_liquid", "test_docs_commands_pipelines"),
    *("pipelines/equivalence/test_search", "pipelines/equivalence/test_equivalence_python"),
    *("learn/test_distributed", "judge/test_corpus", "training/test_resume"),
    *("pipelines/equivalence/test_haskell", "plugins/test_without_a_pipeline"),
    *("pipelines/code/test_code_recipes", "engines/local/test_engine", "test_option_properties"),
    *("training/test_loop", "cli/test_command_line", "test_docs_commands_games"),
    *("judge/test_judge", "pipelines/equivalence/test_haskell_jail", "learn/test_compile"),
    *("test_notebooks", "run/test_interrupt", "learn/test_same_digits"),
    *("pipelines/equivalence/test_equivalence_alice", "training/test_imitation"),
    *("pipelines/equivalence/test_liquid_tool", "bridges/test_openspiel"),
    *("pipelines/equivalence/test_rewrites_python", "pipelines/matching/test_rounds"),
    *("bridges/test_verifiers", "release/test_wheel"),
    *("pipelines/adversarial/test_adversarial_full", "engines/local/test_runner"),
    *("pipelines/equivalence/test_rewrites_haskell", "models/test_begin"),
    *("pipelines/code/test_code_games", "training/test_finish", "learn/test_learner"),
)


# All commands are built anew for each call of one: 33 ms of processor time, some 700 times.
typer.testing._get_command = cache(typer.testing._get_command)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    rank = {folder / f"{name}.py": at for at, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in rank), [path for path in rank if not path.is_file()]
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that started helpers leaves a launcher's variables behind in this process."""
    for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(key, raising=False)


@pytest.fixture
def make_policies() -> Callable[..., Any]:
    """make_policies("full" | "lora", names=…): nano with these policies on it, each one moved
    a little away from the base, so that mixing them up shows."""

    def make(kind: str, names: tuple[str, ...] = ("main",), spread: float = 0.05) -> Any:
        from sparring.models.loading import load_model
        from sparring.models.policies import FullPolicies, LoraPolicies

        model, tokenizer = load_model("nano")
        policies = (
            FullPolicies(model, tokenizer)
            if kind == "full"
            else LoraPolicies(model, tokenizer, r=4, alpha=8)
        )
        generator = torch.Generator().manual_seed(1)
        for name in names:
            policies.add(name)
            with torch.no_grad():
                for parameter in policies.parameters(name).values():
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.add_(spread * noise)
        return policies

    return make


@pytest.fixture(params=["full", "lora"])
def policies(request: pytest.FixtureRequest, make_policies: Callable[..., Any]) -> Any:
    """Both kinds of policies, with one called main."""
    return make_policies(request.param)


@pytest.fixture
def make_samples() -> Callable[..., list[Sample]]:
    """make_samples(n): sequences of unlike lengths, each a prompt and a reply of random tokens."""

    def make(
        n: int = 6, seed: int = 0, policy: str = "main", temperature: float = 1.0
    ) -> list[Sample]:
        rng = random.Random(seed)
        found = []
        for i in range(n):
            prompt, reply = 3 + rng.randrange(5), 1 + rng.randrange(6)
            advantage = rng.choice([-1.0, 0.5, 2.0]) + i / 10
            found.append(
                Sample(
                    policy=policy,
                    ids=[rng.randrange(5, 261) for _ in range(prompt + reply)],
                    mask=[0] * prompt + [1] * reply,
                    advantages=[0.0] * prompt + [advantage] * reply,
                    logprobs=[0.0] * prompt + [rng.uniform(-7, -4) for _ in range(reply)],
                    temperature=temperature,
                )
            )
        return found

    return make


Voice = Callable[[Request], str]


@pytest.fixture
def play():
    """play(game, {seat: voice}, task=, seed=) -> (outcome, requests); a list is a voice too."""

    def run(
        game: Game, voices: dict[str, Voice | list[str]], task: Task | None = None, seed: int = 0
    ) -> tuple[Outcome, list[Request]]:
        scripts = {seat: iter(v) for seat, v in voices.items() if isinstance(v, list)}
        asked: list[Request] = []

        async def speak(request: Request) -> Turn:
            asked.append(request)
            voice = voices[request.seat]
            text = next(scripts[request.seat]) if isinstance(voice, list) else voice(request)
            return Turn(request.seat, request.policy, request.messages[-1]["content"], text)

        table = Table(game.seats, {seat: "test" for seat in game.seats}, speak, seed=seed)
        return asyncio.run(game.play(task or game.task(seed), table)), asked

    return run
