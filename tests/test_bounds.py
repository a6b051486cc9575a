"""What a GPU's memory and products allow at most, with numbers worked out by hand."""

import pytest
from test_evidence import load


@pytest.fixture
def bounds(monkeypatch):
    return load("bounds", monkeypatch)


def test_steps_prompts_and_games(bounds) -> None:
    size = bounds.Size(layers=10, head=2, position=4)
    gpu = bounds.Gpu(bytes_per_s=1, flops=2)
    assert bounds.step_s(size, gpu, rows=1, positions=5) == 24 + 20  # weights are read
    assert bounds.step_s(size, gpu, rows=3, positions=0) == 36  # products take longer
    assert bounds.prompt_s(size, gpu, tokens=6) == 60
    # Two prompts; the first reply has one more token, which looks at four positions.
    assert bounds.least_s(size, gpu, [[2], [1]], prompt=3) == 60 + 24 + 16
    # The second turn's second token looks at both prompts and the first token of each reply.
    assert bounds.least_s(size, gpu, [[1, 2]], prompt=3) == 30 + 30 + 24 + 32


def test_no_round_of_a_benchmark_finds_its_prompts_read(monkeypatch) -> None:
    generate = load("generate", monkeypatch)
    first, second = generate.prompts(40, 3), generate.prompts(40, 3)
    assert len({prompt.split()[0] for prompt in first + second}) == 80
    assert [prompt.split()[1:] for prompt in first] == [prompt.split()[1:] for prompt in second]


def test_a_size_counts_its_weights(bounds) -> None:
    size = bounds.Size.of("qwen3-8b")
    assert size.layers + 2 * size.head == pytest.approx(8.19e9, rel=0.001)  # with the embedding
    assert size.position == 147_456
