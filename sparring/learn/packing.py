"""Rows in which several sequences lie one after another, and those that begin alike share their
beginning. That no sequence sees another is up to a mask that the model's own code has to heed: so
it is tried, not believed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from transformers import masking_utils

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Sample
from sparring.learn.batches import Batch, Packed, collate

TRIAL = 6  # tokens of each half of a sequence
FLEX = False  # FlexAttention on a CPU too, for tests: there it is slow


def read_rows(model: Any, batch: Batch) -> Tensor:
    """The last hidden state at every position. Position ids and a mask are given only where rows
    are packed."""
    with _not_packed() if batch.packed is None else _attention(model, batch.packed) as options:
        read = model.get_decoder()(input_ids=batch.ids_RT, use_cache=False, **options)
    hidden: Tensor = read.last_hidden_state
    return hidden


def read_embeds(model: Any, embeds_RTH: Tensor) -> Tensor:
    """As `read_rows`, from the embeddings of rows that are not packed."""
    with _not_packed():
        read = model.get_decoder()(inputs_embeds=embeds_RTH, use_cache=False)
    hidden: Tensor = read.last_hidden_state
    return hidden


@contextmanager
def _not_packed() -> Iterator[dict[str, Any]]:
    """transformers looks at the position ids for packed sequences, which makes the host wait for
    the device, and while a graph is captured it would make a mask: here it is known that there are
    no packed sequences and that none is needed. Of this thread's calls only."""
    _known.unpacked = True
    try:
        yield {}
    finally:
        _known.unpacked = False


_known = threading.local()
_asked: dict[str, Any] = {}  # transformers' own functions


def _unless_known(name: str, known: Any) -> None:
    """Answer one of transformers' questions, where it has it, in the blocks of `_not_packed`."""
    if not hasattr(masking_utils, name):
        return
    _asked[name] = getattr(masking_utils, name)

    def answer(*given: Any, **words: Any) -> Any:
        sure = getattr(_known, "unpacked", False) and not torch.compiler.is_compiling()
        return known if sure else _asked[name](*given, **words)

    setattr(masking_utils, name, answer)


_unless_known("find_packed_sequence_indices", None)
_unless_known("is_tracing", False)


@contextmanager
def _attention(model: Any, packed: Packed) -> Iterator[dict[str, Any]]:
    """What a model is given to read packed rows: position ids and a dense mask or, on a GPU with
    FlexAttention, one by blocks, which skips masked blocks."""
    options: dict[str, Any] = {"position_ids": packed.position_RT}
    usual = model.config._attn_implementation
    if usual != "sdpa" or not (FLEX or packed.piece_RT.is_cuda):
        yield {**options, "attention_mask": _mask(model, packed)}
        return
    model.config._attn_implementation = "flex_attention"
    try:
        yield {**options, "attention_mask": _block_mask(packed)}
    finally:
        model.config._attn_implementation = usual


def _block_mask(packed: Packed) -> Any:
    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        piece = packed.piece_RT[row, key]
        own = (packed.piece_RT[row, query] == piece) | (packed.before_RT[row, query] == piece)
        return own & (key <= query)

    rows, width = packed.piece_RT.shape
    return create_block_mask(sees, rows, None, width, width, device=packed.piece_RT.device)


def at_tokens(hidden_RTH: Tensor, batch: Batch) -> Tensor:
    """The hidden state that each token to learn from is predicted from. Several samples may share
    a row, and the gradients of a position they share are summed: by an embedding's backward pass,
    which gives each position to one thread. Indexing adds atomically, in whatever order threads
    come, and two runs then differ in the last digits."""
    index_N = batch.row_N * hidden_RTH.shape[1] + batch.position_N
    return F.embedding(index_N, hidden_RTH.flatten(0, 1))


def _mask(model: Any, packed: Packed) -> Tensor:
    """Which position (first T) sees which (second T): those to its left of its own piece, and of
    the piece that it goes on from."""
    own = packed.piece_RT[:, :, None] == packed.piece_RT[:, None, :]
    before = packed.before_RT[:, :, None] == packed.piece_RT[:, None, :]
    sees_RTT = (own | before).tril()[:, None]
    if model.config._attn_implementation != "eager":
        return sees_RTT
    lowest = torch.finfo(model.dtype).min  # what is added to a score, where nothing is left out
    return torch.zeros_like(sees_RTT, dtype=model.dtype).masked_fill(~sees_RTT, lowest)


@torch.no_grad()
def check_packing(model: Any) -> None:
    """Read sequences alone, and in one row with another: they must come out the same."""
    if getattr(model.config, "sliding_window", None) is not None:  # which our mask would open
        raise ConfigError(_refusal(model))

    def sample(begin: int, then: int) -> Sample:
        ids = [(begin * 7 + i * 11) % model.config.vocab_size for i in range(TRIAL)]
        ids += [(then * 13 + i * 5) % model.config.vocab_size for i in range(TRIAL)]
        half = [0.0] * TRIAL
        return Sample(MAIN, ids, [0] * TRIAL + [1] * TRIAL, half + half, half + half)

    samples = [sample(1, 1), sample(1, 2), sample(2, 3)]

    def read(some: list[Sample], width: int | None = None) -> Tensor:
        batch = collate(some, 0, model.device, width)
        return at_tokens(read_rows(model, batch), batch).float()

    alone = torch.cat([read([one]) for one in samples])
    try:
        gap = read(samples, 6 * TRIAL) - alone
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(_refusal(model)) from error
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.05
    if not gap.norm() <= tolerance * alone.norm():
        raise ConfigError(_refusal(model))


def _refusal(model: Any) -> str:
    return (
        f"learn.packing needs a model whose sequences do not see each other in one row, and those "
        f"of {type(model).__name__} do; leave it off"
    )
