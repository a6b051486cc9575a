"""One recorded game as the view shows it: frames, each player's prompt and reply token by token,
verdicts, facts and differences between programs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from sparring.core.types import Episode, Turn
from sparring.view import token_text
from sparring.view.markup import SEAT_COLOURS, game_name, seat_name
from sparring.view.replays import ending, frames

_ALIKE = 0.5  # texts less alike than this are not two versions of one program
_MOST_DIFFS = 3


def game_data(episode: Episode, config: Mapping[str, Any]) -> dict[str, Any]:
    words, kind = ending(episode)
    seats = list(dict.fromkeys([*episode.seating, *(turn.seat for turn in episode.turns)]))
    positions = {id(turn): at for at, turn in enumerate(episode.turns)}
    return {
        "id": episode.id,
        "game": episode.game,
        "title": game_name(episode.game),
        "task": {"id": episode.task.id, "data": episode.task.data},
        "seed": str(episode.seed),  # of 63 bits, which a browser's numbers cannot hold
        "group": episode.group,
        "ending": {"words": words, "kind": kind},
        "seats": [
            {
                "seat": seat,
                "name": seat_name(seat),
                "policy": episode.seating.get(seat, ""),
                "reward": episode.rewards.get(seat),
                "colour": f"seat-{at % SEAT_COLOURS}",
            }
            for at, seat in enumerate(seats)
        ],
        "frames": [
            {
                "label": frame.label,
                "scene": frame.scene,
                "turn": positions.get(id(frame.turn)) if frame.turn else None,
                "note": frame.note,
                "mood": frame.mood,
            }
            for frame in frames(episode)
        ],
        "turns": [_turn(turn, config) for turn in episode.turns],
        "verdicts": [asdict(verdict) for verdict in episode.verdicts],
        "facts": episode.facts,
        "void": episode.void,
        "diffs": list(_diffs(episode)),
        "pending": token_text.pending(),  # ask again: the text of single tokens is not there yet
    }


def _turn(turn: Turn, config: Mapping[str, Any]) -> dict[str, Any]:
    texts = token_text.pieces(config, turn.policy, turn.token_ids) if turn.token_ids else []
    exact = token_text.decode(config, turn.policy, turn.prompt_ids) if turn.prompt_ids else None
    past = "".join(f"[{m.get('role')}]\n{m.get('content')}\n\n" for m in turn.before)
    shared = turn.advantages if len(turn.advantages) == 1 else []
    by_token = shared * len(turn.token_ids) if shared else turn.advantages
    return {
        "seat": turn.seat,
        "policy": turn.policy,
        "version": turn.version,
        "stage": turn.stage,
        "finish": turn.finish,
        "temperature": turn.temperature,
        "truncated": turn.truncated,
        "learned": turn.trainable,
        "shown": past + turn.prompt,
        "prompt": exact,  # as the model read it, with the template's own tokens
        "text": turn.text,
        "tokens": [
            {
                "id": token,
                "text": None if texts is None else texts[at],
                "logprob": turn.logprobs[at] if at < len(turn.logprobs) else None,
                "advantage": by_token[at] if at < len(by_token) else None,
            }
            for at, token in enumerate(turn.token_ids)
        ],
        "advantage": sum(turn.advantages) / len(turn.advantages) if turn.advantages else None,
    }


def _diffs(episode: Episode) -> Iterator[dict[str, Any]]:
    """Texts of several lines on record that are versions of one another, line by line."""
    named = dict((*_texts(episode.task.data), *_texts(episode.facts)))
    texts = list({text: (name, text) for name, text in reversed(named.items())}.values())[::-1]
    count = 0
    for at, (name, text) in enumerate(texts):
        for other_name, other in texts[at + 1 :]:
            lines, others = text.splitlines(), other.splitlines()
            if count == _MOST_DIFFS or "prompt" in name or "prompt" in other_name:
                continue
            if difflib.SequenceMatcher(None, lines, others).ratio() < _ALIKE:
                continue
            count += 1
            rows = [(row[0], row[2:]) for row in difflib.ndiff(lines, others) if row[0] != "?"]
            yield {"from": name, "to": other_name, "rows": rows}


def _texts(data: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, str) and data.strip().count("\n") >= 1:
        yield name, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(value, f"{name} {key}".strip())
