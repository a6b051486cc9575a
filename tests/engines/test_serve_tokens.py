"""The texts and bytes of tokens join to the text of the reply, with whatever tokenizer."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from sparring.engines.serve_tokens import chat_logprobs, completion_logprobs
from sparring.models.loading import nano_tokenizer


def spaces_as_letters() -> PreTrainedTokenizerFast:
    """Shaped like the tokenizers of Llama 2, Mistral and Phi-3."""
    words = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdou"]
    words += ["▁a", "bc", "▁do"]
    core = Tokenizer(
        models.BPE(
            vocab={word: i for i, word in enumerate(words)},
            merges=[("▁", "a"), ("b", "c")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize("tokenizer", [nano_tokenizer(), spaces_as_letters()])
@pytest.mark.parametrize("text", ["a bc  a do", "é a é", "a", ""])
def test_tokens_join_to_the_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    logprobs = [-0.5] * len(ids)
    assert tokenizer.decode(ids) == text
    content = chat_logprobs(tokenizer, ids, logprobs)["content"]
    assert bytes(byte for part in content for byte in part["bytes"]).decode() == text
    whole = completion_logprobs(tokenizer, ids, logprobs)
    assert len(whole["text_offset"]) == len(whole["tokens"]) == len(ids)
    if text.isascii():
        assert "".join(whole["tokens"]) == text == "".join(part["token"] for part in content)
        for token, start in zip(whole["tokens"], whole["text_offset"], strict=True):
            assert text[start:].startswith(token)
