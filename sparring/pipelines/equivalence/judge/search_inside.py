"""Runs inside the jail: looks for inputs on which two pure functions differ,
thousands a second, both in one process. What it finds is only a candidate: it is run again, each
function by itself, before it refutes anything. Its budgets are counts of inputs and steps. The
texts of form_inside.py and mutate_inside.py go before it, that of domains_inside.py behind it."""

import itertools
import math
import os
import random
import signal
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

from sparring.pipelines.equivalence.judge.form_inside import (
    OPERATORS,
    NotData,
    Timer,
    TimeUp,
    form,
    load,
    read,
)
from sparring.pipelines.equivalence.judge.mutate_inside import (
    Mutator,
    integers_in,
    item_at,
    substituted,
    with_item,
)

CHUNK = 512  # inputs under one timer
CHUNK_S = 2.0  # seconds of a processor; a chunk that takes longer is run again, counting steps
CALL_S = 0.5  # of one counting call: what never comes back to count is killed
PER_S = 2_000_000  # steps that a second counts for where none are counted
CALL = 12  # what a call costs besides its steps, in steps
MOST_CHARACTERS = 1000
PROBES = (0, 1, 2, 3, 10, 31, 100, 316, 1000, 3162, 10_000)
NUMBERS = {int, float, bool}
PLAIN = {int, float, bool, str, bytes, complex, type(None)}

Values = list[Any]
Key = tuple[int, int]  # which of the two functions, and the place in it


