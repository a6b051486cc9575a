"""OpenSpiel's games at our table: `openspiel:GAMESTRING`, such as `openspiel:leduc_poker`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, lru_cache, partial
from types import new_class
from typing import Any, ClassVar, NamedTuple

import pyspiel

from sparring.bridges.openspiel_loading import ORDINALS, load_spiel
from sparring.bridges.openspiel_prompts import (
    RULES,
    action_names,
    code_length,
    state_in_words,
    terse_state,
)
from sparring.core.answers import ask, check_style, limit, named
from sparring.core.game import Forfeit, Game, Outcome
from sparring.core.table import Table
from sparring.core.tree import Branch, Infoset, Tree, TreeTooLarge, cost_of_forfeit, grow
from sparring.core.types import Task, Turn, View, VoidGame
from sparring.evaluation.best_response import best_actions
from sparring.run.games import Count, Tokens

Kind = pyspiel.GameType
# A board says all that matters in these, however it came about.
BOARDS = ("tic_tac_toe", "connect_four", "mnk", "breakthrough", "nim", "hex", "y", "clobber")
# A terse player is told how the board came about, and may answer each way differently.
TOLD_BY_MOVES = ("connect_four",)
SOLVED = {"most": 6_000, "most_nodes": 10_000}  # of a game that is small enough to be solved
CFR_ITERATIONS = 100


class Position(NamedTuple):
    """What programs look at: `state` only where nothing is hidden. As text, what a person reads."""

    key: str
    player: int
    state: Any
    describe: Callable[[], str]
    names: Callable[[], tuple[str, ...]]  # of the legal actions, in words

    def __str__(self) -> str:
        return self.describe()


@dataclass
class OpenSpielGame(Game):
    """Any game of OpenSpiel; `open_game` makes the class of each."""

    spiel: ClassVar[Any] = None
    string: ClassVar[str] = ""
    glyph: ClassVar[str] = "♟"

    style: str = "reason"
    invalid: float | None = None  # to whoever names no legal action; None: the game's worst
    invalid_other: float = 0.0
    cap: Count = 1000  # moves in all; a game cut short by it is void
    max_tokens: Tokens = None  # None: as the style needs

    def __post_init__(self) -> None:
        check_style(self.style)
        if self.invalid is None:
            self.invalid = max(float(self.spiel.min_utility()), -1e6)

    async def play(self, task: Task, table: Table) -> Outcome:
        state, rng = self.spiel.new_initial_state(), random.Random(task.data["seed"])
        moves = 0
        try:
            while not state.is_terminal():
                if moves >= self.cap:
                    raise VoidGame(f"{self.string} went on for more than {self.cap} moves")
                moves += 1
                if state.is_chance_node():
                    drawn = dict(state.chance_outcomes())
                    if not drawn:
                        raise VoidGame(f"OpenSpiel's {self.string} has no outcome of chance here")
                    state.apply_action(rng.choices(list(drawn), list(drawn.values()))[0])
                    continue
                players = self.movers(state)
                turns = await asyncio.gather(*(self.ask(table, state, p) for p in players))
                numbers = [
                    named(turn.text, self.actions(state, p))
                    for turn, p in zip(turns, players, strict=True)
                ]
                if None in numbers:
                    return self.forfeit(players[numbers.index(None)], state)
                self.apply(state, players, [n for n in numbers if n is not None])
        except pyspiel.SpielError as error:
            raise VoidGame(f"OpenSpiel: {str(error).splitlines()[0]}") from error
        rewards = dict(zip(self.seats, state.returns(), strict=True))
        return Outcome(rewards, facts={"end": "over", "moves": _history(state)})

    def forfeit(self, player: int, state: Any) -> Outcome:
        assert self.invalid is not None
        return Forfeit(self.invalid, self.invalid_other).outcome(
            self.seats, self.seats[player], "not a legal action", moves=_history(state)
        )

    async def ask(self, table: Table, state: Any, player: int) -> Turn:
        return await table[self.seats[player]].act(
            self.prompt(state, player),
            view=View(self.position(state, player), self.actions(state, player)),
            **self.limits(),
        )

    def limits(self) -> dict[str, Any]:
        """The sampling the game asks for; what it leaves open is the recipe's."""
        return limit(self.style, code_length(self.spiel), 16, self.max_tokens)

    def movers(self, state: Any) -> list[int]:
        if not state.is_simultaneous_node():
            return [state.current_player()]
        return [p for p in range(len(self.seats)) if state.legal_actions(p)]

    def apply(self, state: Any, players: list[int], numbers: list[int]) -> None:
        """Move with the chosen actions, given by their index among the legal ones."""
        chosen = dict(zip(players, numbers, strict=True))
        if not state.is_simultaneous_node():
            state.apply_action(state.legal_actions()[numbers[0]])
            return
        joint = [
            state.legal_actions(p)[chosen[p]] if p in chosen else 0 for p in range(len(self.seats))
        ]
        state.apply_actions(joint)

    def actions(self, state: Any, player: int) -> tuple[str, ...]:
        return action_names(self.spiel, state, player, self.style == "terse")

    def prompt(self, state: Any, player: int) -> str:
        if self.style == "terse":
            return terse_state(self.spiel, state, player)
        kind = self.spiel.get_type()
        rules = RULES.get(kind.short_name) if len(self.seats) == 2 else None
        title = f"You are playing {kind.long_name} as player {player} of {len(self.seats)}."
        names = ", ".join(self.actions(state, player))
        closing = ask(self.style, "one of these actions")
        lines = [rules or title, state_in_words(self.spiel, state, player)]
        return "\n".join([*lines, f"Legal actions: {names}", closing])

    def position(self, state: Any, player: int) -> Position:
        now = state.clone()
        return Position(
            self.key(state, player),
            player,
            now if self.open_board else None,
            partial(state_in_words, self.spiel, now, player),
            partial(action_names, self.spiel, now, player, terse=False),
        )

    def action_names(self, view: View) -> tuple[str, ...]:
        names: tuple[str, ...] = view.state.names()
        return names

    def key(self, state: Any, player: int) -> str:
        """What tells one information state from another."""
        kind = self.spiel.get_type()
        if kind.short_name in BOARDS:
            return f"{player} {state}"
        if kind.provides_information_state_string:
            return f"{player} {state.information_state_string(player)}"
        return f"{player} {state.history_str()}" if self.open_board else ""

    @property
    def open_board(self) -> bool:
        return bool(self.spiel.get_type().information == Kind.Information.PERFECT_INFORMATION)

    def options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.init}

    def tree(self) -> Tree | None:
        """All positions, or none where they are too many."""
        tree = _tree(self.string, **self.options())
        return None if isinstance(tree, TreeTooLarge) else tree

    def need_tree(self) -> Tree:
        tree = _tree(self.string, **self.options())
        if isinstance(tree, TreeTooLarge):
            raise tree.with_size()
        return tree


