"""What a CPU reads of prompts: tokens of a row are attended from together, in tiles that suit the
rows of a pass, and their bits are those of any other tile."""

import random

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from sparring.engines.local import row_counts, torch_ops
from sparring.engines.local.decoder import Decoder, Layer
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.pages import TILE, Pages, reading
from sparring.engines.local.row_counts import TILES, RowCounts
from sparring.models.loading import make_nano

CPU = torch.device("cpu")


def attended(query_NQD: torch.Tensor, rows: list, tile: int, both, window: int = 0) -> torch.Tensor:
    """A pass over these rows (blocks, first position, last one), padded to a multiple of 8."""
    size = -(-sum(end - start for _, start, end in rows) // 8) * 8
    padded = torch.full((size, *query_NQD.shape[1:]), 9.0)
    padded[: len(query_NQD)] = query_NQD
    pages = reading(rows, size, tile, CPU, pad=False)
    out = torch_ops.attend(padded, _layer(window), both, pages, query_NQD.shape[-1] ** -0.5)
    assert not out[len(query_NQD) :].any(), "padding attends to nothing, and is no garbage"
    return out[: len(query_NQD)]


def _layer(window: int) -> Layer:
    rest = dict.fromkeys(Layer.__dataclass_fields__)
    return Layer(**{**rest, "window": window})


@pytest.mark.parametrize("heads", [(2, 2, 48), (3, 3, 64), (1, 7, 96), (2, 1, 128)])
@pytest.mark.parametrize("window", [0, 40])
def test_bits_depend_on_neither_tiles_nor_company(heads, window):
    key_heads, group, width = heads
    rng, generator = random.Random(width), torch.Generator().manual_seed(width)
    both = tuple(torch.randn(key_heads, 90, BLOCK, width, generator=generator) for _ in range(2))
    rows, used = [], 1
    for length in (1, 9, 17, 40, 73, 130):
        start = rng.choice([0, rng.randrange(200)])
        count = -(-(start + length) // BLOCK)
        rows.append((list(range(used, used + count)), start, start + length))
        used += count
    assert used <= 90
    total = sum(end - start for _, start, end in rows)
    query = torch.randn(total, key_heads * group, width, generator=generator)
    expected = attended(query, rows, TILE, both, window)
    tiles = [tile for tile in TILES if _agrees(tile, heads)]
    assert tiles[0] == TILE
    for tile in tiles:
        assert torch.equal(attended(query, rows, tile, both, window), expected)
        at = 0
        for row in rows:
            part = slice(at, at := at + row[2] - row[1])
            assert torch.equal(attended(query[part], [row], tile, both, window), expected[part])
    _equals_torchs(expected, query, rows, both, window)


def _agrees(tile: int, heads: tuple[int, int, int]) -> bool:
    return row_counts._same_attention(tile, *heads[1:], torch.get_num_threads())


def _equals_torchs(out, query, rows, both, window) -> None:
    at = 0
    for blocks, start, end in rows:
        keys, values = (tensor[:, blocks].flatten(1, 2)[:, :end] for tensor in both)
        here, there = torch.arange(start, end)[:, None], torch.arange(end)
        seen = there <= here
        if window:
            seen &= there > here - window
        part = slice(at, at := at + end - start)
        want = scaled_dot_product_attention(
            query[part].transpose(0, 1)[None], keys[None], values[None], seen, enable_gqa=True
        )
        flat = want[0].transpose(0, 1).flatten(1)
        torch.testing.assert_close(out[part], flat, atol=2e-6, rtol=1e-5)


def test_tiles_suit_the_rows():
    counts = RowCounts(Decoder.of(make_nano()), CPU, 512, True)
    if not all(_agrees(tile, (2, 2, 48)) for tile in TILES):
        assert counts.tile([128] * 9) in TILES
        return
    assert counts.tile([73] * 14) == 80
    assert counts.tile([5, 3, 9]) == TILE
    assert counts.tile([1024]) == 128
    assert counts.tile([20] * 30) == 24


def test_tiles_that_sum_up_otherwise_are_not_taken(monkeypatch):
    """As on a processor where a product of more rows goes another way."""
    attention = row_counts.attention

    def by_rows(query, keys, values, bias):
        return attention(query, keys, values, bias) * (1 + 1e-6 * query.shape[2])

    monkeypatch.setattr(row_counts, "attention", by_rows)
    row_counts._same_attention.cache_clear()
    try:
        counts = RowCounts(Decoder.of(make_nano()), CPU, 512, True)
        assert {counts.tile([length] * 9) for length in (3, 20, 73, 400)} == {TILE}
    finally:
        row_counts._same_attention.cache_clear()


def test_padding_has_tiles_only_where_they_are_wanted():
    rows = [([1, 2], 0, 40)]
    with_tiles, without = (reading(rows, 48, TILE, CPU, pad=pad) for pad in (True, False))
    assert isinstance(without, Pages) and without.count_M.tolist() == [16, 16, 8]
    assert with_tiles.count_M.tolist() == [16, 16, 8, 8]
    assert torch.equal(with_tiles.row_N, without.row_N)


def test_no_position_beyond_the_ends_of_neighbours_is_looked_at():
    """Of a long prompt the early tiles, and of a pass the short rows, see few positions."""
    blocks = list(range(1, 40))
    spans = [(blocks, 0, 96), (blocks[3:], 0, 20), (blocks, 960, 970)]
    pages = reading(spans, 128, 32, CPU, pad=False)
    parts = [(tiles.tolist(), wide) for tiles, wide in torch_ops._parts(pages, 200)]
    assert parts == [([3, 0, 1], 64), ([2], 96), ([4], 992)]
    assert [tile for tiles, _ in torch_ops._parts(pages, 10) for tile in tiles.tolist()] == [
        3,
        0,
        1,
        2,
        4,
    ]
