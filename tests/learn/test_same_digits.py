"""The same lessons move the same weights to the same bits, on several threads of a busy machine."""

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from sparring.core.types import Lesson, Pair, Sample
from sparring.learn.batches import collate
from sparring.learn.learner import Learner
from sparring.learn.packing import at_tokens
from sparring.run.config import LearnConfig

REPEAT = 3


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def like_the_demo(count: int = 800) -> list[Sample]:
    """As many positions as an iteration of the demo has, most of them shared by several samples:
    too few use one thread."""
    dice = random.Random(0)
    prompts = [[dice.randrange(5, 261) for _ in range(24)] for _ in range(count // 8)]
    found = []
    for i in range(count):
        prompt = prompts[min(dice.randrange(len(prompts)), dice.randrange(len(prompts)))]
        ids = [*prompt, 70 + i % 2, 1]
        blank, advantage = [0.0] * 24, dice.gauss(0, 1)
        found.append(
            Sample(
                "main",
                ids,
                [0] * 24 + [1, 1],
                [*blank, advantage, advantage],
                [*blank, -5.0, -5.0],
                values=[*blank, 0.1, 0.2],
                returns=[*blank, 0.5, 0.4],
            )
        )
    return found


def bits(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for key in sorted(tensors):
        digest.update(tensors[key].detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def test_gradients_of_a_shared_position_are_summed_in_one_order(two_threads: None) -> None:
    """Indexing with duplicates, as it once was done here, gives several bit patterns."""
    batch = collate(like_the_demo(4000), 0, "cpu")
    shape = (*batch.ids_RT.shape, 192)
    hidden = torch.randn(shape, requires_grad=True)
    upstream = torch.randn(len(batch.row_N), 192)
    assert torch.equal(at_tokens(hidden, batch), hidden[batch.row_N, batch.position_N])
    shared = batch.row_N * shape[1] + batch.position_N
    assert len(shared.unique()) < len(shared) / 2
    seen = set()
    for _ in range(40):
        hidden.grad = None
        at_tokens(hidden, batch).backward(upstream)
        seen.add(bits({"": hidden.grad}))  # type: ignore[dict-item]
    assert len(seen) == 1


@pytest.mark.parametrize(
    "weights, options",
    [
        ("full", {}),
        ("full", {"packing": True, "entropy": 0.1, "critic": True, "aggregation": "grpo"}),
        ("lora", {"kl": 0.1, "reference": "ema", "head_chunk": 100}),
        ("lora", {"objective": "preference", "packing": True}),
        ("lora", {"objective": "likelihood", "gradient_checkpointing": True}),
    ],
    ids=["plain", "packed-critic", "moving-reference", "preference", "likelihood"],
)
def test_a_step_comes_out_the_same_every_time(
    two_threads: None, make_policies: Callable[..., Any], weights: str, options: dict[str, Any]
) -> None:
    critic = options.pop("critic", False)
    config = LearnConfig(weights=weights, lr=1e-3, minibatches=2, **options)  # type: ignore[arg-type]
    learner = Learner(make_policies(weights), ["main"], config, critic=critic)
    lessons: list[Lesson] = list(like_the_demo())
    if config.objective == "preference":
        lessons = [Pair(a, b) for a, b in zip(lessons[0::2], lessons[1::2], strict=True)]  # type: ignore[arg-type]
    first = {
        file: {key: tensor.detach().clone() for key, tensor in part.items()}
        for file, part in learner.state().items()
    }
    seen = set()
    for _ in range(REPEAT):
        learner.load(first)
        stats = learner.fit(lessons, 0)
        seen.add((tuple(stats.items()), *(bits(part) for part in learner.state().values())))
    assert len(seen) == 1


def test_deterministic_algorithms_are_on_for_a_gpu_where_asked_and_off_again(
    make_samples: Any, make_policies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    seen: list[tuple[bool, bool]] = []

    def look(*_: Any) -> dict[str, torch.Tensor]:
        on = torch.are_deterministic_algorithms_enabled()
        seen.append((on, torch.backends.cuda.cudnn_sdp_enabled()))
        assert not on or os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        raise KeyError("enough")

    for asked, device in ((True, "cuda"), (False, "cuda"), (True, "cpu")):
        config = LearnConfig(weights="full", deterministic=asked)
        learner = Learner(make_policies("full"), ["main"], config)
        learner.policies.device = torch.device(device)
        monkeypatch.setattr(learner, "_accumulate", look)
        with pytest.raises(KeyError):
            learner._gather("main", make_samples(2), 0)
    assert seen == [(True, False), (False, True), (False, True)]
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
