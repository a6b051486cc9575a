"""Picks a handful of games and replays them, with each player's prompts and replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from sparring.core.formatting import esc, likelihood, signed
from sparring.core.game import Frame, Game
from sparring.core.types import Episode, Turn, Verdict
from sparring.run.games import load_game
from sparring.view.markup import SEAT_COLOURS, game_name, seat_name

PER_STAGE = 4
PER_KIND = 2  # of one game against one opponent
LONGEST = 6000  # characters of one text that are drawn


def pick(episodes: list[Episode], most: int = PER_STAGE) -> list[Episode]:
    """A few unlike games: each game and pairing first, then other endings of the same."""
    seen: dict[tuple[Any, ...], int] = {}
    ranked = []
    for at, episode in enumerate(episodes):
        kind = (episode.game, tuple(sorted(set(episode.seating.values()))))
        ending = (*kind, episode.facts.get("end"), episode.facts.get("winner"), episode.void)
        if seen.get(ending):
            continue
        round_ = seen.get(kind, 0)
        seen[ending] = 1
        seen[kind] = round_ + 1
        if round_ < PER_KIND:
            ranked.append((round_, at, episode))
    chosen = sorted(ranked, key=lambda r: r[:2])[:most]
    return [episode for _, _, episode in sorted(chosen, key=lambda r: r[1])]


def replays(stages: list[tuple[str, list[Episode]]]) -> str:
    """A list to choose from beside the game chosen."""
    links: list[str] = []
    articles: list[str] = []
    for title, episodes in stages:
        items = []
        for episode in pick(episodes):
            name = f"replay-{len(articles) + 1}"
            items.append(_link(name, episode))
            articles.append(_article(name, title, episode))
        links.append(f"<h4>{esc(title)}</h4><ul>{''.join(items)}</ul>")
    if not articles:
        return ""
    return (
        f'<div class="replays"><nav class="picker" aria-label="Games">{"".join(links)}</nav>'
        f'<div class="shown">{"".join(articles)}</div></div>'
    )


def ending(episode: Episode) -> tuple[str, str]:
    """How a game ended, in words, and in one of: win draw foul void."""
    if episode.void is not None:
        return f"Void: {_short(episode.void, 120)}", "void"
    facts, words = episode.facts, outcome(episode.facts, episode.rewards, None)
    if facts.get("end") == "invalid":
        return f"{words}: {facts.get('reason', 'an invalid move')}", "foul"
    return words, "win" if words.endswith((" wins", " ahead")) else "draw"


def outcome(facts: Mapping[str, Any], rewards: Mapping[str, float], void: str | None) -> str:
    """How a game ended, in as few words as games can be sorted by."""
    if void is not None:
        return "Void"
    if facts.get("end") == "invalid":
        return f"{seat_name(str(facts.get('invalid', '?')))} forfeits"
    if facts.get("winner"):
        return f"{seat_name(str(facts['winner']))} wins"
    if facts.get("end") == "draw":
        return "Draw"
    if facts.get("end") == "cap":
        return "No result within the turns allowed"
    if rewards and len(set(rewards.values())) == 1:
        return f"Reward {signed(next(iter(rewards.values())))}"
    best = max(rewards, key=lambda seat: rewards[seat], default=None)
    return f"{seat_name(best)} ahead" if best else "Finished"


def _link(name: str, episode: Episode) -> str:
    words, kind = ending(episode)
    return (
        f'<li><a href="#{name}">{_thumbnail(episode)}<span><b>{esc(game_name(episode.game))}</b>'
        f"<small>{esc(' v '.join(_policies(episode)))}</small>"
        f'<small class="ended {kind}">{esc(words)}</small></span></a></li>'
    )


def _policies(episode: Episode) -> list[str]:
    return [_short(policy, 24) for policy in episode.seating.values()]


def _thumbnail(episode: Episode) -> str:
    game = _game(episode.game)
    glyph = Game.glyph if game is None else game.glyph
    drawn = [] if glyph else frames(episode)
    return drawn[-1].scene if drawn else f'<span class="glyph">{esc(glyph or Game.glyph)}</span>'


def frames(episode: Episode) -> list[Frame]:
    """The drawn replay, or nothing where the game is not drawn or its record does not allow it."""
    game = _game(episode.game) or _game(episode.task.game)
    if game is None or episode.void is not None or not episode.turns:
        return []
    try:
        return game.board(episode)
    except Exception:  # facts of another shape; the conversation can still be read
        return []


@cache
def _game(name: str) -> Game | None:
    """The game of this name, or none where it cannot be loaded here."""
    try:
        return load_game(name)
    except Exception:
        return None


def _article(name: str, stage: str, episode: Episode) -> str:
    words, kind = ending(episode)
    drawn = frames(episode)
    body = _steps(drawn, episode) if drawn else _conversation(episode)
    seats = "".join(
        f'<li class="seat-{at % SEAT_COLOURS}"><b>{esc(seat_name(seat))}</b> {esc(policy)}'
        f"{_reward(episode, seat)}</li>"
        for at, (seat, policy) in enumerate(episode.seating.items())
    )
    return (
        f'<article class="card replay" id="{name}"><header><div><p class="tag">{esc(stage)}</p>'
        f'<h3>{esc(game_name(episode.game))}</h3></div><p class="ended {kind}">{esc(words)}</p>'
        f'</header><ul class="seats">{seats}</ul>{body}</article>'
    )


def _reward(episode: Episode, seat: str) -> str:
    reward = episode.rewards.get(seat)
    return "" if reward is None else f' <span class="reward">{signed(reward)}</span>'


def _steps(drawn: list[Frame], episode: Episode) -> str:
    parts = []
    for frame in drawn:
        mood = f" {frame.mood}" if frame.mood else ""
        note = f'<p class="note{mood}">{esc(frame.note)}</p>' if frame.note else ""
        talk = f"{_speaker(frame.turn, episode)}{note}{_texts(frame.turn)}" if frame.turn else note
        parts.append(
            f'<div class="frame" data-label="{esc(frame.label)}">'
            f'<div class="stage">{frame.scene}</div><div class="talk">{talk}</div></div>'
        )
    return f'<div class="frames">{"".join(parts)}</div>'


def _speaker(turn: Turn, episode: Episode) -> str:
    extras = []
    if turn.token_ids:
        extras.append(f"{len(turn.token_ids)} token{'s' if len(turn.token_ids) > 1 else ''}")
    if turn.logprobs:
        extras.append(f"said with {likelihood(min(0.0, sum(turn.logprobs)))}")
    if turn.finish == "length" and len(turn.token_ids) > 1:
        extras.append("cut off at the token limit")
    seats = list(episode.seating)
    colour = seats.index(turn.seat) % SEAT_COLOURS if turn.seat in seats else 0
    return (
        f'<p class="speaker seat-{colour}"><b>{esc(seat_name(turn.seat))}</b> {esc(turn.policy)}'
        f"<small>{' · '.join(extras)}</small></p>"
    )


def _texts(turn: Turn) -> str:
    words = (
        f"<pre>{esc(_short(turn.text))}</pre>"
        if turn.text.strip()
        else '<p class="empty">Nothing.</p>'
    )
    return (
        f'<div class="text saw"><h5>Saw</h5><pre>{esc(_short(turn.prompt))}</pre></div>'
        f'<div class="text said"><h5>Said</h5>{words}</div>'
    )


def _conversation(episode: Episode) -> str:
    """Any game at all: prompts and replies by seat."""
    seats = list(episode.seating)
    turns = []
    for turn in episode.turns:
        side = seats.index(turn.seat) % 2 if turn.seat in seats else 0
        turns.append(
            f'<li class="side-{side}">{_speaker(turn, episode)}<details><summary>What it saw'
            f"</summary><pre>{esc(_short(turn.prompt))}</pre></details>"
            f'<pre class="said">{esc(_short(turn.text))}</pre></li>'
        )
    spoken = f'<ol class="chat">{"".join(turns)}</ol>' if turns else "<p>Nobody spoke.</p>"
    verdicts = "".join(_verdict(verdict) for verdict in episode.verdicts)
    ruled = f'<h5>Rulings</h5><ul class="verdicts">{verdicts}</ul>' if verdicts else ""
    return f"{spoken}{ruled}{_facts(episode)}"


def _verdict(verdict: Verdict) -> str:
    words = ": ".join(part for part in (verdict.kind, _short(verdict.detail, 400)) if part)
    return f'<li class="{esc(verdict.status)}"><b>{esc(verdict.status)}</b> {esc(words)}</li>'


def _facts(episode: Episode) -> str:
    if not episode.facts:
        return ""
    text = json.dumps(episode.facts, indent=2, ensure_ascii=False, default=str)
    return f"<details><summary>Facts on record</summary><pre>{esc(_short(text))}</pre></details>"


def _short(text: object, most: int = LONGEST) -> str:
    text = str(text)
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"
