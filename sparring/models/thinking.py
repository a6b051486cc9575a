"""What a thinking model thought, apart from what it answered, and what its chat template keeps of
the thoughts in later prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparring.models.template import render

OPEN, CLOSE = "<think>", "</think>"
_THOUGHT, _ANSWER = "⁂thought⁂", "⁂answer⁂"


def split_thinking(text: str, *, opened: bool = False) -> tuple[str, str]:
    """Thoughts and answer of a text. `opened`: the prompt ended with `<think>`. Thoughts that were
    never closed have no answer."""
    before, close, after = text.rpartition(CLOSE)
    if close:
        return before.replace(OPEN, "", 1).strip(), after.lstrip("\n")
    if opened or text.lstrip().startswith(OPEN):
        return text.replace(OPEN, "", 1).strip(), ""
    return "", text


def split_partial(text: str, *, opened: bool, done: bool) -> tuple[str, str]:
    """Thoughts and answer of a text that goes on until it is `done`, without what may become a tag.
    What was passed on cannot be taken back: thoughts begin at once, and their first end counts."""
    before, close, after = text.partition(CLOSE)
    if not opened and not before.lstrip().startswith(OPEN):
        return "", "" if not done and OPEN.startswith(text.strip()) else text
    thoughts = before.replace(OPEN, "")
    if not (close or done):
        thoughts = thoughts[: 1 - len(CLOSE)]
    return thoughts.strip(), after.lstrip("\n")


@dataclass(frozen=True)
class Thinking:
    """How a chat template treats thoughts, in token ids."""

    tokenizer: Any
    open: int
    close: int
    opened: bool  # a prompt ends with `<think>`: the reply begins in the middle of thoughts
    drops: bool  # earlier replies are written without their thoughts
    opening: tuple[int, ...]  # at the end of a prompt, but not before an earlier reply's answer
    instead: tuple[int, ...]  # before an earlier reply's answer, but not at the end of a prompt
    special: bool  # the tokenizer calls the tags special, and texts are without them

    def answer_start(self, ids: list[int]) -> int:
        """The index of the first id that belongs to the answer."""
        if self.close in ids:
            start = len(ids) - ids[::-1].index(self.close)
            while start < len(ids) and self._is_newline(ids[start]):
                start += 1
            return start
        words = (i for i in ids if not self._is_newline(i))
        if self.opened or next(words, None) == self.open:
            return len(ids)
        return 0

    def split(self, ids: list[int]) -> tuple[str, str]:
        """Thoughts and answer of a reply."""
        start = self.answer_start(ids)
        before = [i for i in ids[:start] if i not in (self.open, self.close)]
        return self._text(before).strip(), self._text(ids[start:])

    def tagged(self, ids: list[int]) -> str:
        """The text of a reply with its tags."""
        if not self.special:
            return self._text(ids)
        tags, parts, start = {self.open: OPEN, self.close: CLOSE}, list[str](), 0
        for end in (at for at, token in enumerate(ids) if token in tags):
            parts += [self._text(ids[start:end]), tags[ids[end]]]
            start = end + 1
        return "".join([*parts, self._text(ids[start:])])

    def later(
        self, prompt: list[int], reply: list[int], ended: bool
    ) -> tuple[list[int], list[int]]:
        """A prompt and its reply as they stand before the next message: without the thoughts where
        the template drops them, and with the very ids of the answer. `ended`: the last id closes
        the reply."""
        start = self.answer_start(reply)
        if not self.drops or not start:
            return prompt, reply
        whole = len(prompt) - len(self.opening)
        if tuple(prompt[whole:]) == self.opening:
            prompt = [*prompt[:whole], *self.instead]
        return prompt, reply[min(start, len(reply) - ended) :]

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _is_newline(self, token: int) -> bool:
        text = self.tokenizer.decode([token])
        return bool(text) and not text.strip("\n")


def thinking_of(tokenizer: Any) -> Thinking | None:
    """What a tokenizer's template does with thoughts; None where it does not know of any, or where
    `<think>` is no token of its own, so that thoughts cannot be cut out exactly."""
    ids = [tokenizer.encode(tag, add_special_tokens=False) for tag in (OPEN, CLOSE)]
    if CLOSE not in str(tokenizer.chat_template) or any(len(tag) != 1 for tag in ids):
        return None

    question = {"role": "user", "content": "?"}
    reply = {"role": "assistant", "content": f"{OPEN}\n{_THOUGHT}\n{CLOSE}\n\n{_ANSWER}"}
    prompt = render(tokenizer, [question])
    later = render(tokenizer, [question, reply, question])
    past = later.partition(_ANSWER)[0]
    common = next(
        (i for i, (a, b) in enumerate(zip(prompt, past, strict=False)) if a != b),
        min(len(prompt), len(past)),
    )
    opening, instead = (
        tuple(tokenizer.encode(text[common:], add_special_tokens=False)) for text in (prompt, past)
    )
    return Thinking(
        tokenizer,
        open=ids[0][0],
        close=ids[1][0],
        opened=prompt.rstrip().endswith(OPEN),
        drops=_THOUGHT not in later,
        opening=opening,
        instead=instead,
        special=not tokenizer.decode(ids[1], skip_special_tokens=True),
    )
