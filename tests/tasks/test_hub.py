"""Data sets of the hub: said within seconds that it cannot be reached, and saved to files."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparring.cli.app import app
from sparring.core.errors import ConfigError
from sparring.run.config import TasksConfig
from sparring.run.machine import unreachable
from sparring.tasks import load_tasks, source, training_tasks


@pytest.fixture
def online(monkeypatch):
    """As on a machine that has not said that it is offline."""
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def test_a_hub_that_does_not_answer_is_given_up_within_three_seconds(online):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        online.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        pytest.importorskip("datasets")
        began = time.monotonic()
        assert unreachable()
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("benchmark", ["gsm8k", "gsm8k-platinum"])
def test_the_error_names_the_option_that_takes_a_file(benchmark, online):
    pytest.importorskip("datasets")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    online.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")  # nobody listens any more
    found = CliRunner().invoke(app, ["eval", benchmark, "--policy", "nano"])
    assert isinstance(found.exception, ConfigError), found.output
    said = str(found.exception)
    assert "the hub cannot be reached" in said and "--data FILE" in said
    assert "sparring data save" in said


def test_saving_a_data_set(tmp_path: Path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = {"train": ["a?", "b?"], "test": ["c?"]}
    made = datasets.DatasetDict(
        {
            split: datasets.Dataset.from_list([{"question": q, "answer": "#### 1"} for q in qs])
            for split, qs in rows.items()
        }
    )
    asked = []

    def load(name, config):
        asked.append((name, config))
        return made

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(source, "unreachable", lambda: "")
    monkeypatch.chdir(tmp_path)
    words = ["data", "save", "openai/gsm8k:main"]
    found = CliRunner().invoke(app, [*words, "train.jsonl", "--split", "train"])
    assert found.exit_code == 0 and "2 rows in train.jsonl" in found.output
    assert asked == [("openai/gsm8k", "main")]
    assert CliRunner().invoke(app, [*words, "all.jsonl"]).exit_code == 0
    lines = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert [(x["question"], x["split"]) for x in lines] == [
        *[("a?", "train"), ("b?", "train"), ("c?", "test")]
    ]
    # What was saved is a source, and its test split stays out of training.
    assert [t.data["question"] for t in load_tasks("all.jsonl", "test")] == ["c?"]
    trained = training_tasks(TasksConfig(source="all.jsonl"), "word_problems")
    assert [t.data["question"] for t in trained] == ["a?", "b?"]
    for out, said in (
        ("all.jsonl", "there already"),
        ("all.csv", "end in .jsonl"),
        ("no/all.jsonl", "no folder"),
    ):
        again = CliRunner().invoke(app, [*words, out])
        assert isinstance(again.exception, ConfigError) and said in str(again.exception)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.jsonl", "train.jsonl"]
