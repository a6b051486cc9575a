"""The public API: its examples run, it costs nothing to import, and a run is trained, read and
continued from a script or a notebook."""

from __future__ import annotations

import asyncio
import doctest
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparring
from sparring import api
from sparring.core import plugin
from sparring.run import games


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api") / "run"


def test_every_example_runs(folder: Path) -> None:
    given: dict[str, Any] = {**vars(api), "folder": folder}
    order = doctest.DocTestFinder()
    examples = [t for m in (api, plugin, games, sparring) for t in order.find(m, m.__name__)]
    examples = [t for t in examples if t.examples]
    examples.sort(key=lambda t: t.name != "sparring.api.train")  # the run that others read
    runner = doctest.DocTestRunner()
    for example in examples:
        example.globs |= given
        assert runner.run(example).failed == 0, example.name
    assert runner.tries >= 9


def test_everything_public_is_there_and_documented() -> None:
    for name in sparring.__all__:
        assert getattr(sparring, name).__doc__, name
    with pytest.raises(AttributeError, match="tarin"):
        sparring.tarin  # noqa: B018


@pytest.mark.parametrize(
    ("load", "own", "policy"), [(0.1, "", None), (9.0, "", "PASSIVE"), (9.0, "ACTIVE", "ACTIVE")]
)
def test_threads_do_not_spin_where_others_want_the_cores(
    load: float, own: str, policy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "environ", {"OMP_WAIT_POLICY": own} if own else {})
    runpy.run_path(str(sparring.__file__))
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_importing_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, time; t = time.process_time(); import sparring\n"
        "spent = time.process_time() - t\n"
        "assert not {'torch', 'transformers', 'pydantic', 'numpy'} & set(sys.modules)\n"
        "assert spent < 0.1, spent"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_is_trained_in_a_notebook_and_continued(tmp_path: Path) -> None:
    seen: list[int] = []

    async def cell() -> sparring.Run:  # a notebook's code runs inside a loop
        return sparring.train(
            "kuhn", smoke=True, run=tmp_path / "run", iterations=1, evaluate__ladder=0,
            learn__schedule="constant", learn__entropy=0.0, learn__entropy_end=None,
            on_iteration=lambda metrics: seen.append(metrics["iteration"]),
        )  # fmt: skip

    run = asyncio.run(cell())
    assert seen == [1] and (run.path / "report.html").is_file()
    more = run.resume(iterations=2, on_iteration=lambda m: seen.append(m["iteration"]))
    assert seen == [1, 2] and more.iterations() == [1, 2]
    assert list(more.metrics().index)[-1] == 2 and "evaluation" in dir(more)
    assert {e.game for e in more.episodes(2)} == {"kuhn"}
    assert more.policy("last").reply("J", max_tokens=1).token_ids


def test_a_policy_plays_as_it_was_trained_to(tmp_path: Path) -> None:
    run = tmp_path / "run"
    quick = {"iterations": 1, "evaluate__ladder": 0, "collect__episodes": 16}
    sparring.train("kuhn", smoke=True, run=run, **quick)  # terse, legal actions alone
    for seed in range(4):
        game = sparring.play("kuhn", str(run), seed=seed)
        assert game.facts["end"] != "invalid"
        assert {turn.text for turn in game.turns} <= {"p", "b"}
    words = sparring.play("kuhn", {"first": str(run), "second": "random"}, style="short")
    assert "Kuhn" in words.turns[0].prompt  # what is asked for goes first


def test_a_seat_that_nobody_takes_is_named() -> None:
    with pytest.raises(sparring.ConfigError, match="nobody sits in the seat 'second'"):
        sparring.play("kuhn", {"first": "random"})
    with pytest.raises(sparring.ConfigError, match="no seat 'secnd'; did you mean 'second'"):
        sparring.play("kuhn", {"first": "random", "secnd": "random"})


def test_a_recipe_with_a_trainer_of_its_own_is_trained_by_it(tmp_path: Path) -> None:
    source = tmp_path / "trainer.py"
    source.write_text(
        "from sparring.run.config import dump\n"
        "def train(config, folder, *, resume, say):\n"
        "    folder.mkdir()\n"
        "    (folder / 'config.yaml').write_text(dump(config))\n"
        "    (folder / 'made').write_text(f'{resume}')\n"
    )
    run = sparring.train("kuhn", run=tmp_path / "run", pipeline=f"{source}:train")
    assert (run.path / "made").read_text() == "False"
    assert (run.path / "report.html").is_file() and run.iterations() == []


def test_paths_are_values_of_a_config(tmp_path: Path) -> None:
    config = sparring.load_config("kuhn", begin__main=tmp_path / "old run")
    assert config.begin == {"main": str(tmp_path / "old run")}
