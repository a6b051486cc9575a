"""The public functions: train a recipe, go on with a run, read it, measure a policy, play a game.
Importing this module loads no model library; calling a function does."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sparring.core.collect import Job
from sparring.core.collect import play as play_job
from sparring.core.errors import ConfigError, nearest
from sparring.core.game import Game
from sparring.core.plugin import find
from sparring.core.scripted import PROGRAMS
from sparring.core.types import Episode, Request, Sampling, Turn, derive
from sparring.run.config import Config, load_recipe, make_config
from sparring.run.games import load_game
from sparring.run.rundir import RunDir, read_log, read_object
from sparring.run.yaml_values import set_key

if TYPE_CHECKING:
    import pandas

    from sparring.engines.engine import Engine

T = TypeVar("T")
OnIteration = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A run's folder, read.

    >>> run = load_run(folder)
    >>> list(run.metrics().index)[-1] == len(run.iterations())
    True
    >>> sorted(set(run.turns(1)["game"]))
    ['kuhn']
    """

    path: Path

    @property
    def config(self) -> Config:
        return RunDir.existing(self.path).config()

    def metrics(self) -> pandas.DataFrame:
        """One row per iteration, one column per metric."""
        rows = list(read_log(self.path / "metrics.jsonl"))
        return _pandas().DataFrame(rows).set_index("iteration") if rows else _pandas().DataFrame()

    def events(self) -> pandas.DataFrame:
        return _pandas().DataFrame(list(read_log(self.path / "events.jsonl")))

    def iterations(self) -> list[int]:
        """The iterations whose episodes are on record."""
        return sorted(int(p.name.split(".")[0]) for p in (self.path / "episodes").glob("*.gz"))

    def episodes(self, iteration: int | None = None) -> Iterator[Episode]:
        """The games of one iteration, or of all of them in order."""
        run = RunDir.existing(self.path)
        for number in self.iterations() if iteration is None else [iteration]:
            yield from run.read_episodes(number)

    def turns(self, iteration: int | None = None) -> pandas.DataFrame:
        """One row per turn: prompt and reply, its length, logprob and reward."""
        return _pandas().DataFrame(
            {
                "episode": episode.id,
                "game": episode.game,
                "seat": turn.seat,
                "policy": turn.policy,
                "prompt": turn.prompt,
                "reply": turn.text,
                "tokens": len(turn.token_ids),
                "logprob": sum(turn.logprobs),
                "reward": episode.rewards.get(turn.seat),
                "void": episode.void,
            }
            for episode in self.episodes(iteration)
            for turn in episode.turns
        )

    def evaluation(self) -> dict[str, Any]:
        """The closing evaluation, or nothing where there was none."""
        path = self.path / "evaluation.json"
        return read_object(path) if path.exists() else {}

    def _repr_html_(self) -> str:
        """A notebook shows a run as its curves."""
        from sparring.view.notebook import run_html

        return run_html(self.path)

    def policy(self, step: int | str | None = None) -> Policy:
        """The policy of a checkpoint: a number, `best` or `last`; by default the best."""
        return load_policy(str(self.path) if step is None else f"{self.path}@{step}")

    def resume(self, *, on_iteration: OnIteration | None = None, **overrides: Any) -> Run:
        """Continue from the last valid checkpoint, to more iterations if asked."""
        data = self.config.model_dump(mode="json")
        for key, value in overrides.items():
            set_key(data, key.replace("__", "."), value)
        return _train(make_config(data), self.path, resume=True, on_iteration=on_iteration)


@dataclass(frozen=True)
class Policy:
    """A policy loaded into an engine of its own.

    >>> len(load_policy("nano").reply("Say heads or tails.", max_tokens=4).token_ids) <= 4
    True
    """

    engine: Engine
    name: str

    def reply(self, prompt: str, *, seed: int = 0, **sampling: Any) -> Turn:
        """One reply to a user's message."""
        messages = [{"role": "user", "content": prompt}]
        request = Request("user", self.name, messages, Sampling(**sampling), seed)
        return run_async(self.engine.act(request))


def load_config(recipe: str, *, smoke: bool = False, **overrides: Any) -> Config:
    """The config of a recipe; overrides are keys, with `__` or `.` between their parts.

    >>> load_config("kuhn", iterations=3, learn__lr=1e-3).learn.lr
    0.001
    """
    keys = [
        f"{key.replace('__', '.')}={json.dumps(value, default=os.fspath)}"
        for key, value in overrides.items()
    ]
    return load_recipe(recipe, keys, smoke=smoke)


def train(
    recipe: str | Config,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    smoke: bool = False,
    on_iteration: OnIteration | None = None,
    **overrides: Any,
) -> Run:
    """Train a recipe, or a config, into a folder. `on_iteration` is called with each iteration's
    metrics, where the recipe has iterations; what it raises ends the run. A notebook shows the
    progress, and the run as its curves.

    >>> run = train("kuhn", smoke=True, run=folder, iterations=1, evaluate__ladder=0)
    >>> run.iterations()
    [1]
    """
    if isinstance(recipe, Config) and overrides:
        raise ConfigError("a config was given whole; overrides are for recipes by name")
    config = recipe if isinstance(recipe, Config) else load_config(recipe, smoke=smoke, **overrides)
    folder = Path(run) if run is not None else Path("runs") / (config.recipe or "run")
    return _train(config, folder, resume=resume, on_iteration=on_iteration)


