"""Demonstrations instead of samples: conversations with the reply that was wanted, as samples.

They go through the learner's own batches: sorted by length and padded within a budget of tokens, so
that any model and any attention will do; or, with `learn.packing`, laid end to end in rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Message, Sample, episode_from_json
from sparring.models.chat import Chat
from sparring.tasks import load_tasks

RECORD = ("system_prompt", "user_prompt", "output")


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A conversation and the reply that is wanted."""

    messages: tuple[tuple[str, str], ...]  # (role, text)
    output: str
    weight: float = 1.0

    @classmethod
    def of(cls, system: str, user: str, output: str, weight: float = 1.0) -> Demonstration:
        head = (("system", system),) if system else ()
        return cls((*head, ("user", user)), output, weight)

    @classmethod
    def from_record(cls, row: Mapping[str, Any], where: str) -> Demonstration:
        """A record `{"system_prompt", "user_prompt", "output"}`; the first may be left out."""
        for key in RECORD:
            value = row.get(key, "" if key == "system_prompt" else None)
            if not isinstance(value, str):
                raise ConfigError(f"{where} has no text under {key!r}; records are of {RECORD}")
        if not row["output"].strip():
            raise ConfigError(f"{where} has an empty output, and there is nothing to learn from it")
        return cls.of(row.get("system_prompt", ""), row["user_prompt"], row["output"])


def read_demonstrations(source: str) -> list[Demonstration]:
    """The records of a JSONL file, in its order; or the replies in its games, if it is one of
    `sparring selfplay`."""
    tasks = load_tasks(source, None)
    if tasks and "episode" in tasks[0].data:
        records = [one for task in tasks for one in _of_game(task.data["episode"])]
        if not records:
            raise ConfigError(f"{source} holds no reply with a positive reward to learn from")
        return records
    return [
        Demonstration.from_record(task.data, f"record {i} of {source}")
        for i, task in enumerate(tasks, 1)
    ]


def _of_game(data: Mapping[str, Any]) -> list[Demonstration]:
    """The whole replies of those who earned something. Turns with prompt ids tell only the last
    message of what they answer; a model that was asked here is learned from as it sampled."""
    episode = episode_from_json(data)
    return [
        Demonstration(
            (*((m["role"], m["content"]) for m in turn.before), ("user", turn.prompt)), turn.text
        )
        for turn in episode.turns
        if episode.void is None
        and episode.rewards[turn.seat] > 0
        and not turn.prompt_ids
        and turn.finish != "length"
        and turn.text.strip()
    ]


def to_sample(
    chat: Chat, demonstration: Demonstration, policy: str = MAIN, *, ended: bool = True
) -> Sample:
    """A demonstration as ids. Only the output is learned from, with the token that ends it, unless
    it was cut off before."""
    messages: list[Message] = [
        {"role": role, "content": text} for role, text in demonstration.messages
    ]
    prompt, output = chat.demonstration(messages, demonstration.output)
    output = output if ended else output[:-1]
    mask = [0] * len(prompt) + [1] * len(output)
    weights = [demonstration.weight * m for m in mask]
    return Sample(policy, [*prompt, *output], mask, weights, [0.0] * len(mask))


def to_samples(
    chat: Chat,
    demonstrations: Iterable[Demonstration],
    policy: str = MAIN,
    limit: int | None = None,
) -> list[Sample]:
    """Demonstrations as samples; those longer than the model's context are left out."""
    samples = [to_sample(chat, one, policy) for one in demonstrations]
    return [s for s in samples if limit is None or len(s.ids) <= limit]
