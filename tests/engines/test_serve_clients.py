"""Evaluators that nobody here wrote ask `sparring serve`: verifiers' `vf-eval` and `inspect eval`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_serve import server  # noqa: F401  (a fixture)

ENVIRONMENTS = Path(__file__).parents[1] / "bridges/verifiers_environments"
VF_EVAL = Path(sys.executable).parent / "vf-eval"
INSPECT = os.environ.get("SPARRING_INSPECT") or shutil.which("inspect")
TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes

@task
def adding():
    samples = [Sample(input=f"{i} + 2 =", target=str(i + 2)) for i in range(3)]
    return Task(dataset=samples, scorer=includes())
"""


def run(command: list[str], **env: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.skipif(not VF_EVAL.exists(), reason="verifiers, which has vf-eval, is not installed")
def test_vf_eval_asks_a_policy(server, tmp_path: Path) -> None:  # noqa: F811
    path = os.pathsep.join([str(ENVIRONMENTS), *sys.path])
    run(
        [str(VF_EVAL), "adding", "-m", "rival", "-n", "3", "--client.base-url", server[0],
         "--client.api-key-var", "ANY_KEY", "--output-dir", str(tmp_path), "--no-rich", "--no-push",
         "--sampling.max-tokens", "8"],
        PYTHONPATH=path, ANY_KEY="any",
    )  # fmt: skip
    (file,) = tmp_path.glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    replies = [t["nodes"][-1]["message"]["content"] for e in episodes for t in e["traces"]]
    assert len(replies) == 3 and all(isinstance(reply, str) for reply in replies)


@pytest.mark.skipif(not INSPECT, reason="inspect is not installed; SPARRING_INSPECT may name it")
def test_inspect_evaluates_a_policy(server, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "adding.py").write_text(TASK)
    run(
        [str(INSPECT), "eval", str(tmp_path / "adding.py"), "--model", "openai-api/sparring/rival",
         "--max-tokens", "8", "--log-format", "json", "--log-dir", str(tmp_path / "logs"),
         "--display", "none"],
        SPARRING_BASE_URL=server[0], SPARRING_API_KEY="any", PYTHONPATH="",
    )  # fmt: skip
    (file,) = (tmp_path / "logs").glob("*.json")
    log = json.loads(file.read_text())
    assert log["status"] == "success" and len(log["samples"]) == 3
    assert all(sample["output"]["usage"]["output_tokens"] > 0 for sample in log["samples"])
