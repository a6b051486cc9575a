"""Runs the commands of the documentation, small: with nano for every model, few games, and small
files by the names that the pages give. What cannot be run here is listed, each with its reason."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_bad_input import sparring
from test_docs import GUIDE, PAGES, ROOT, blocks, files

from sparring.cli.app import default_folder
from sparring.judge.sandbox import probe

sys.path.insert(0, str(Path(__file__).parent / "engines"))
from rogue import rogue_server

_PROGRAM = re.compile(
    r"([A-Z_]+=\S+ )*(\.venv/bin/)?"
    r"(sparring|make|pip|pytest|python|accelerate|ray|vllm|apt-get|cabal|export)\b [^=]"
)

# What a page's command is not run for, by how it begins.
NOT_HERE = {
    "make setup": "it makes the environment that these tests are run from",
    "make test": "it runs these tests",
    "make demo": "tests/test_makefile.py runs it",
    "sparring doctor": "it tries everything out: tests/cli/test_command_line.py asks it once",
    ".venv/bin/sparring doctor": "as above",
    "sparring view": "tests/view/test_browser.py runs it, and it serves until it is stopped",
    "make lock": "it asks the network for versions; tests/release/test_pins.py reads what it wrote",
    "make compat": "it installs other versions of transformers from the network",
    "make soak": "it takes minutes; tests/test_soak.py has a short one",
    "make system": "it installs packages of the system from the network",
    ".venv/bin/pytest": "it runs these tests",
    ".venv/bin/python benchmarks/": "benchmarks take minutes, and a quiet machine",
    "python benchmarks/judge.py --peers": "benchmarks take minutes, and a quiet machine",
    "python -m venv peers": "it installs packages from the network",
    "pip install": "it installs packages from the network",
    "apt-get install": "it installs packages from the network",
    "cabal ": "it installs packages from the network",
    "export SPARRING_LIQUID": "it sets a variable for Liquid Haskell, which is not installed",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve": "vLLM needs a GPU",
    "sparring train tictactoe-smollm2 engine.kind=vllm": "vLLM needs a GPU",
    "sparring serve": "it serves until it is stopped: tests/engines/test_serve.py asks one",
    "sparring train coherent-math": "test_phases.py trains and resumes it",
    "sparring train equivalence games.equivalence.language=haskell": "it needs Liquid Haskell; "
    "test_liquid.py and test_haskell.py run its judge where it is installed",
    "sparring finetune --policy smollm2 --data data/shown": "a stub of a server earns nothing "
    "at the table; test_finetune.py fits recorded games",
    "accelerate launch": "more processes: tests/learn/test_distributed.py runs two",
    "sparring train kuhn --processes 2": "more processes: tests/learn/test_distributed.py runs two",
    "sparring finetune --policy smollm2 --data demonstrations.jsonl": "more processes, as above",
    "ray start": "it starts a cluster: tests/engines/test_ray.py has one in its own process",
    "sparring train kuhn ray.address=HOST:6379": "it needs a cluster: tests/engines/test_ray.py",
    "sparring submit tictactoe --gpus 1 --time 04:00:00 --partition gpu": "it needs Slurm; "
    "tests/launch/test_slurm.py submits where there is one",
    "sparring submit spiral --nodes 4 --gpus 8 --launcher ray": "it needs Slurm",
}
# Put in place of what a page names: models that would be fetched, and what capitals stand for.
INSTEAD = {
    "policy=smollm2": "policy=nano",
    "policy=Qwen/Qwen2.5-1.5B": "policy=nano",
    "smollm2": "nano",
    "begin.main=scripted:2000": "begin.main=scripted:20",
    "begin.main=perfect:2000": "begin.main=perfect:20",
    "[--json]": "--json",
    "policy=runs/matching/iter_50/checkpoint": "policy=runs/matching/iter_1/checkpoint",
}
SMALL = (
    *("iterations=1", "collect.episodes=4", "evaluate.games=2", "evaluate.final=2"),
    *("evaluate.ladder=2", "tracking.tensorboard=false"),
)
ONE_STAGE = [
    "schedule={enabled: true, discriminator: 1, generator: 0, alternating: 0}",
    "games.adversarial_tests.stages=[code]",
]
# Recipes that need more than that to be small. The closing evaluation asks a policy for its move in
# every position of tic-tac-toe or Leduc poker, twice; the smoke runs of test_recipes.py have it.
OF_RECIPE = {
    "tictactoe": ["evaluate.final=0"],
    "tictactoe-smollm2": ["evaluate.final=0"],
    "spiral": ["evaluate.final=0"],
    "leduc": ["evaluate.final=0"],
    "grpo-code-tests": ["collect.group=2", "begin.main=scripted:4"],
    "equivalence": ["collect.episodes=1", "pairs.limit=2", "games.equivalence.work=20000"],
    "equivalence-bob": ["collect.episodes=1", "pairs.limit=2", "games.equivalence.work=20000"],
    "adversarial": ONE_STAGE,
    "adversarial-warm": ONE_STAGE,
    "matching-smollm2": ["games.matching={style: terse, size: 2, hard: 1, max_length: 4}"],
    "nim.yaml": ["policy=nano"],
}
# Options that make a command small, behind those it has.
OF_COMMAND = {
    "arena": ["--games", "4"],
    "tournament": ["--games", "4"],
    "eval": ["--max-tokens", "4", "--problems", "2"],
    "selfplay": ["--games", "4", "--max-tokens", "2", "max_length=4"],
    "solve": ["--max-tokens", "4"],
    "finetune": ["--epochs", "1"],
}


def commands(page: Path) -> list[str]:
    """The command lines of a page's plain blocks, without their comments."""
    lines = [line for block in blocks(page, "") for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines if _PROGRAM.match(line)]


