"""Rows in which several sequences lie one after another. That no sequence sees another is up to the
model's own code, which has to tell them apart by their positions: so it is tried, not believed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparring.learn.batches import Batch
from sparring.run.config import ConfigError

TRIAL = 12  # tokens of each of the two sequences


def read_rows(model: Any, batch: Batch) -> Tensor:
    """The last hidden state at every place. Positions are told only where rows are packed."""
    told = {} if batch.position_RT is None else {"position_ids": batch.position_RT}
    read = model.get_decoder()(input_ids=batch.ids_RT, use_cache=False, **told)
    hidden: Tensor = read.last_hidden_state
    return hidden


@torch.no_grad()
def check_packing(model: Any) -> None:
    """Read a sequence alone and behind another one: it must come out the same."""
    ids = (torch.arange(2 * TRIAL, device=model.device) * 7 + 11) % model.config.vocab_size
    positions = torch.arange(TRIAL, device=model.device).repeat(2)
    decoder = model.get_decoder()
    try:
        behind = decoder(input_ids=ids[None], position_ids=positions[None], use_cache=False)
    except TypeError as error:
        raise ConfigError(_refusal(model)) from error
    alone = decoder(input_ids=ids[None, TRIAL:], use_cache=False).last_hidden_state.float()
    gap = behind.last_hidden_state[:, TRIAL:].float() - alone
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.05
    if not gap.norm() <= tolerance * alone.norm():
        raise ConfigError(_refusal(model))


def _refusal(model: Any) -> str:
    return (
        f"learn.packing needs a model whose sequences do not see each other in one row, and those "
        f"of {type(model).__name__} do; leave it off"
    )