def _train(config: Config, folder: Path, *, resume: bool, on_iteration: OnIteration | None) -> Run:
    from sparring.run.machine import prepare
    from sparring.training.finish import finish
    from sparring.training.loop import train as run_loop
    from sparring.view import write_report

    settled = prepare(config, folder, _unheard, resume=resume)
    looped = settled.pipeline == "loop"
    progress = _progress(settled, on_iteration) if looped else None

    def work() -> None:
        if looped:
            run_loop(settled, folder, resume=resume, progress=progress)
            finish(folder)
        else:
            find("trainers", settled.pipeline)(settled, folder, resume=resume, say=_unheard)
        write_report(folder)

    outside_loop(work)
    return Run(folder)


def _unheard(line: str) -> None:
    """What the command line prints, a script is not told."""


def _progress(config: Config, on_iteration: OnIteration | None) -> OnIteration | None:
    """What is called with each iteration's metrics: in a notebook, a bar in the cell as well."""
    from sparring.view.notebook import cell_progress, in_notebook

    if not in_notebook():
        return on_iteration
    draw = cell_progress(config.recipe, config.iterations)

    def both(metrics: dict[str, Any]) -> None:
        draw(metrics)
        if on_iteration is not None:
            on_iteration(metrics)

    return both


def load_run(path: str | Path) -> Run:
    """A run's folder, to be read or continued."""
    return Run(RunDir.existing(Path(path)).path)


def load_policy(policy: str, *, device: str = "auto") -> Policy:
    """A policy by any name the command line takes: `nano`, a folder, a hub name, RUN, RUN@STEP."""
    from sparring.engines.load import load_player

    return Policy(*load_player(policy, device=device))


def play(
    game: str | Game, seating: Mapping[str, str] | str, *, seed: int | None = None, **options: Any
) -> Episode:
    """Play one game: every seat by one policy or program, or each by its own. The first policy is
    asked as it was trained to play, with the options of its run unless others are given, and the
    game and all others with it.

    >>> play("tictactoe", "random", seed=1).facts["end"]
    'win'
    """
    from sparring.models.trained import game_options, trained_sampling

    seated = [seating] if isinstance(seating, str) else seating.values()
    policy = next((name for name in seated if name not in PROGRAMS), None)
    if policy and isinstance(game, str):
        options = {**game_options(game, policy, None), **options}
    table = load_game(game, **options) if isinstance(game, str) else game
    name = game if isinstance(game, str) else type(game).__name__
    seats = dict.fromkeys(table.seats, seating) if isinstance(seating, str) else dict(seating)
    for seat in (*seats, *table.seats):
        if seat not in table.seats:
            raise ConfigError(f"{name} has no seat {seat!r}; {nearest(seat, table.seats)}")
        if seat not in seats:
            raise ConfigError(f"nobody sits in the seat {seat!r} of {name}; name a player for it")
    sampling = trained_sampling(policy) if policy else None
    seed = secrets.randbits(32) if seed is None else seed
    return run_async(_play(table, name, seats, seed, sampling))


async def _play(
    table: Game, name: str, seats: dict[str, str], seed: int, sampling: Sampling | None
) -> Episode:
    from sparring.core.game import opened

    speakers = {p: load_policy(p) for p in set(seats.values()) - set(PROGRAMS)}

    async def speak(request: Request) -> Turn:
        policy = speakers[request.policy]
        request.policy = policy.name
        return await policy.engine.act(request)

    job = Job("play", name, table, table.match_task(derive(seed, "play")), seed, seats)
    async with opened([table]):
        return await play_job(job, speak, sampling=sampling)


def evaluate(
    policy: str,
    *,
    against: str = "random",
    game: str | None = None,
    games: int = 100,
    temperature: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """A match of one policy against another or a program, seats alternating: wins, draws, losses,
    and how the policy was asked. The limits are those it was trained with.

    >>> evaluate("nano", against="random", game="kuhn", games=4)["games"]
    4
    """
    from sparring.evaluation.policy_match import play_match

    match = partial(play_match, game=game, temperature=temperature, seed=seed)
    return outside_loop(lambda: match(policy, against, games))


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also where a loop is running already, as in a notebook."""
    return outside_loop(lambda: asyncio.run(work))


def outside_loop(work: Callable[[], T]) -> T:
    """Call what starts an event loop of its own; in another thread if this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    thread = ThreadPoolExecutor(1, thread_name_prefix="sparring")
    try:
        return thread.submit(work).result()
    finally:
        thread.shutdown(wait=False)  # an interrupted notebook does not wait for it


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ConfigError("data frames need pandas: pip install 'sparring[frames]'") from error
    return pandas
