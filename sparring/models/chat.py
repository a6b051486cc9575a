"""The one place where messages become ids. Sampled ids are carried over, never made again, and no
text of a player becomes a control token: those are the template's alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

from sparring.core.types import Message, Request, Turn, VoidGame
from sparring.models.template import render
from sparring.models.thinking import Thinking, thinking_of

RAW = "raw"  # the role of a text that is to be gone on with as it stands, outside any chat
_SPLIT = "\u200b"  # zero-width space: the two halves of a token around it are ordinary text
_REPLY = "⁂reply⁂"  # stands for a reply while we look at what the template puts after it

Write = Callable[[list[Message]], str]


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """Every token that a chat may be steered by. Tokenizers mark few of them as special: Llama's
    headers and most role tokens are merely added. Runs of spaces and single letters, which some
    vocabularies add too, are ordinary text."""
    special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    for number, token in tokenizer.added_tokens_decoder.items():
        if token.special or len(token.content) > 1:
            special[number] = token.content
    return {number: str(text) for number, text in special.items() if text.strip()}


class Chat:
    """A tokenizer and its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._encode = lru_cache(maxsize=8192)(self._encode_text)
        # Games show the same prompts again and again, and a template is slow to fill in.
        self._rendered = lru_cache(maxsize=8192)(self._render)
        self._opening_ids = lru_cache(maxsize=8192)(self._ids_of)
        self._controls = control_tokens(tokenizer)
        longest_first = sorted(self._controls.values(), key=len, reverse=True)
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def prompt_ids(self, request: Request) -> list[int]:
        previous = request.previous
        if previous is None:
            return self.ids_of(request.messages)
        end = self._end(previous.token_ids)
        heard = self._safe_ids(request.messages, partial(self.after_reply, end=end))
        return [*self._so_far(previous, bool(end)), *heard]

    def _so_far(self, previous: Turn, ended: bool) -> list[int]:
        """The ids of a conversation up to the end of a turn. Thoughts go where the template drops
        them; a turn that was drawn from legal actions has none."""
        prompt, reply = previous.prompt_ids, previous.token_ids
        if self.thinking is not None and not previous.allowed:
            prompt, reply = self.thinking.later(prompt, reply, ended)
        return [*prompt, *reply]

    @cached_property
    def thinking(self) -> Thinking | None:
        """What the template does with thoughts, where it knows of any."""
        return thinking_of(self.tokenizer)

    def split(self, ids: list[int], *, whole: bool = False) -> tuple[str, str]:
        """Thoughts and text of a reply. `whole`: all of it is text."""
        if whole or self.thinking is None:
            return "", self.decode(ids)
        return self.thinking.split(ids)

    def ids_of(self, messages: list[Message]) -> list[int]:
        """The ids of a prompt that begins a conversation, or of a raw text."""
        return list(self._opening_ids(tuple((m["role"], m["content"]) for m in messages)))

    def _ids_of(self, parts: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        messages: list[Message] = [{"role": role, "content": text} for role, text in parts]
        if messages[0]["role"] == RAW:
            return self._safe_ids(messages[:1], self._as_text, special=True)
        return self._safe_ids(messages, self.render)

    def demonstration(self, messages: list[Message], output: str) -> tuple[list[int], list[int]]:
        """The ids of a prompt and of a demonstrated reply, closed as a sampled one is."""
        return self.ids_of(messages), self.reply_ids(output)

    def reply_ids(self, text: str) -> list[int]:
        """The ids of a reply that was not sampled, with the token that ends it."""
        return [*self._safe_ids([{"role": RAW, "content": text}], self._as_text), self.end_id]

    @cached_property
    def end_id(self) -> int:
        """The token that closes a reply: what the template puts there, if that is one token of
        its own, else the tokenizer's end."""
        after = self.encode(self.after_reply([{"role": "user", "content": "?"}], end=""))
        special = bool(after) and bool(self._end([after[0]]))
        return int(after[0] if special else self.tokenizer.eos_token_id)

    def render(self, messages: list[Message]) -> str:
        return self._rendered(tuple((m["role"], m["content"]) for m in messages))

    def _render(self, messages: tuple[tuple[str, str], ...]) -> str:
        plain = [{"role": role, "content": self._defused(text)} for role, text in messages]
        return render(self.tokenizer, plain)

    def _as_text(self, messages: list[Message]) -> str:
        return self._defused(messages[0]["content"])

    def _defused(self, text: str) -> str:
        """Text that spells a control token must not become one: a player who is quoted to
        another could otherwise end the message and speak in the other's name."""
        while self._spelled.search(text):  # again: what is left of one may spell another
            text = self._spelled.sub(_divide, text)
        return text

    def _safe_ids(
        self, messages: list[Message], write: Write, *, special: bool = False
    ) -> tuple[int, ...]:
        """The ids of messages as `write` writes them, with the control tokens of harmless messages
        of the same shape and no others. Defusing each message is enough for that unless the
        template, the next message or the tokenizer's normalizer completes what one began."""
        wanted = self._encode(write([_harmless(m) for m in messages]), special)[1]
        for divide in (dict, _apart):
            ids, controls = self._encode(write([divide(m) for m in messages]), special)
            if controls == wanted:
                return ids
        raise VoidGame(
            "a message becomes a control token of the chat template, and nothing that was tried "
            "keeps the two apart; the tokenizer's normalizer makes control tokens of plain text"
        )

    def after_reply(self, messages: list[Message], *, end: str) -> str:
        """What stands between a reply's last token and the next reply's first one."""
        before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _REPLY}]
        text = self.render([*before, *messages]).split(_REPLY, 1)[1]
        # A reply that was sampled to its end already holds the token that closes it.
        return text.removeprefix(end)

    def encode(self, text: str) -> list[int]:
        """Ids of a trusted text; `ids_of` is for messages."""
        return list(self._encode(text)[0])

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def spoken(self, ids: list[int], *, whole: bool = False) -> str:
        """The text of a reply as it was drawn, the tags of its thoughts included; `whole`: it has
        none."""
        thinking = None if whole else self.thinking
        return self.decode(ids) if thinking is None else thinking.tagged(ids)

    def streamed(
        self, on_text: Callable[[str], None], *, whole: bool = False
    ) -> Callable[[int], None]:
        """A function of a reply's tokens, one after another, that passes their text on. Decoded is
        only what follows the last piece but one: all of it each time took a second in 4,000."""
        ids: list[int] = []
        begin = sent = 0  # of the last piece, and where it ended

        def on_token(token: int) -> None:
            nonlocal begin, sent
            ids.append(token)
            before = self.spoken(ids[begin:sent], whole=whole)
            text = self.spoken(ids[begin:], whole=whole)
            # Half a character waits for its other half.
            if len(text) > len(before) and not text.endswith("\ufffd"):
                on_text(text[len(before) :])
                begin, sent = sent, len(ids)

        return on_token

    def _end(self, ids: list[int]) -> str:
        """The special token that a reply ended with, if any; not every model closes with eos."""
        added = self.tokenizer.added_tokens_decoder.get(ids[-1]) if ids else None
        return str(added.content) if added is not None and added.special else ""

    def _encode_text(
        self, text: str, special: bool = False
    ) -> tuple[tuple[int, ...], Counter[int]]:
        """The ids of a text, and how often each control token is among them. The template writes
        its own special tokens; the tokenizer must not add others."""
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=special))
        return ids, Counter(filter(self._controls.__contains__, ids))


def _divide(spelled: re.Match[str]) -> str:
    text = spelled[0]
    return f"{text[0]}{_SPLIT}{text[1:]}" if len(text) > 1 else "\ufffd"


def _harmless(message: Message) -> Message:
    """The same shape: templates treat an empty message differently from one with words in it."""
    return {**message, "content": "x" if message["content"].strip() else ""}


def _apart(message: Message) -> Message:
    """Kept from what stands before and after it, and every sign in it from the next: also where a
    normalizer takes invisible characters out."""
    content = re.sub(r"([^\w\s])", r"\1 ", message["content"])
    return {**message, "content": f"{_SPLIT} {content} {_SPLIT}"}