@lru_cache(maxsize=8)  # a run loads its games several times
def _tree(string: str, **options: Any) -> Tree | TreeTooLarge:
    try:
        return make_tree(open_game(string)(**options))
    except TreeTooLarge as error:
        return error


def make_tree(game: OpenSpielGame, **limits: int) -> Tree:
    """All positions; `limits` are `grow`'s."""
    kind = game.spiel.get_type()
    if kind.chance_mode == Kind.ChanceMode.SAMPLED_STOCHASTIC:
        raise TreeTooLarge(f"{game.string} draws its chance inside, where nobody can look")
    if not (kind.provides_information_state_string or game.open_board):
        raise TreeTooLarge(
            f"{game.string} tells what a player observes and not what it knows, so that "
            "information states cannot be told apart. A match is an estimate: sparring arena "
            "POLICY --against random"
        )
    assert game.invalid is not None
    forfeits = cost_of_forfeit(len(game.seats), game.invalid, game.invalid_other)
    boards = kind.short_name in BOARDS
    merged = boards and not (game.style == "terse" and kind.short_name in TOLD_BY_MOVES)

    def expand(at: tuple[Any, tuple[int, ...]]) -> Branch:
        """A state, and what those have chosen who move at the same time."""
        state, chosen = at
        if state.is_terminal():
            return Branch(rewards=state.returns())
        if state.is_chance_node():
            drawn = dict(state.chance_outcomes())
            if not drawn:
                raise TreeTooLarge(f"{game.string} has no outcome of chance at one of its nodes")
            children = [(state.child(outcome), ()) for outcome in drawn]
            return Branch(children=children, chances=list(drawn.values()))
        players = game.movers(state)
        player = players[len(chosen)]
        names, prompt = game.actions(state, player), game.prompt(state, player)
        key = game.key(state, player)
        if boards and not merged:
            key = f"{key} {prompt}"
        infoset = Infoset(key, game.seats[player], prompt, names, game.position(state, player))
        if len(chosen) + 1 < len(players):
            return Branch(infoset, [(state, (*chosen, n)) for n in range(len(names))])
        children = []
        for number in range(len(names)):
            after = state.clone()
            game.apply(after, players, [*chosen, number])
            children.append((after, ()))
        return Branch(infoset, children)

    def same(at: tuple[Any, tuple[int, ...]]) -> str | None:
        state = at[0]
        return None if state.is_terminal() else f"{state.current_player()} {state}"

    root = (game.spiel.new_initial_state(), ())
    tree = Tree(game.seats, forfeits, game.limits())
    name = f"openspiel:{game.string}"
    return grow(tree, root, expand, same=same if merged else None, name=name, **limits)


