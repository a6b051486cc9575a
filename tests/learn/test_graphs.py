"""Captured passes, with a capture that runs the work again where a GPU would replay it: buffers,
padding, gradients and what makes graphs stale are the same. A GPU tries its own capture."""

from collections import Counter
from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from sparring.learn import graphs
from sparring.learn import learner as learner_module
from sparring.learn.graphs import Graphs, bucketed, captures, padded
from sparring.learn.learner import Learner
from sparring.learn.optimizer import _flat_gradients
from sparring.learn.packing import read_embeds
from sparring.models.loading import load_model, nano_tokenizer
from sparring.models.policies import wrap_model
from sparring.run.config import LearnConfig


@pytest.fixture
def captured(monkeypatch) -> list[str]:
    """What is captured, by name."""
    works: list[str] = []

    def capture(work, pool):
        works.append(work.__name__)
        work()  # as a capture does, so that the backward pass finds the forward pass's
        return work

    monkeypatch.setattr(graphs, "warm_up", lambda work: work())
    monkeypatch.setattr(graphs, "capture", capture)
    return works


def learner_of(config: LearnConfig, model=None) -> Learner:
    model, tokenizer = (model, nano_tokenizer()) if model else load_model("nano")
    learner = Learner(wrap_model(model, tokenizer, config), ["main"], config)
    optimizer = learner.optimizers["main"]
    optimizer.gradients, optimizer._views = _flat_gradients(optimizer.parameters)  # as on a GPU
    learner.capture("main", optimizer)
    return learner


@pytest.mark.parametrize(
    ("weights", "objective"), [("full", "policy"), ("lora", "policy"), ("full", "likelihood")]
)
def test_captured_passes_learn_what_plain_ones_learn(make_samples, captured, weights, objective):
    options = {"weights": weights, "tokens_per_batch": 48, "entropy": 0.1, "lr": 1e-3}
    options["objective"] = objective
    lessons = [make_samples(6), make_samples(3), make_samples(6)]

    def learned(**more) -> tuple[list, list[torch.Tensor]]:
        learner = learner_of(LearnConfig(**options, **more))
        # AdamW would make whole steps of the rounding of a gradient that is nearly 0.
        learner.optimizers["main"].adam.param_groups[0]["eps"] = 1e-4
        stats = [learner.fit(some, i) for i, some in enumerate(lessons)]
        return stats, [p.detach() for p in learner.policies.parameters("main").values()]

    plain, expected = learned(cuda_graphs=False)
    assert not captured
    stats, found = learned(cuda_graphs=True)
    assert captured.count("_forward") == captured.count("_backward") > 0
    for one, other in zip(plain, stats, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_shape_is_captured_once_and_again_when_weights_lie_elsewhere(make_samples, captured):
    learner = learner_of(LearnConfig(weights="full", cuda_graphs=True))
    samples = make_samples(5)
    for _ in range(3):
        learner._accumulate("main", samples)
    assert captured == ["_forward", "_backward"]
    weight = next(iter(learner.policies.parameters("main").values()))
    weight.data = weight.data.clone()
    learner._accumulate("main", samples)
    assert captured == ["_forward", "_backward"] * 2


@pytest.mark.parametrize(
    ("rows", "times", "kept"),
    [((3, 2, 3, 2), 2, 2), ((3, 2, 1, 1), 3, 1), ((2, 3, 2, 3), 3, 2)],
    ids=["two shapes", "one too many", "a larger one"],
)
def test_shapes_are_kept_as_far_as_there_is_room(captured, monkeypatch, rows, times, kept):
    monkeypatch.setattr(graphs, "MOST", 2)
    model = load_model("nano")[0].eval()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    of_model = Graphs(list(model.parameters()))
    for n in rows:
        of_model.hidden(model, torch.ones(n, 4, dtype=torch.int64), partial(read_embeds, model))
    assert captured.count("_forward") == times and len(of_model._passes) == kept


def test_what_lies_in_rows_of_padding_adds_nothing(captured):
    model = load_model("nano")[0].eval()
    parameters = list(model.parameters())
    few, more = torch.full((9, 8), 7), torch.full((10, 8), 90)  # both are padded to ten rows

    def gradients(*batches: torch.Tensor) -> list[torch.Tensor]:
        """Of the last of these, after the others."""
        for p in parameters:
            p.grad = torch.zeros_like(p)
        of_model = Graphs(parameters)
        for ids_RT in batches:
            for p in parameters:
                p.grad.zero_()
            of_model.hidden(model, ids_RT, partial(read_embeds, model)).square().sum().backward()
        return [p.grad.clone() for p in parameters]

    alone, after = gradients(few), gradients(more, few)
    assert captured == ["_forward", "_backward"] * 2
    assert all(torch.equal(one, other) for one, other in zip(alone, after, strict=True))


def test_a_model_that_cannot_be_captured_is_read_as_it_is(make_samples, monkeypatch, caplog):
    def fail(work, pool):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "warm_up", lambda work: None)
    monkeypatch.setattr(graphs, "capture", fail)
    learner = learner_of(LearnConfig(weights="full", cuda_graphs=True))
    assert learner.fit(make_samples(3), 0)["learn/grad_norm"] > 0
    assert "not permitted" in caplog.text and not learner.graphs