class Search:
    """Both functions, plain and counting, and what is known of them so far."""

    def __init__(self, request: dict[str, Any], skipped: set[int], progress: int) -> None:
        function, self.types = request["function"], request["types"]
        self.steps, self.patience = request["steps"], request["patience"]
        self.periods, self.equations = request["periods"], request["equations"]
        self.constants = {name: read(text) for name, text in request["constants"].items()}
        self.rng = random.Random(request["seed"])
        self.mutator = Mutator(self.rng, self.constants)
        self.tried = self.compared = self.work = self.turn = 0
        self.skipped, self.progress = skipped, progress
        self.different: list[Values] = []
        self.lost: list[Values] = []
        self.side = self.left = 0
        self.spent = False
        self.reached: set[Key] = set()
        self.near: dict[Key, tuple[float, Any, Any]] = {}
        self.operands: dict[Key, tuple[Any, Any]] = {}
        marks = {"__reached__": self.mark, "__value__": self.value, "__compared__": self.note}
        self.plain = [load(request[name], function) for name in ("p", "q")]
        self.counting = [load(request[f"{name}_counting"], function, marks) for name in ("p", "q")]
        self.immutable = all(name in self.constants for name, _ in self.types)

    def next_turn(self) -> bool:
        """Say what comes next, so that it is known what took the process along; whether to."""
        self.turn += 1
        os.write(self.progress, struct.pack("q", self.turn))
        return self.turn not in self.skipped

    # what a counting program says of itself

    def mark(self, position: int) -> bool:
        self.left -= 1
        if self.left < 0:
            self.spent = True
            raise TimeUp
        self.reached.add((self.side, position))
        return True

    def value(self, position: int, value: Any) -> Any:
        self.mark(position)
        return value

    def note(self, position: int, a: Any, name: str, b: Any) -> Any:
        self.left -= 1
        key = (self.side, position)
        if type(a) is tuple and type(b) is tuple:
            distance = tuple_distance(a, b)
            if distance is not None and distance < self.near.get(key, (math.inf,))[0]:
                self.near[key] = (distance, distance, 0)
        elif type(a) in NUMBERS and type(b) in NUMBERS:
            distance = abs(a - b) if a == a and b == b else None
            if distance is not None and distance < self.near.get(key, (math.inf,))[0]:
                self.near[key] = (distance, a, b)
        elif type(a) in PLAIN and type(b) in PLAIN:
            self.operands[key] = (a, b)
        return OPERATORS[name](a, b)

    def counted(self, side: int, arguments: Values, steps: int) -> Any:
        """The outcome of a counting call, or None. Its steps, or its seconds where these are
        many more, are added to the work."""
        self.side, self.left, self.spent, began = side, steps, False, time.process_time()
        signal.setitimer(signal.ITIMER_PROF, CALL_S)
        result = outcome_of(self.counting[side], arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - began
        self.work += max(steps - self.left, int(seconds * PER_S) if seconds > 0.05 else 0) + CALL
        return None if self.spent else result

    def compare_counting(self, values: Values) -> None:
        """Both functions on one input, by steps: the same on any machine."""
        self.tried += 1
        if not self.next_turn():
            return
        mine, theirs = fresh(values), fresh(values)
        of_p = self.counted(0, mine, self.steps)
        if of_p is None:
            return
        of_q = self.counted(1, theirs, 40 * self.steps)
        if of_q is None and self.spent:
            self.lost.append(values)
        if of_q is not None:
            self.judge(values, of_p, of_q, mine, theirs)

    def judge(self, values: Values, of_p: Any, of_q: Any, mine: Any, theirs: Any) -> None:
        try:
            equal = alike(of_p, of_q) and (self.immutable or alike((0, mine), (0, theirs)))
        except (NotData, RecursionError):
            if has_form([of_p[1], mine]):  # and Q's has none
                self.lost.append(values)
            return
        self.compared += 1
        if not equal:
            self.different.append(values)

    # many inputs at once, without counting

    def compare_all(self, inputs: Iterable[Values], cost: int) -> int:
        """Every input, in chunks under a timer of the processor. `cost`: steps of one, which were
        measured. Ends early at a difference. How many were compared: those on which both came to
        something."""
        inputs, first = iter(inputs), self.compared
        while not self.done and (chunk := list(itertools.islice(inputs, CHUNK))):
            before = (self.tried, self.compared, len(self.different))
            if not (self.next_turn() and self.compare_chunk(chunk)):
                self.tried, self.compared = before[:2]
                del self.different[before[2] :]
                self.patience -= 1
                for values in chunk:
                    if not self.done:
                        self.compare_counting(values)
            self.work += cost * len(chunk)
        return self.compared - first

    def compare_chunk(self, chunk: list[Values]) -> bool:
        """Whether it came to its end in time."""
        p, q = self.plain
        timer = Timer(CHUNK_S)
        try:
            with timer:
                for values in chunk:
                    mine, theirs = values, values
                    if not self.immutable:
                        mine, theirs = fresh(values), fresh(values)
                    of_p = outcome_of(p, mine)
                    of_q = outcome_of(q, theirs) if of_p is not None else None
                    if timer.fired:
                        break
                    self.tried += 1
                    if of_p is not None and of_q is not None:
                        self.judge(values, of_p, of_q, mine, theirs)
        except TimeUp:
            pass
        return not timer.fired

    @property
    def done(self) -> bool:
        return bool(self.different or self.lost) or self.patience <= 0

    # where to look

    def cost(self, inputs: Callable[[int], list[Values]]) -> list[tuple[int, int]]:
        """Steps of both functions on inputs of growing size, until one is dear: [(size, steps)]."""
        costs, most = [], 0
        for size in PROBES:
            for values in inputs(size):
                before = self.work
                self.compare_counting(values)
                most = max(most, self.work - before)
            if most > 20 * self.steps or self.done:
                break
            costs.append((size, most))
        return costs

    def observed(self, values: Values) -> bool:
        """Compare, and note what it reached and how near its comparisons came; whether any of
        that is new."""
        self.now: set[Key] = set()
        self.reached, self.near, self.operands = self.now, {}, {}
        self.compare_counting(values)
        new = not self.now <= self.known
        self.known |= self.now
        for key, (distance, _, _) in self.near.items():
            if distance < self.best.get(key, (math.inf, []))[0]:
                self.best[key], new = (distance, values), True
        return new

    def guided(self, seeds: list[Values], most_inputs: int, most_work: int) -> None:
        """Keeps what reaches something new, and goes from there; follows comparisons of numbers
        to where they turn, by secants; tries what is compared with as an argument."""
        self.known: set[Key] = set()
        self.best: dict[Key, tuple[float, Values]] = {}
        last_input, last_work = self.tried + most_inputs, self.work + most_work

        def over() -> bool:
            return self.done or self.tried >= last_input or self.work >= last_work

        queue, waiting = [], list(seeds)
        climbed: dict[Key, float] = {}
        while waiting and not over():
            values = waiting.pop(0)
            if self.observed(values):
                queue.append(values)
                for pair in list(self.operands.values()):
                    waiting += substituted(values, pair)[:8]
        while queue and not over():
            for key in sorted(self.best):
                if self.best[key][0] and climbed.get(key) != self.best[key][0]:
                    self.climb(key, over)
                    climbed[key] = self.best[key][0]
            values = self.mutator.mutated_input(self.types, self.rng.choice(queue))
            if not over() and len(repr(values)) < MOST_CHARACTERS and self.observed(values):
                queue.append(values)

    def climb(self, key: Key, over: Callable[[], bool]) -> None:
        """Towards equality at one comparison: each integer of the input in turn."""
        for _ in range(30):
            distance, values = self.best[key]
            for path in integers_in(values):
                if not over():
                    self.secant(key, path, over)
            if self.best[key][0] == 0 or self.best[key][0] >= distance or over():
                return

    def secant(self, key: Key, path: tuple[int, ...], over: Callable[[], bool]) -> None:
        """Where the line through two distances meets zero, and some of the way to there. Steps of
        what the programs divide by keep the remainders that were needed to come here."""
        distance, values = self.best[key]
        x = item_at(values, path)
        for step in (1, -1, *self.periods):
            self.observed(with_item(values, path, x + step))
            slope = self.near[key][0] - distance if key in self.near else 0
            steps = -distance / slope if slope and distance < 1e300 else math.inf
            if not abs(steps) < 1e18:
                continue
            for factor in (1.0, 0.5, 0.75, 0.34, 0.1):
                for jump in (math.floor(steps * factor), math.ceil(steps * factor)):
                    target = x + jump * step
                    if over():
                        return
                    self.observed(with_item(values, path, target))
                if self.best[key][0] < distance:
                    return


def outcome_of(function: Callable[..., Any], arguments: Values) -> tuple[str, Any] | None:
    """("v", value) or ("r", class); None where there is no outcome."""
    try:
        return ("v", function(*arguments))
    except (MemoryError, RecursionError, TimeUp):
        return None
    except Exception as error:
        return ("r", type(error).__module__ + type(error).__qualname__)


def alike(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    """What `form` would say, by a shorter way for most values; it raises what `form` raises."""
    (kind, x), (other, y) = a, b
    if kind != other or type(x) is not type(y):
        return False
    if type(x) in (int, str, bool, bytes) or x is None:
        return x == y
    if type(x) in (list, tuple) and {*map(type, x), *map(type, y)} <= {int, str}:
        return bool(x == y)
    return form(x) == form(y)


def has_form(value: Any) -> bool:
    try:
        form(value)
    except (NotData, RecursionError):
        return False
    return True


def tuple_distance(a: tuple[Any, ...], b: tuple[Any, ...]) -> float | None:
    """The sum of what corresponding numbers differ by, where all are numbers."""
    if len(a) != len(b) or not {*map(type, a), *map(type, b)} <= {int, bool}:
        return None
    return sum(abs(x - y) for x, y in zip(a, b, strict=True))


def fresh(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is list:
        return [fresh(v) for v in value]
    if kind is dict:
        return {k: fresh(v) for k, v in value.items()}
    if kind is tuple:
        return tuple([fresh(v) for v in value])
    return kind(value)