# ── programs ────────────────────────────────────────────────────────────────────────────────────


@cache
def _solution(string: str) -> dict[str, tuple[int, ...]]:
    """Per position, the actions that keep its value, by minimax."""
    tree = make_tree(open_game(string)(style="short"))
    best = best_actions(tree)
    return {infoset.key: best[i] for i, infoset in enumerate(tree.infosets)}


def play_perfectly(self: OpenSpielGame, view: View, seed: int) -> str:
    """One of the actions that keep the value of the position, picked by the seed."""
    return view.actions[random.Random(seed).choice(_solution(self.string)[view.state.key])]


def play_by_search(self: OpenSpielGame, view: View, seed: int) -> str:
    """OpenSpiel's Monte Carlo tree search, 200 simulations of one random roll-out each."""
    rollouts = pyspiel.RandomRolloutEvaluator(1, seed % 2**31)
    bot = pyspiel.MCTSBot(
        self.spiel, rollouts, 2.0, 200, 1000, True, seed % 2**31, False,
        pyspiel.ChildSelectionPolicy.UCT,
    )  # fmt: skip
    state = view.state.state
    return view.actions[state.legal_actions().index(bot.step(state))]


def play_by_regret(self: OpenSpielGame, view: View, seed: int) -> str:
    """The average policy of OpenSpiel's CFR+, drawn by the seed."""
    chances = cfr_average(self.string, CFR_ITERATIONS)[view.state.key]
    return random.Random(seed).choices(view.actions, chances)[0]


@cache
def cfr_average(string: str, iterations: int) -> dict[str, list[float]]:
    """Per information state, the probability of each legal action after so many iterations."""
    game = open_game(string)(style="terse")
    solver = pyspiel.CFRPlusSolver(game.spiel)
    for _ in range(iterations):
        solver.evaluate_and_update_policy()
    average = solver.average_policy()  # of the solver, which must outlive it
    rows: dict[str, list[float]] = {}

    def visit(state: Any) -> None:
        if state.is_terminal():
            return
        if not state.is_chance_node():
            key = game.key(state, state.current_player())
            if key not in rows:
                chances = dict(average.action_probabilities(state))
                rows[key] = [chances[action] for action in state.legal_actions()]
        for action in state.legal_actions():
            visit(state.child(action))

    visit(game.spiel.new_initial_state())
    return rows


# ── games by string ─────────────────────────────────────────────────────────────────────────────


@cache
def open_game(string: str) -> type[OpenSpielGame]:
    """The game of a string such as `liars_dice(dice_sides=4)`, with the programs that play it."""
    spiel = load_spiel(string)
    kind = spiel.get_type()
    attributes: dict[str, Any] = {
        "spiel": spiel,
        "string": string,
        "title": kind.long_name,
        "seats": ORDINALS[: spiel.num_players()],
        "zero_sum": spiel.num_players() > 1
        and kind.utility in (Kind.Utility.ZERO_SUM, Kind.Utility.CONSTANT_SUM),
        "cooperative": kind.utility == Kind.Utility.IDENTICAL,
        "__doc__": f"{kind.long_name}, by OpenSpiel.",
    }
    made = new_class("OpenSpiel", (OpenSpielGame,), exec_body=lambda ns: ns.update(attributes))
    for program, method in _programs(made).items():
        setattr(made, program, method)
    return made


def _programs(kind: type[OpenSpielGame]) -> dict[str, Any]:
    """The strong players that a game can have. Counting its positions is quick: it stops early."""
    of = kind.spiel.get_type()
    if of.dynamics != Kind.Dynamics.SEQUENTIAL or not kind.zero_sum or len(kind.seats) != 2:
        return {}
    if of.information == Kind.Information.PERFECT_INFORMATION:
        search = {"scripted": play_by_search}
        return {**search, "perfect": play_perfectly} if _is_small(kind) else search
    return {"scripted": play_by_regret} if _is_small(kind) else {}


def _is_small(kind: type[OpenSpielGame]) -> bool:
    if kind.spiel.num_distinct_actions() > 64:  # and slow to count
        return False
    try:
        make_tree(kind(style="short"), **SOLVED)
    except TreeTooLarge:
        return False
    return True


def _history(state: Any) -> list[int]:
    return [int(action) for action in state.history()]
