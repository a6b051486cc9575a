"""The one place where messages become ids. Sampled ids are carried over, never made again."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

from sparring.types import Message, Request

RAW = "raw"  # the role of a text that is to be gone on with as it stands, outside any chat
_SAID = "⁂said⁂"  # stands for a reply while we look at what the template puts after it


class Chat:
    """A tokenizer and its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._encode = lru_cache(maxsize=8192)(self._encode_text)
        # Games show the same prompts again and again, and a template is slow to fill in.
        self._rendered = lru_cache(maxsize=8192)(self._render)
        self._marks = [str(mark) for mark in tokenizer.all_special_tokens]

    def prompt_ids(self, request: Request) -> list[int]:
        if request.previous is None:
            if request.messages[0]["role"] == RAW:
                return list(self.tokenizer.encode(self._defused(request.messages[0]["content"])))
            return list(self._encode(self.render(request.messages)))
        previous = request.previous
        heard = self.after_reply(request.messages, said_end=self._end(previous.token_ids))
        return [*previous.prompt_ids, *previous.token_ids, *self._encode(heard)]

    def demonstration(self, messages: list[Message], output: str) -> tuple[list[int], list[int]]:
        """The ids of a prompt and of a reply that is shown to it, closed as a sampled one is."""
        return (
            list(self._encode(self.render(messages))),
            [*self._encode(self._defused(output)), self.end_id],
        )

    @cached_property
    def end_id(self) -> int:
        """The token that closes a reply: what the template puts there, if that is one token of
        its own, else the tokenizer's end."""
        after = self._encode(self.after_reply([{"role": "user", "content": "?"}], said_end=""))
        special = bool(after) and bool(self._end([after[0]]))
        return int(after[0] if special else self.tokenizer.eos_token_id)

    def render(self, messages: list[Message]) -> str:
        return self._rendered(tuple((m["role"], m["content"]) for m in messages))

    def _render(self, messages: tuple[tuple[str, str], ...]) -> str:
        plain = [{"role": role, "content": self._defused(text)} for role, text in messages]
        return str(
            self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        )

    def _defused(self, text: str) -> str:
        """Text that spells a special token must not become one: a player who is quoted to
        another could otherwise end the message and speak in the other's name."""
        for mark in self._marks:
            if mark in text:
                text = text.replace(mark, f"{mark[0]}\u200b{mark[1:]}")
        return text

    def after_reply(self, messages: list[Message], *, said_end: str) -> str:
        """What stands between a reply's last token and the next reply's first one."""
        before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _SAID}]
        text = self.render([*before, *messages]).split(_SAID, 1)[1]
        # A reply that was sampled to its end already holds the token that closes it.
        return text.removeprefix(said_end)

    def encode(self, text: str) -> list[int]:
        return list(self._encode(text))

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _end(self, ids: list[int]) -> str:
        """The special token that a reply ended with, if any; not every model closes with eos."""
        added = self.tokenizer.added_tokens_decoder.get(ids[-1]) if ids else None
        return str(added.content) if added is not None and added.special else ""

    def _encode_text(self, text: str) -> tuple[int, ...]:
        # The template writes its own special tokens; the tokenizer must not add others.
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))