def test_positions_that_are_learned_are_read_from_embeddings_too(make_samples, captured):
    torch.manual_seed(0)
    shape = GPT2Config(vocab_size=261, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    model = GPT2LMHeadModel(shape).eval()
    grads = []
    for graphed in (True, False):
        learner = learner_of(LearnConfig(weights="full", cuda_graphs=graphed), model)
        learner._accumulate("main", make_samples(4))
        grads.append([p.grad.clone() for p in learner.policies.parameters("main").values()])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_rows_are_padded_to_few_sizes():
    assert [padded(n, 96) for n in (1, 2, 3, 40, 43, 44, 64, 65, 85)] == [
        1,
        2,
        3,
        43,
        43,
        64,
        64,
        85,
        85,
    ]
    assert len({padded(n, 96) for n in range(40, 86)}) == 3
    assert padded(3, 10_000) == 3  # more than a micro-batch is meant to hold


def test_rows_have_few_widths():
    widths = sorted({bucketed(n) for n in range(1, 1025)})
    assert widths == [32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
    assert all(n <= bucketed(n) < max(n + 32, 1.25 * n) for n in range(1, 5000))


def test_steps_of_any_number_of_lessons_meet_few_shapes(make_samples, captured, monkeypatch):
    for module in (graphs, learner_module):
        monkeypatch.setattr(module, "TOKENS", 256)
    config = LearnConfig(weights="full", cuda_graphs=True, tokens_per_batch=100_000)
    learner = learner_of(config)
    for n in range(20, 60, 3):
        learner._accumulate("main", make_samples(n))
    shapes = {key[:2] for key in learner.graphs["main"]._passes}
    assert max(rows * width for rows, width in shapes) <= 256
    assert captured.count("_forward") == len(shapes)  # none was given up for another
    assert max(Counter(width for _, width in shapes).values()) <= 6


def test_what_a_capture_draws_changes_no_dropout_after_it(make_samples, captured):
    """A resumed run captures at another step than the one that was not stopped."""
    config = LearnConfig(weights="lora", objective="likelihood", lora_dropout=0.5, cuda_graphs=True)

    def second_step(learner: Learner) -> torch.Tensor:
        learner.optimizers["main"].gradients.zero_()
        with learner._dropout(1):
            learner._accumulate("main", make_samples(4))
        return learner.optimizers["main"].gradients.clone()

    resumed, other = learner_of(config), learner_of(config)
    with other._dropout(0):
        other._accumulate("main", make_samples(4))
    torch.testing.assert_close(second_step(resumed), second_step(other), rtol=0, atol=0)
    assert captured == ["_forward", "_backward"] * 2


def test_a_cpu_and_large_models_have_no_graphs(monkeypatch):
    model = load_model("nano")[0]
    assert not captures(model, LearnConfig())
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    assert captures(model, LearnConfig()) and not captures(model, LearnConfig(cuda_graphs=False))
    assert not captures(model, LearnConfig(packing=True))
    monkeypatch.setattr(graphs, "SMALL", 1000)
    assert not captures(model, LearnConfig())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_replays_what_it_captured(make_samples):
    found = []
    for graphed in (False, True):
        config = LearnConfig(weights="full", compile=False, cuda_graphs=graphed, lr=1e-3)
        model, tokenizer = load_model("nano", device="cuda", dtype="float32")
        learner = Learner(wrap_model(model, tokenizer, config), ["main"], config)
        stats = [learner.fit(make_samples(n), i) for i, n in enumerate((6, 3, 6, 12))]
        found.append((stats, [p.detach() for p in learner.policies.parameters("main").values()]))
        assert bool(learner.graphs) == graphed
    assert found[0][0][-1] == pytest.approx(found[1][0][-1], rel=1e-3, abs=1e-5)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_drops_anew_in_every_replay_and_the_same_by_the_same_seed(make_samples):
    config = LearnConfig(
        weights="lora", objective="likelihood", lora_dropout=0.5, compile=False, lr=1e-2
    )
    model, tokenizer = load_model("nano", device="cuda", dtype="float32")

    def gradient(learner: Learner, *step: object) -> torch.Tensor:
        learner.optimizers["main"].gradients.zero_()
        with learner._dropout(*step):
            learner._accumulate("main", make_samples(4))
        return learner.optimizers["main"].gradients.clone()

    learner = Learner(wrap_model(model, tokenizer, config), ["main"], config)
    learner.fit(make_samples(4), 0)  # adapters begin at 0, where half of the gradients are
    first, second, again = (gradient(learner, step) for step in (1, 2, 1))
    assert learner.graphs and not torch.allclose(first, second, rtol=1e-2)
    torch.testing.assert_close(first, again)
    learner.graphs["main"].clear()
    torch.testing.assert_close(first, gradient(learner, 1))  # captured within the step


def test_no_mask_is_made_while_a_graph_is_captured(monkeypatch):
    """transformers makes a mask for a model that is traced, and its attention is then slower."""
    from transformers import masking_utils

    model, seen = load_model("nano")[0].eval(), []
    layer = model.get_decoder().layers[0]
    layer.register_forward_pre_hook(
        lambda module, args, words: seen.append(words["attention_mask"]), with_kwargs=True
    )
    monkeypatch.setattr("transformers.utils.import_utils.is_cuda_stream_capturing", lambda: True)
    assert masking_utils.is_tracing()
    embeds_RTH = torch.randn(2, 5, model.config.hidden_size)
    read_embeds(model, embeds_RTH)
    assert seen == [None]
