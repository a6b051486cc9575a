"""Compiled layers learn what plain ones learn, at any length, and only the learner sees them."""

import gc
import weakref

import pytest
import torch

from sparring.learn import compile, head, passes
from sparring.learn.graphs import Graphs
from sparring.learn.learner import Learner
from sparring.models.loading import load_model
from sparring.models.policies import wrap_model
from sparring.run.config import LearnConfig


@pytest.fixture(autouse=True)
def compiled_anew():
    compile._forward_of.cache_clear()
    yield
    compile._forward_of.cache_clear()


def gradients(batches: list[list], config: LearnConfig) -> list[torch.Tensor]:
    """Of several steps' lessons, each of another length."""
    policies = wrap_model(*load_model("nano"), config)
    policies.add("main")
    learner = Learner(policies, ["main"], config)
    found = []
    for samples in batches:
        learner._accumulate("main", samples)
        found += [
            p.grad.clone() for p in policies.parameters("main").values() if p.grad is not None
        ]
    with policies.using("main") as model:
        assert "forward" not in vars(model.get_decoder().layers[0])
    return found


@pytest.mark.parametrize(("weights", "again"), [("lora", False), ("full", True)])
def test_the_same_gradients(make_samples, monkeypatch, weights, again):
    compiled = []
    compile_ = torch.compile

    def traced(function, backend, **words):
        compiled.append((function.__name__, backend))
        return compile_(function, backend="aot_eager", **words)  # the same graphs, without the C++

    monkeypatch.setattr(torch, "compile", traced)
    monkeypatch.setattr(
        head, "compiled", compile.compiled.__wrapped__
    )  # nothing kept between tests
    batches = [make_samples(6), make_samples(3)]
    options = {
        "weights": weights,
        "gradient_checkpointing": again,
        "tokens_per_batch": 48,
        "entropy": 0.1,
    }
    plain = gradients(batches, LearnConfig(**options))
    assert not compiled
    fused = gradients(batches, LearnConfig(**options, compile=True))
    assert {name for name, _ in compiled} == {"forward", "_scores", "_logits_gradient"}
    assert {backend for _, backend in compiled} == {compile.BACKEND}
    assert len(plain) == len(fused) > 10
    for one, other in zip(plain, fused, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_layers_are_compiled_once_for_all_shapes(monkeypatch):
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(compile, "BACKEND", count)
    model = load_model("nano")[0]
    for rows, length in ((4, 64), (6, 128), (3, 192)):
        ids_RT = torch.ones(rows, length, dtype=torch.long)
        with compile.fused(model):
            model.get_decoder()(input_ids=ids_RT, use_cache=False)
    assert len(graphs) == 1


def test_a_model_that_was_compiled_can_go(monkeypatch):
    """Once, what was kept of each layer kept the layer."""
    monkeypatch.setattr(compile, "BACKEND", lambda graph, inputs: graph.forward)
    model = load_model("nano")[0]
    with compile.fused(model), torch.no_grad():
        model.get_decoder()(input_ids=torch.ones(2, 8, dtype=torch.long), use_cache=False)
    layer = weakref.ref(model.get_decoder().layers[0])
    del model
    gc.collect()
    assert layer() is None


def test_few_tokens_are_not_compiled_where_graphs_are_captured(make_samples, monkeypatch):
    policies = wrap_model(*load_model("nano"), LearnConfig(weights="full"))
    learner = Learner(policies, ["main"], LearnConfig(weights="full", tokens_per_batch=64))
    samples = make_samples(5)
    assert not learner.worth_compiling(samples)  # on a CPU nothing is
    learner.compiles = True
    assert learner.worth_compiling(samples)
    learner.graphs["main"] = Graphs([])
    assert not learner.worth_compiling(samples)
    monkeypatch.setattr(passes, "WORTH", sum(len(s.ids) - 1 for s in samples))
    assert learner.worth_compiling(samples)
    # What is read alike is read once.
    assert not learner.worth_compiling([*samples[1:], samples[1]])
    learner.config = LearnConfig(compile=True)
    assert learner.worth_compiling(samples[:1])
