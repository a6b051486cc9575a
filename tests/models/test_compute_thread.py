"""On a CPU whoever computes does so on one thread, and afterwards all is as it was."""

import json
import shutil
import threading

import pytest
import torch

from sparring.engines.local.engine import TransformersEngine
from sparring.learn.learner import Learner
from sparring.models.compute_thread import bench, threads, use_threads, workbench
from sparring.run.config import load_recipe
from sparring.training.loop import train


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_pool_is_the_benchs(two_threads):
    with workbench("cpu"):
        assert torch.get_num_threads() == 1
        assert bench().submit(torch.get_num_threads).result() == 2
        with workbench("cpu"):
            assert torch.get_num_threads() == 1
        assert bench().submit(torch.get_num_threads).result() == 2, "the inner one closed it"
    assert bench() is None and torch.get_num_threads() == 2


def test_it_is_put_away_after_an_error_too(two_threads):
    with pytest.raises(ZeroDivisionError), workbench("cpu"):
        raise ZeroDivisionError
    assert bench() is None and torch.get_num_threads() == 2


def test_a_gpu_needs_none(two_threads):
    with workbench("cuda"):
        assert bench() is None and torch.get_num_threads() == 2


def test_a_run_speaks_and_learns_on_one_thread(tmp_path, monkeypatch):
    seen = set()

    def spied(owner, name):
        real = getattr(owner, name)

        def told(self, *given, **words):
            seen.add((name, threading.current_thread().name))
            return real(self, *given, **words)

        monkeypatch.setattr(owner, name, told)

    spied(TransformersEngine, "_round")
    spied(Learner, "fit")
    train(load_recipe("kuhn", ["iterations=1", "collect.episodes=8"], smoke=True), tmp_path / "run")
    assert {name for name, _ in seen} == {"_round", "fit"}
    assert {thread for _, thread in seen} == {"bench_0"}


def test_a_resumed_run_computes_with_as_many_threads_as_before(two_threads):
    with workbench("cpu"):
        assert threads() == 2
        use_threads(3)
        assert threads() == 3
        assert bench().submit(torch.get_num_threads).result() == 3
    assert torch.get_num_threads() == 2


def test_threads_are_in_the_checkpoint(tmp_path, two_threads):
    config = load_recipe("kuhn", ["iterations=2", "collect.episodes=8"], smoke=True)
    train(config, tmp_path / "run")
    states = [json.loads(p.read_text()) for p in tmp_path.glob("run/checkpoints/step_*/state.json")]
    assert states and {state["threads"] for state in states} == {2}
    shutil.rmtree(tmp_path / "run/checkpoints/step_000002")
    torch.set_num_threads(1)
    train(config, tmp_path / "run", resume=True)
    again = json.loads((tmp_path / "run/checkpoints/step_000002/state.json").read_text())
    assert again["threads"] == 2
    assert torch.get_num_threads() == 1
