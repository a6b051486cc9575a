"""On a CPU whoever computes does so on one thread, and afterwards all is as it was."""

import threading

import pytest
import torch

from sparring.engines.transformers import TransformersEngine
from sparring.learn.learner import Learner
from sparring.learn.workbench import bench, workbench
from sparring.run.config import load_recipe
from sparring.train import train


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

    spied(TransformersEngine, "_fitted")
    spied(Learner, "fit")
    train(load_recipe("kuhn", ["iterations=1", "collect.episodes=8"], smoke=True), tmp_path / "run")
    assert {name for name, _ in seen} == {"_fitted", "fit"}
    assert {thread for _, thread in seen} == {"bench_0"}
