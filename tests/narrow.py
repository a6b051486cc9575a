"""A second base model for tests, unlike nano in every way that may matter."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sparring.models.loading import make_nano, nano_tokenizer


def make_narrow(folder: Path) -> Path:
    """Half as wide as nano, one layer, a shorter context and another vocabulary."""
    told = make_nano().config.to_dict() | {
        "hidden_size": 96, "num_hidden_layers": 1, "intermediate_size": 128, "head_dim": 24,
        "vocab_size": 262, "max_position_embeddings": 2048,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        model = LlamaForCausalLM(LlamaConfig(**told))
    model.save_pretrained(folder)
    tokenizer = nano_tokenizer()
    tokenizer.add_tokens(["<extra>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    return folder
