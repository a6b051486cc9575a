"""What is drawn follows the distribution it says, and depends on nobody else."""

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from sparring.engines.local.sampling import draw, truncate, uniforms

V = 8


def column(value: float, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((n,), value, dtype=dtype)


def many(logits, n=20000, temperature=1.0, top_k=0, top_p=1.0, seed=0):
    """n draws from one row of logits, each with a seed of its own."""
    return draw(
        logits.expand(n, -1),
        column(temperature, n),
        column(top_k, n, torch.int64),
        column(top_p, n),
        uniforms(torch.arange(n) + seed * n, 0),
    )


def shares(tokens: torch.Tensor) -> torch.Tensor:
    return torch.bincount(tokens, minlength=V) / len(tokens)


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.tensor([2.0, -1.0, 0.5, 1.0, -3.0, 0.0, 1.5, -0.5])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution(logits, temperature):
    tokens, logprobs = many(logits, temperature=temperature)
    expected = (logits / temperature).log_softmax(-1)
    assert (shares(tokens) - expected.exp()).abs().max() < 0.012  # over three deviations
    torch.testing.assert_close(logprobs, expected[tokens])


def test_greedy_takes_the_best_whatever_the_noise(logits):
    tokens, logprobs = many(logits, n=100, temperature=0.0)
    assert set(tokens.tolist()) == {0}
    torch.testing.assert_close(logprobs, logits.log_softmax(-1)[0].expand(100))


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (0, 0.7), (3, 0.75), (1, 1.0), (0, 1e-6)])
def test_truncation_is_that_of_transformers(logits, top_k, top_p):
    expected = logits[None]
    if top_k:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    found = truncate(logits[None], column(top_k, 1, torch.int64), column(top_p, 1))
    torch.testing.assert_close(found, expected)
    tokens, logprobs = many(logits, top_k=top_k, top_p=top_p)
    assert (shares(tokens) - expected.softmax(-1)[0]).abs().max() < 0.012
    torch.testing.assert_close(logprobs, expected.log_softmax(-1)[0][tokens])


def test_a_row_that_asked_for_no_cut_gets_none(logits):
    """A long flat tail, where sums of float32 pass 1 before the end."""
    rows = torch.cat([torch.zeros(5000), -20 * torch.ones(60000)]).expand(2, -1)
    found = truncate(rows, column(0, 2, torch.int64), torch.tensor([1.0, 0.5]))
    torch.testing.assert_close(found[0], rows[0])
    assert int(found[1].isfinite().sum()) == pytest.approx(2500, abs=5)


def test_a_row_draws_the_same_in_any_company(logits):
    rows = torch.randn(50, V)
    seeds = torch.randint(2**62, (50,))
    temperature, top_k = torch.rand(50) * 2, torch.randint(0, V, (50,))
    top_p = torch.rand(50)
    top_p[::3], top_k[::3] = 1.0, 0
    for step in (0, 1, 1000):
        noise = uniforms(seeds, step)
        together, logprobs = draw(rows, temperature, top_k, top_p, noise)
        for i in range(50):
            one = slice(i, i + 1)
            alone = draw(
                rows[one], temperature[one], top_k[one], top_p[one], uniforms(seeds[one], step)
            )
            assert alone[0].item() == together[i].item()
            torch.testing.assert_close(alone[1][0], logprobs[i])


def test_uniforms_are_uniform_and_unrelated():
    x = torch.stack([uniforms(torch.arange(2000), step) for step in range(20)])
    assert x.dtype == torch.float64
    assert 0 < float(x.min()) < 1e-3 and 1 - 1e-3 < float(x.max()) < 1
    tenths = torch.histc(x.float(), 10, 0, 1) / x.numel()
    assert (tenths - 0.1).abs().max() < 0.006
    neighbours = torch.corrcoef(x)  # between steps
    assert (neighbours - torch.eye(20)).abs().max() < 0.1
    across = torch.corrcoef(torch.stack([x[:, :-1].flatten(), x[:, 1:].flatten()]))[0, 1]
    assert abs(float(across)) < 0.03, "seeds that are neighbours draw unrelated numbers"


def seed_for(output: int, step: int = 0) -> int:
    """The seed whose generator state ends as `output`: splitmix64 run backwards."""
    full = 2**64

    def unshift(y: int, bits: int) -> int:
        x = y
        for _ in range(64 // bits + 1):
            x = y ^ (x >> bits)
        return x

    x = unshift(output, 31)
    x = unshift(x * pow(0x94D049BB133111EB, -1, full) % full, 27)
    x = unshift(x * pow(0xBF58476D1CE4E5B9, -1, full) % full, 30)
    x = (x - 0x9E3779B97F4A7C15 * (step + 1)) % full
    return x - full if x >= 2**63 else x


@pytest.mark.parametrize(("output", "low", "high"), [(0, 0.0, 1e-15), (2**64 - 1, 1 - 1e-15, 1.0)])
def test_even_the_extremes_stay_strictly_between_0_and_1(output, low, high):
    x = uniforms(torch.tensor([seed_for(output)]), 0).item()
    assert low < x < high
    assert 0.0 < x < 1.0


@pytest.mark.parametrize("output", [0, 2**64 - 1])
def test_the_extremes_draw_no_token_that_was_cut(output):
    """Only tokens 2 and 3 are allowed; first and last place are not."""
    rows = torch.tensor([[-1.0, -1.0, 3.0, 2.0, -1.0]])
    noise = uniforms(torch.tensor([seed_for(output)]), 0)
    token, _ = draw(rows, column(1.0, 1), column(2, 1, torch.int64), column(1.0, 1), noise)
    assert token.item() in (2, 3)
