"""How likely a policy's reply is each of the legal actions, at many prompts at once.

Shapes: B prompts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sparring.core.answers import answer, named
from sparring.core.tree import Infoset
from sparring.core.types import Sampling
from sparring.engines.local.sampling import Trie, chances, mask_logits
from sparring.models.chat import Chat

TOKENS = 16384  # of prompts that are read at once
CPU_TOKENS = 2048  # what a CPU's caches hold
LOGITS = 2**24  # that exist at once

Readings = Mapping[str, list[int]]  # what a reply of one token is read as, lower case -> the tokens


def token_readings(chat: Chat, vocabulary: int) -> dict[str, list[int]]:
    """Made once for a tokenizer: to ask each prompt about each token would take hours."""
    tokens_of: dict[str, list[int]] = {}
    for token in range(vocabulary):
        tokens_of.setdefault(answer(chat.decode([token])).casefold(), []).append(token)
    return tokens_of


@torch.inference_mode()
def action_probabilities(
    model: Any, chat: Chat, asked: Sequence[Infoset], sampling: Sampling, readings: Readings
) -> list[list[float]]:
    """Per prompt, the probability of each of its actions as the reply. What is missing to 1 names
    none of them."""
    prompts = [chat.ids_of([{"role": "user", "content": i.prompt}]) for i in asked]
    if sampling.mask_actions:
        return _masked(model, chat, asked, prompts, sampling)
    if sampling.max_tokens != 1:
        raise ValueError(f"replies of {sampling.max_tokens} tokens are too many to sum over")
    probabilities: list[list[float]] = [[] for _ in asked]
    tokens = {
        actions: _tokens(chat, actions, readings) for actions in {i.actions for i in asked}
    }  # games have fewer sets of legal actions than positions
    for rows, logits_BV in _next_logits(model, prompts):
        for row, chances_V in zip(rows, chances(logits_BV, sampling), strict=True):
            of_actions = tokens[asked[row].actions]
            probabilities[row] = [float(chances_V[ids].sum()) for ids in of_actions]
    return probabilities


def _tokens(chat: Chat, actions: tuple[str, ...], readings: Readings) -> list[list[int]]:
    """The tokens that are read as each action."""
    alike = (readings.get(action.casefold(), []) for action in actions)
    return [
        [token for token in tokens if named(chat.decode([token]), actions) == number]
        for number, tokens in enumerate(alike)
    ]


def _masked(
    model: Any,
    chat: Chat,
    asked: Sequence[Infoset],
    prompts: list[list[int]],
    sampling: Sampling,
) -> list[list[float]]:
    """Each action's tokens among those that a legal action may go on with there."""
    spelled = [[chat.encode(action) for action in i.actions] for i in asked]
    tries = [Trie(actions, chat.end_id) for actions in spelled]
    points = []  # where there is a choice: prompt, the reply so far, what may follow
    for number, (trie, actions) in enumerate(zip(tries, spelled, strict=True)):
        prefixes = {tuple(a[:n]) for a in actions for n in range(len(a) + 1)}
        choices = ((prefix, trie.allowed(prefix)) for prefix in sorted(prefixes))
        points += [(number, prefix, allowed) for prefix, allowed in choices if len(allowed) > 1]
    drawn: dict[tuple[int, tuple[int, ...]], dict[int, float]] = {}
    for rows, logits_BV in _next_logits(model, [prompts[n] + list(p) for n, p, _ in points]):
        allowed = [points[row][2] for row in rows]
        chances_BV = chances(mask_logits(logits_BV, allowed), sampling)
        for row, tokens, chances_V in zip(rows, allowed, chances_BV, strict=True):
            number, prefix, _ = points[row]
            drawn[number, prefix] = dict(zip(tokens, chances_V[tokens].tolist(), strict=True))
    return [
        [_product(number, [*action, chat.end_id], drawn) for action in actions]
        for number, actions in enumerate(spelled)
    ]


def _product(
    number: int, tokens: list[int], drawn: Mapping[tuple[int, tuple[int, ...]], dict[int, float]]
) -> float:
    total = 1.0
    for i, token in enumerate(tokens):
        total *= drawn.get((number, tuple(tokens[:i])), {}).get(token, 1.0)
    return total


def _next_logits(
    model: Any, sequences: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], Tensor]]:
    """The logits after each sequence, in batches of like lengths: their numbers and B×V. Padded on
    the right: a token sees only what comes before it. Equal sequences are read once."""
    numbers: dict[tuple[int, ...], list[int]] = {}
    for number, sequence in enumerate(sequences):
        numbers.setdefault(tuple(sequence), []).append(number)
    left = sorted(numbers, key=len)
    most = CPU_TOKENS if model.device.type == "cpu" else TOKENS
    words = model.config.get_text_config().vocab_size
    while left:
        batch = left[:1]
        for ids in left[1:]:
            held = (len(batch) + 1) * (len(ids) - len(batch[0]) + 1) * words
            if (len(batch) + 1) * len(ids) > most or held > LOGITS:
                break
            batch.append(ids)
        left = left[len(batch) :]
        shortest, longest = len(batch[0]), len(batch[-1])
        padded = [[*ids, *[0] * (longest - len(ids))] for ids in batch]
        logits = model(
            input_ids=torch.tensor(padded, device=model.device),
            logits_to_keep=longest - shortest + 1,
        ).logits
        rows = [row for row, ids in enumerate(batch) for _ in numbers[ids]]
        last = [len(batch[row]) - shortest for row in rows]
        yield [number for ids in batch for number in numbers[ids]], logits[rows, last]
