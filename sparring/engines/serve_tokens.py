"""Tokens and their logprobs as OpenAI's HTTP API has them: texts that join to the reply's, bytes of
those that are part of a character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode


def chat_logprobs(tokenizer: Any, ids: Sequence[int], logprobs: Sequence[float]) -> dict[str, Any]:
    content = [
        {
            "token": text,
            "logprob": logprob,
            "bytes": token_bytes(tokenizer, token, text),
            "top_logprobs": [],
        }
        for token, text, logprob in zip(ids, token_texts(tokenizer, ids), logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokenizer: Any, ids: Sequence[int], logprobs: Sequence[float]
) -> dict[str, Any]:
    texts = token_texts(tokenizer, ids)
    offsets = list(accumulate(map(len, texts[:-1]), initial=0)) if texts else []
    return {
        "tokens": texts,
        "token_logprobs": logprobs,
        "text_offset": offsets,
        "top_logprobs": None,
    }


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token where it stands: the tokenizers of Llama 2, Mistral and Phi-3 leave
    the space out with which a text begins, but for the first token only the reply's is meant."""
    before = tokenizer.encode("a", add_special_tokens=False)[-1:]
    known = len(tokenizer.decode(before))
    first = [tokenizer.decode([token]) for token in ids[:1]]
    return first + [tokenizer.decode([*before, token])[known:] for token in ids[1:]]


def token_bytes(tokenizer: Any, token: int, text: str) -> list[int] | None:
    """The bytes of a token: of half a character its text does not tell them. None: nothing does."""
    if "\ufffd" not in text:
        return list(text.encode())
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", piece):
        return [int(byte[1], 16)]
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    return [byte_of[c] for c in piece] if byte_of.keys() >= set(piece) else None