def not_here(command: str) -> str | None:
    return next((why for start, why in NOT_HERE.items() if command.startswith(start)), None)


def small(command: str, url: str) -> list[str]:
    """The words of a command, changed as little as makes it small."""
    words = [INSTEAD.get(word, word) for word in shlex.split(command)[1:]]
    words = [word.replace("http://localhost:8000/v1", url).replace("qwen@", "m@") for word in words]
    if words[:2] == ["judge", "equivalence"]:
        return ["claims.jsonl" if word == "FILE.jsonl" else word for word in words]
    if words[:2] == ["eval", "gsm8k"] or words[:2] == ["eval", "gsm8k-platinum"]:
        words += [] if "--data" in words else ["--data", "gsm8k_test.jsonl"]
    if words[0] == "eval" and "10" in " ".join(words):
        words += ["--problems", "1"]
    if words[0] == "train":
        recipe = words[1]
        words += [] if "--smoke" in words else ["--smoke"]
        asked = [word for word in words[2:] if "=" in word]
        others = [word for word in words[2:] if "=" not in word]
        words = ["train", recipe, *others, *SMALL, *OF_RECIPE.get(recipe, []), *asked]
        words += [] if probe().ok else ["sandbox=unsafe"]
    more = OF_COMMAND.get(words[0], [])
    if words[0] == "selfplay" and "--policy" in words and "runs/matching" in words:
        more = more[:-1]  # the game's own options come with the run
    return words + more


class Trained:
    """Trainings that were done once are copied wherever a page does them again."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.done: dict[tuple[str, ...], Path] = {}

    def run(self, words: list[str]) -> tuple[int, str]:
        if "--run" in words and "--resume" not in words:  # a page may say the same run twice
            shutil.rmtree(words[words.index("--run") + 1], ignore_errors=True)
        if words[0] != "train" or "--run" in words:
            return sparring(*words, stdin="1\n2\n3\n" * 9)  # for whoever is to play
        key = tuple(words)
        name = Path(words[1]).stem
        folder = default_folder(name, False)
        if key in self.done:
            shutil.copytree(self.done[key], folder, symlinks=True)
            return 0, "as before"
        code, output = sparring(*words, "--run", folder)
        if code == 0:  # a copy, since a page may go on with the run or move it
            self.done[key] = self.kept / str(len(self.done))
            shutil.copytree(folder, self.done[key], symlinks=True)
        return code, output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def url() -> Iterator[str]:
    with rogue_server() as server:
        yield server.url


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Trained) -> Path:
    """The files that pages name, small."""
    monkeypatch.chdir(tmp_path)
    for name, text in files(GUIDE).items():
        Path(name).write_text(text)
    Path("runs/coherent-math/eval").mkdir(parents=True)
    for name, rows in FILES.items():
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def _mbpp(number: int) -> dict[str, object]:
    return {
        "task_id": number,
        "text": f"Write a function to add {number}.",
        "code": f"def f(x):\n    return x + {number}",
        "test_setup_code": "",
        "test_list": [f"assert f(0) == {number}"],
    }


def _math(number: int) -> dict[str, object]:
    return {
        "question": f"Tom has {number} apples and buys 2 more. How many has he?",
        "answer": f"{number} + 2 = {number + 2}\n#### {number + 2}",
    }


FILES: dict[str, list[dict[str, object]]] = {
    "mbpp.jsonl": [_mbpp(number) for number in (1, 2, 3, 4, 11, 12)],
    "humaneval.jsonl": [
        {
            "task_id": "HumanEval/0",
            "prompt": 'def twice(x):\n    """ Twice x. """\n',
            "entry_point": "twice",
            "canonical_solution": "    return 2 * x\n",
            "test": "def check(candidate):\n    assert candidate(4) == 8\n",
        }
    ],
    "gsm8k_test.jsonl": [_math(number) for number in range(50, 52)],
    "runs/coherent-math/eval/sft.jsonl": [{"id": "1", "correct": False}],
    "runs/coherent-math/eval/dpo.jsonl": [{"id": "1", "correct": True}],
    "shown.jsonl": [{"user_prompt": "J:", "output": "c"}],
    "FILE.jsonl": [{"id": 1, "code": "def f():\n    return 1", "tests": ["assert f() == 1"]}],
    "claims.jsonl": [
        {
            "id": 1,
            "language": "python",
            "p": "def f(x: int) -> int:\n    return x + 1\n",
            "q": "def f(x: int) -> int:\n    return x + 2\n",
            "function": "f",
            "claim": "inequivalent",
            "input": "(1,)",
        }
    ],
}


WITH_COMMANDS = [page for page in PAGES if commands(page)]
# Three files of tests, which processes may run beside each other.
GAMES = ("spiral", "openspiel", "populations", "warm-starts")
PIPELINES = ("adversarial", "code", "coherent-math", "equivalence", "matching")


def pages(*names: str) -> list[Path]:
    return [page for page in WITH_COMMANDS if page.stem in names]


def other_pages() -> list[Path]:
    return [page for page in WITH_COMMANDS if page.stem not in (*GAMES, *PIPELINES)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_page(page: Path, trained: Trained, url: str) -> None:
    for command in commands(page):
        reason = not_here(command)
        if reason:
            print(f"not run: {command}: {reason}")
            continue
        for run in ("runs/NAME", "runs/coherent-math/dpo"):
            if run in command and not Path(run).exists():
                code, output = trained.run(small("sparring train kuhn", url))
                assert code == 0, output
                shutil.move("runs/kuhn", run)
        words = small(command, url)
        code, output = trained.run(words)
        assert code == 0, f"{page.name}: {command}\nrun as: {shlex.join(words)}\n{output}"
