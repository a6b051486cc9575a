"""`sparring serve` asked by evaluations that nobody here wrote: `vf-eval` of verifiers and `inspect
eval` of inspect-ai, each where its command is on the PATH, from an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_serve import server as server

pytestmark = pytest.mark.skipif(
    "SPARRING_FULL" not in os.environ, reason="starts other packages' commands: SPARRING_FULL=1"
)
ENVIRONMENTS = Path(__file__).parents[1] / "bridges" / "verifiers_environments"
TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message

@task
def sums():
    dataset = [Sample(input=f"What is {i} + {i}?", target=str(2 * i)) for i in range(3)]
    return Task(dataset=dataset, solver=[system_message("Add."), generate()], scorer=includes())
"""


def command(name: str, package: str) -> str:
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}{beside}")
    if found is None:
        pytest.skip(f"there is no {name}: pip install {package} in an environment of its own")
    return found


def run(words: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **environment}, timeout=300, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]


def test_vf_eval(server, tmp_path) -> None:
    words = [command("vf-eval", "verifiers"), "adding", "-m", "main", "-n", "2", "-r", "2"]
    words += ["--client.base-url", server[0], "--client.api-key-var", "NO_KEY"]
    words += ["--sampling.max-tokens", "8", "--env.agent.harness.id", "null"]
    words += ["--env.agent.runtime.type", "subprocess", "--no-push", "--no-rich"]
    run(words, tmp_path, NO_KEY="none", PYTHONPATH=str(ENVIRONMENTS))
    [file] = tmp_path.glob("outputs/*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(episodes) == 4 and all(episode["ok"] for episode in episodes)
    assert all("right" in trace["rewards"] for e in episodes for trace in e["traces"])


def test_inspect_eval(server, tmp_path) -> None:
    inspect = command("inspect", "inspect-ai openai")
    (tmp_path / "sums.py").write_text(TASK)
    words = [inspect, "eval", "sums.py", "--model", "openai-api/sparring/main", "--display", "none"]
    words += ["--max-tokens", "12", "--seed", "1", "--temperature", "0.7", "--logprobs"]
    words += ["--log-format", "json", "--log-dir", "logs"]
    url = {"SPARRING_BASE_URL": server[0], "SPARRING_API_KEY": "none"}
    run(words, tmp_path, **url, PYTHONPATH="")
    [file] = tmp_path.glob("logs/*.json")
    record = json.loads(file.read_text())
    assert record["status"] == "success" and len(record["samples"]) == 3
    for sample in record["samples"]:
        [choice] = sample["output"]["choices"]
        tokens = sample["output"]["usage"]["output_tokens"]
        assert 0 < tokens <= 12 and len(choice["logprobs"]["content"]) == tokens
