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
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Sample
from sparring.learn.batches import Batch, Packed, Pieces, collate

TRIAL = 6  # tokens of each half of a sequence
BY_PIECE = "sparring_by_piece"  # the name of our attention to transformers
FLEX = False  # FlexAttention on a CPU too, for tests: there it is slow


def read_rows(model: Any, batch: Batch, *, again: bool = False) -> Tensor:
    """The last hidden state at every position. Position ids and a mask are given only where rows
    are packed. `again`: layers will be called again outside of this, or are compiled."""
    packed = batch.packed
    with _not_packed() if packed is None else _attention(model, packed, again) as options:
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
def _attention(model: Any, packed: Packed, again: bool) -> Iterator[dict[str, Any]]:
    """What a model is given to read packed rows: position ids and a mask. On a GPU that is one of
    FlexAttention's, by blocks, which skips masked blocks; on a CPU each piece looks at what it sees
    and at nothing else, where that is less."""
    options: dict[str, Any] = {"position_ids": packed.position_RT}
    usual = model.config._attn_implementation
    flex = FLEX or packed.piece_RT.is_cuda
    if usual != "sdpa" or not (flex or (packed.pieces and not again)):
        yield {**options, "attention_mask": _mask(model, packed)}
        return
    model.config._attn_implementation = "flex_attention" if flex else BY_PIECE
    _known.pieces = packed.pieces
    try:
        mask = packed.pieces.mask_P1LK if packed.pieces and not flex else _block_mask(packed)
        yield {**options, "attention_mask": mask}
    finally:
        model.config._attn_implementation = usual
        _known.pieces = None


def _attend_by_piece(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask_P1LK: Tensor, **words: Any
) -> tuple[Tensor, None]:
    """transformers' own attention with a row for each piece. Read by embeddings, like `at_tokens`,
    so that gradients are summed in one order."""
    pieces: Pieces = _known.pieces

    def gather(x_RHTD: Tensor, index: Tensor) -> Tensor:
        flat_TX = x_RHTD.transpose(1, 2).flatten(2).flatten(0, 1)
        read = F.embedding(index, flat_TX).unflatten(-1, (x_RHTD.shape[1], x_RHTD.shape[3]))
        return read.transpose(1, 2)

    q_PHLD, k_PHKD = gather(query, pieces.query_PL), gather(key, pieces.key_PK)
    v_PHKD = gather(value, pieces.key_PK)
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    out_PLHD, _ = sdpa(module, q_PHLD, k_PHKD, v_PHKD, mask_P1LK, **words)
    out_RTX = F.embedding(pieces.output_RT, out_PLHD.flatten(2).flatten(0, 1))
    return out_RTX.unflatten(-1, out_PLHD.shape[2:]), None


ALL_ATTENTION_FUNCTIONS.register(BY_PIECE, _attend_by_piece)


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
    config = model.config.get_text_config()
    if getattr(config, "sliding_window", None) is not None:  # which our mask would open
        raise ConfigError(_refusal(model))

    def sample(begin: int, then: int) -> Sample:
        ids = [(begin * 7 + i * 11) % config.vocab_size for i in range(TRIAL)]
        ids += [(then * 13 + i * 5) % config.vocab_size for i in range(TRIAL)]
        half = [0.0] * TRIAL
        return Sample(MAIN, ids, [0] * TRIAL + [1] * TRIAL, half + half, half + half)

    samples = [sample(1, 1), sample(1, 2), sample(2, 3)]

    def read(some: list[Sample], width: int | None = None, again: bool = False) -> Tensor:
        batch = collate(some, 0, model.device, width)
        return at_tokens(read_rows(model, batch, again=again), batch).float()

    alone = torch.cat([read([one]) for one in samples])
    try:
        ways = [read(samples, 6 * TRIAL, again) for again in (False, True)]
        gap = (torch.stack(ways) - alone).norm(dim=(1, 2)).max()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(_refusal(model)) from error
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.05
    if not gap <= tolerance * alone.norm():
        raise ConfigError(_refusal(model))


def _refusal(model: Any) -> str:
    return (
        f"learn.packing needs a model whose sequences do not see each other in one row, and those "
        f"of {type(model).__name__} do; leave it off"
    )
