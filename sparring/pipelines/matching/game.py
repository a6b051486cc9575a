"""Matching reviewers and papers together: each of two players sees a part of the scores, and only
by telling each other what they see can they find the best matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sparring.core.answers import check_style, limit
from sparring.core.game import Game, Outcome, Probe
from sparring.core.table import Table
from sparring.core.types import Episode, Task, View, VoidGame
from sparring.evaluation.arena import with_itself
from sparring.pipelines.matching.measures import CELL_KINDS, MOST_SIZED, by_size, matching_measures
from sparring.pipelines.matching.messages import (
    ACCEPT,
    NOTHING,
    PAPERS,
    REJECT,
    REVIEWERS,
    TERSE_SIZES,
    Action,
    BadAction,
    in_terse,
    in_words,
    is_right,
    mentions,
    parse,
    tell,
    terse_cells,
    terse_length,
    terse_matchings,
)
from sparring.pipelines.matching.tables import (
    MOST,
    UNKNOWN,
    Cell,
    Matching,
    best_matching,
    bounds,
    draw_table,
    own_cells,
    pooled,
    problem_with,
    unscaled,
    value,
    visible_cells,
)
from sparring.run.games import Count, Tokens

NAMED = len(REVIEWERS)  # the largest table that has names for all

AtLeastOne = Annotated[float, Field(ge=1)]


@dataclass
class Talk:
    """Where a game stands. `news` is what a player has not read yet, in the game's words."""

    data: dict[str, Any]
    to_move: str
    offer: Matching | None = None  # waits for an answer of the player to move
    moves: list[dict[str, Any]] = field(default_factory=list)
    news: dict[str, list[Action | str]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def messages_of(self, seat: str) -> list[str]:
        return [m["text"] for m in self.moves if m["seat"] == seat and m["action"] == "message"]


@dataclass
class MatchingGame(Game):
    """Talk, propose, accept: the value of the accepted matching over the best there is, for both.

    A proposal must be answered by the other player before anything else. An action that is none
    costs its player the turn; a player who owes an answer is then asked again. Without an agreement
    within `max_length` turns both get 0.
    """

    title: ClassVar[str] = "Matching"
    seats: ClassVar[tuple[str, ...]] = ("first", "second")
    cooperative: ClassVar[bool] = True

    style: str = "reason"
    size: Annotated[int, Field(ge=0, le=NAMED)] = 0  # reviewers, and papers; 0: 8, and 2 when terse
    max_length: Count = 100  # turns of both together
    see: Annotated[float, Field(gt=0, le=1)] = 0.4  # how likely a player sees a cell
    # Either player alone reaches at most 1/hard of the optimum; 1: any table.
    hard: AtLeastOne = 1.25
    draws: Count = 10_000  # tables drawn to find one that hard
    scales: tuple[AtLeastOne, AtLeastOne] = (1.0, 10.0)
    tell_scale: bool = True  # whether players know their own scale
    # Times the share of turns lost to errors, off both rewards; see docs.
    penalty: Annotated[float, Field(ge=0)] = 0.0
    hints: Count = 1  # cells that one terse message may tell
    spaced: bool = False  # terse letters apart, for tokenizers that would join them: "A d"
    channel: bool = True  # false: messages do not arrive, to see what they are worth
    max_tokens: Tokens = None  # None: as the style needs

    def __post_init__(self) -> None:
        check_style(self.style)
        terse = self.style == "terse"
        self.size = self.size or (TERSE_SIZES[0] if terse else 8)
        if self.size < 2:
            raise ValueError(f"size is {self.size}; tables go from 2 to {NAMED}")
        if terse and self.size not in TERSE_SIZES:
            raise ValueError(f"the terse form is for tables of 2 to 4, not of {self.size}")
        if self.scales[0] > self.scales[1]:
            raise ValueError("scales go from one number to another that is no smaller")

    def task(self, seed: int) -> Task:
        data = draw_table(
            seed,
            self.seats,
            size=self.size,
            see=self.see,
            hard=self.hard,
            draws=self.draws,
            scales=self.scales,
        )
        return Task(id=str(seed), game="matching", data=data)

    def check(self, task: Task) -> None:
        problem = problem_with(task.data, self.seats)
        if problem:
            raise ValueError(f"table {task.id} cannot be played: {problem}")

    async def play(self, task: Task, table: Table) -> Outcome:
        problem = problem_with(task.data, self.seats)
        if problem:
            raise VoidGame(problem)
        talk = Talk(task.data, self.seats[0], news={seat: [] for seat in self.seats})
        for _ in range(self.max_length):
            seat = talk.to_move
            turn = await table[seat].reply(
                self.prompt(talk, seat),
                view=self.view(talk, seat),
                **limit(
                    self.style,
                    terse_length(self.size, self.hints),
                    32 + 12 * len(task.data["table"]),
                    self.max_tokens,
                ),
            )
            talk.asked.add(seat)
            talk.news[seat] = []
            agreed = self._take(talk, seat, turn.text)
            if agreed is not None:
                return self._outcome(talk, agreed)
        return self._outcome(talk, None)

    def _take(self, talk: Talk, seat: str, text: str) -> Matching | None:
        """Apply a reply; the matching that is agreed on now, if one is."""
        other = self.seats[1 - self.seats.index(seat)]
        try:
            action = self._legal(talk, text)
        except BadAction as error:
            talk.moves.append({"seat": seat, "action": "invalid", "error": str(error)})
            talk.news[seat].append(str(error))
            if talk.offer is None:
                talk.to_move = other
            return None
        move: dict[str, Any] = {"seat": seat, "action": action.kind}
        if action.kind == "message":
            move["text"] = action.text
        elif action.matching is not None:
            move["matching"] = list(action.matching)
        talk.moves.append(move)
        if action.kind == "accept":
            return talk.offer
        talk.offer = action.matching
        if self.channel or action.kind != "message":
            talk.news[other].append(action)
        talk.to_move = other
        return None

    def _legal(self, talk: Talk, text: str) -> Action:
        action = parse(text, len(talk.data["table"]), terse=self.style == "terse", hints=self.hints)
        answers = action.kind in ("accept", "reject")
        if answers and talk.offer is None:
            raise BadAction(f"there is no proposal to {action.kind}")
        if not answers and talk.offer is not None:
            raise BadAction("a proposal waits for your answer: [accept] or [reject]")
        return action

    def _outcome(self, talk: Talk, agreed: Matching | None) -> Outcome:
        worth = value(talk.data["table"], agreed) if agreed else 0
        score = worth / talk.data["optimum"]
        errors = sum(move["action"] == "invalid" for move in talk.moves)
        facts = {
            "end": "agreement" if agreed else "cap",
            "agreed": agreed is not None,
            "score": score,
            "value": worth,
            "optimum": talk.data["optimum"],
            "matching": list(agreed) if agreed else None,
            "turns": len(talk.moves),
            "moves": talk.moves,
            "errors": errors,
            "shared": self.information_shared(talk.data, talk.moves, agreed),
            "bounds": bounds(talk.data),
        }
        reward = score - self.penalty * errors / len(talk.moves)
        return Outcome({seat: reward for seat in self.seats}, facts=facts)

    def information_shared(
        self, data: Mapping[str, Any], moves: list[dict[str, Any]], agreed: Matching | None
    ) -> dict[str, int]:
        """How much was passed on. `private`: cells that one player alone sees. `mentioned`: cells
        given a value in messages; `correct`: by someone who sees that value; `new`: to someone
        who does not see the cell; `used`: and it is part of what was agreed on."""
        counts = dict.fromkeys(CELL_KINDS, 0)
        size, terse = len(data["table"]), self.style == "terse"
        for seat in self.seats:
            other = self.seats[1 - self.seats.index(seat)]
            true, theirs = own_cells(data, seat), own_cells(data, other)
            messages = [m["text"] for m in moves if m["seat"] == seat and m["action"] == "message"]
            mentioned = [m for text in messages for m in mentions(text, size, terse=terse)]
            right = {m.cell for m in mentioned if is_right(m, true, visible_cells(data, seat))}
            new = {cell for cell in right if cell not in theirs}
            counts["private"] += sum(cell not in theirs for cell in true)
            counts["mentioned"] += len({m.cell for m in mentioned})
            counts["correct"] += len(right)
            counts["new"] += len(new)
            counts["used"] += sum(agreed is not None and agreed[r] == p for r, p in new)
        return counts

    def view(self, talk: Talk, seat: str) -> View:
        """What a program may know. Its legal actions are answers, or some of the proposals."""
        size, terse = len(talk.data["table"]), self.style == "terse"
        actions: tuple[str, ...]
        if talk.offer is not None:
            actions = (ACCEPT, REJECT) if terse else ("[accept]", "[reject]")
        elif terse:
            actions = tuple(terse_matchings(size))
        else:
            turned = [tuple((r + by) % size for r in range(size)) for by in range(size)]
            actions = tuple(Action("propose", matching=m).words() for m in turned)
        other = self.seats[1 - self.seats.index(seat)]
        state = {
            "size": size,
            "cells": visible_cells(talk.data, seat),
            "scale": talk.data["scales"][seat] if self.tell_scale else None,
            "offer": talk.offer,
            "shared": bool(talk.messages_of(seat)),
            "heard": talk.messages_of(other) if self.channel else [],
        }
        return View(state=state, actions=actions)

    def measures(self, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
        return matching_measures(episodes)

    async def closing(self, name: str, policy: Probe) -> dict[str, Any]:
        """The same at other sizes of table, and at its own with messages that do not arrive."""
        plan: dict[str, Any] = {"seed": policy.seed, "sampling": policy.sampling}
        games = min(MOST_SIZED, policy.replies)
        sized = await by_size(name, self, policy.speak, policy.policy, games, **plan)
        cut = replace(self, channel=False)
        alone = await with_itself(name, cut, policy.speak, policy.policy, policy.replies, **plan)
        return {"by_size": sized, "channel_cut": matching_measures(alone)}

    def reply_score(self, task: Task, text: str) -> float | None:
        """A matching that is asked for in one turn, scored as if the partner accepted it."""
        table = task.data["table"]
        try:
            action = parse(text, len(table), terse=self.style == "terse", hints=self.hints)
        except BadAction:
            return 0.0
        return value(table, action.matching) / task.data["optimum"] if action.matching else 0.0

    def record(self, episode: Episode) -> dict[str, Any]:
        """The table, and each private view as a grid, null where nothing is seen."""
        data = episode.task.data
        positions = range(len(data["table"]))

        def view(seat: str) -> dict[str, Any]:
            cells = visible_cells(data, seat)
            grid = [[cells.get((row, column)) for column in positions] for row in positions]
            return {"cells": grid, "scale": data["scales"][seat]}

        return {"table": data["table"], "views": {seat: view(seat) for seat in data["seen"]}}

    def scripted(self, view: View, seed: int) -> str:
        """A player that pools: it tells all it sees, proposes the best of what both see once it
        was told, and accepts what is proposed after it has told. Two of them reach the optimum; in
        the terse style, where good and poor is all that can be told, what that allows."""
        state = view.state
        terse, size = self.style == "terse", state["size"]
        own = self._unscaled(state["cells"], state["scale"])
        if state["offer"] is not None:
            action = Action("accept" if state["shared"] else "reject")
        elif state["heard"] or state["shared"]:
            mentioned = [m for text in state["heard"] for m in mentions(text, size, terse=terse)]
            if terse:
                heard = {m.cell: _graded(m.high) for m in mentioned}
                own = {cell: _graded(worth >= UNKNOWN) for cell, worth in own.items()}
            else:
                heard = {m.cell: min(m.value, MOST) for m in mentioned if m.value is not None}
            action = Action("propose", matching=best_matching(pooled(size, heard, own)))
        else:
            letters = terse_cells(own, size)[: self.hints] or NOTHING if terse else tell(own)
            action = Action("message", letters)
        return self._apart(in_terse(action, size)) if terse else action.words()

    def _unscaled(self, cells: Mapping[Cell, int], scale: float | None) -> dict[Cell, float]:
        """Own cells by their true values; without the scale, as if the largest were near 99."""
        by = scale or max(1.0, max(cells.values(), default=MOST) / MOST)
        return {cell: unscaled(worth, by) for cell, worth in cells.items()}

    # Prompts

    def prompt(self, talk: Talk, seat: str) -> str:
        """The prompt of this turn; the conversation holds the earlier ones."""
        if self.style == "terse":
            return self._terse_prompt(talk, seat)
        lines = [] if seat in talk.asked else [self._rules(talk.data), self._sees(talk.data, seat)]
        lines += [_news_line(item) for item in talk.news[seat]]
        if not talk.news[seat] and not talk.moves:
            lines.append("You begin.")
        elif not talk.news[seat]:
            lines.append("Your partner's turn passed without an action.")
        lines.append(self._ask(talk))
        return "\n".join(lines)

    def _rules(self, data: Mapping[str, Any]) -> str:
        size = len(data["table"])
        goal = (
            f"You and a partner match {size} reviewers with {size} papers, one paper each. Every "
            "pair has a score, and the sum over your matching counts, the same for both of you. "
            f"Each of you sees only some scores; one that neither sees counts {UNKNOWN}."
        )
        if self.style == "short":
            return goal
        return (
            f"{goal} Your scores and your partner's are shown multiplied by a private scale each, "
            "so tell each other what you see before you compare. You take turns, and one turn is "
            "one action: [message] and words to your partner; [propose] and a matching of all "
            "reviewers; when your partner has proposed, [accept], which ends the game, or "
            f"[reject]. After {self.max_length} turns without an agreement you both get nothing. "
            "An action that breaks these rules costs you the turn. Your partner sees your action, "
            "not your reasoning."
        )

    def _sees(self, data: Mapping[str, Any], seat: str) -> str:
        size, cells = len(data["table"]), visible_cells(data, seat)
        scale = f", multiplied by {data['scales'][seat]:g}" if self.tell_scale else ", scaled"
        rows = [f"The scores you see{scale if data['scales'][seat] != 1 else ''}:"]
        for r in range(size):
            row = [f"{PAPERS[c]} {cells[r, c]}" for c in range(size) if (r, c) in cells]
            rows.append(f"{REVIEWERS[r]}: {', '.join(row) or 'nothing'}")
        if not cells:
            rows.append("You see no score; ask your partner.")
        return "\n".join([*rows, f"Papers: {', '.join(PAPERS[:size])}."])

    def _ask(self, talk: Talk) -> str:
        if talk.offer is not None:
            what = "[accept] or [reject]"
        else:
            example = in_words(tuple(reversed(range(len(talk.data["table"])))))
            what = f"[message] and words, or a matching such as: [propose] {example}"
        if self.style == "reason":
            return f"Reason step by step, and put one action in \\boxed{{}}: {what}"
        return f"Answer only with {what}"

    def _terse_prompt(self, talk: Talk, seat: str) -> str:
        """The own cells by the letters that messages use too, so that what is seen and what is
        heard are the same tokens. Then what the partner did: a dash for nothing, and before it
        an exclamation mark for an own error."""
        size, cells = len(talk.data["table"]), own_cells(talk.data, seat)
        marks = [
            in_terse(item, size) if isinstance(item, Action) else "!" for item in talk.news[seat]
        ]
        heard = "".join(marks) or "-"
        return self._apart(heard if seat in talk.asked else f"{terse_cells(cells, size)}:{heard}")

    def _apart(self, letters: str) -> str:
        return " ".join(letters) if self.spaced else letters


def _graded(high: bool | None) -> float:
    """A cell of which only that it is good or poor is known, at its expected value."""
    return MOST * (0.75 if high else 0.25)


def _news_line(item: Action | str) -> str:
    """One piece of news in words: what the partner did, or what was wrong with the own action."""
    if isinstance(item, str):
        return f"Error: {item}. You lost the turn."
    if item.kind == "message":
        return f"Your partner says: {item.text}"
    if item.matching is not None:
        return f"Your partner proposes: {in_words(item.matching)}"
    return "Your partner rejects your proposal."
