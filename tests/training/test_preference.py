"""Texts become pairs, and the reference is asked once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Pair
from sparring.models.chat import Chat
from sparring.models.loading import nano_tokenizer
from sparring.run.config import make_config
from sparring.training.preference import Preference, cached, fit_preferences, to_pair


def make_pairs() -> list[Pair]:
    chat = Chat(nano_tokenizer())
    told = [Preference("2+2?", "4", "five"), Preference("3+3?", "6", "66", (False, True))]
    return [to_pair(chat, one) for one in told]


def test_both_replies_follow_one_prompt_and_what_was_cut_off_has_no_end():
    tokenizer = nano_tokenizer()
    first, second = make_pairs()
    shown = [tokenizer.decode(s.ids) for s in (first.chosen, first.rejected, second.rejected)]
    assert shown == [
        "<|user|>2+2?<|end|><|assistant|>4<|end|>",
        "<|user|>2+2?<|end|><|assistant|>five<|end|>",
        "<|user|>3+3?<|end|><|assistant|>66",
    ]
    assert sum(first.chosen.mask) == 2 and sum(second.rejected.mask) == 2
    assert first.policy == "main"


def test_the_reference_is_computed_once_and_then_read(tmp_path: Path):
    pairs, calls = make_pairs(), []

    def compute() -> None:
        calls.append(1)
        for i, pair in enumerate(pairs):
            for sample in (pair.chosen, pair.rejected):
                sample.logprobs = [-1.5 - i if m else 0.0 for m in sample.mask]

    cached(tmp_path / "reference.safetensors", pairs, compute)
    again = make_pairs()
    cached(tmp_path / "reference.safetensors", again, lambda: pytest.fail("asked twice"))
    assert len(calls) == 1 and again == pairs and again[1].chosen.logprobs[-1] == -2.5
    cached(tmp_path / "reference.safetensors", again[:1], lambda: calls.append(2))
    assert calls == [1, 2]  # of other pairs, it is of no use


def test_pairs_need_their_objective(tmp_path: Path):
    told = [Preference("2+2?", "4", "five")]
    with pytest.raises(ConfigError, match=r"learn\.objective=preference"):
        fit_preferences(make_config({}), tmp_path / "run", told)
    config = make_config({"learn": {"objective": "preference"}})
    with pytest.raises(ConfigError, match="no valid pair"):
        fit_preferences(config, tmp_path / "run", [])
    assert not (tmp_path / "run").exists()
