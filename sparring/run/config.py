"""The typed config of a run: YAML on disk, dotted overrides on the command line, unknown keys
refused with the nearest known one named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import AfterValidator, Field, ValidationError, create_model

from sparring.core.errors import ConfigError, nearest
from sparring.core.game import Remote
from sparring.core.plugin import Kind, load, load_all, names, plugins
from sparring.core.types import drawable
from sparring.run.games import make_games
from sparring.run.learning import LearnConfig
from sparring.run.players import check_imitated, check_players, take_population
from sparring.run.recipes import read_recipe
from sparring.run.schedule import steps_of
from sparring.run.sections import CollectConfig, RayConfig, Section, TasksConfig
from sparring.run.servers import ServerConfig, VllmConfig, check_server
from sparring.run.template import read_template
from sparring.run.yaml_values import (
    from_environment,
    from_plugin_variables,
    parse_yaml,
    set_key,
)

S = TypeVar("S", bound=Section)


def registered(kind: Kind) -> AfterValidator:
    """A name that some plug-in registers, or where to find the thing: `module:Name`."""

    def check(name: str) -> str:
        if ":" not in name and name not in names(kind):
            raise ValueError(nearest(name, names(kind)))
        return name

    return AfterValidator(check)


Temperature = Annotated[float, Field(ge=0), AfterValidator(drawable)]


class SamplingConfig(Section):
    temperature: Temperature = 1.0
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    max_tokens: int = Field(256, ge=1)
    mask_actions: bool = False  # only legal actions can be drawn, in games that name them


class OpponentsConfig(Section):
    """Who is met. `share` of the games are played against `kind`, the rest against oneself."""

    kind: Literal["self", "frozen", "league", "players", "random", "perfect", "scripted"] = "self"
    # A server, RUN@STEP, a program; of a league too.
    players: list[str] = Field(default_factory=list)
    weights: list[float] = Field(default_factory=list)  # of `players`, where not all are met alike
    population: str | None = None  # a run or tournament whose mixture gives players and weights
    mixture: Literal["prioritised", "uniform", "nash", "alpharank"] = "prioritised"  # of a league
    # Of a new member with each other one, where the mixture needs it.
    matches: int = Field(20, ge=1)
    share: float = Field(0.5, ge=0, le=1)
    every: int = Field(20, ge=1)  # iterations between two additions to the league
    start: bool = False  # the weights that a run begins with are the league's first members
    size: int = Field(8, ge=1)
    hard: float = Field(1.0, ge=0)  # how strongly opponents that beat us are preferred


class CreditConfig(Section):
    kind: Annotated[str, registered("credit")] = "role_baseline"
    decay: float = Field(0.95, ge=0, le=1)
    trace: float = Field(1.0, ge=0, le=1)  # prompt_baseline, gae: λ; 1 is the plain final reward
    # What a reward is worth one token earlier (gae), or one turn (level: turn).
    gamma: float = Field(1.0, ge=0, le=1)
    whiten: bool = True  # gae: advantages of mean 0 and deviation 1
    # Divide by the standard deviation of the group (GRPO) or of the batch, by nothing (Dr. GRPO),
    # or by the group's mean reward (MaxRL, for rewards of 0 and above).
    scale_rewards: Literal["none", "group", "batch", "mean"] = "none"
    # Of groups. episode: a game's turns share its advantage; turn (gae too): each has its own, by
    # the rewards from it on; agent: each turn counts in the group's mean and deviation (Dr. MAS).
    level: Literal["episode", "turn", "agent"] = "episode"
    seats: Literal["apart", "together"] = "apart"  # whether a group holds one seat or all of them


class ImitationConfig(Section):
    """How policies that begin with `PROGRAM:GAMES` or `demonstrations:FILE` are fitted to these,
    before the first iteration."""

    epochs: int = Field(3, ge=1)
    lr: float | None = Field(None, gt=0)  # where a linear decay to 0 begins; None: learn.lr
    batch: int = Field(64, ge=1)  # lessons per optimizer step


class CurriculumConfig(Section):
    """Easier options of a game, played in turn before those under `games`: a level is passed when
    the mean of `measure` over `window` iterations is `above` or more."""

    levels: list[dict[str, Any]] = Field(min_length=1)
    measure: str = "reward/avg_batch_reward"  # any key of metrics.jsonl
    above: float = 0.9
    window: int = Field(5, ge=1)


class TeachConfig(Section):
    """Who turns episodes into lessons: `credit`, or a teacher that a plug-in brings."""

    kind: Annotated[str, registered("teachers")] = "credit"


class ScheduleConfig(Section):
    """Stage by stage, in games whose seats reason in stages: iterations of each phase of a stage.
    Enabled, it says how many iterations the run has."""

    enabled: bool = False
    discriminator: int = Field(2, ge=0)  # with the generator frozen
    generator: int = Field(2, ge=0)  # with the discriminator frozen
    alternating: int = Field(2, ge=0)  # the one, then the other
    together: bool = False  # train the tokens of all stages at once, in every stage
    every: int = Field(10, ge=1)  # epochs between named checkpoints; each stage ends with one


class EngineConfig(Section):
    kind: Literal["transformers", "vllm"] = "transformers"
    vllm: VllmConfig = Field(default_factory=VllmConfig)
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    tf32: bool = False  # float32 products with 10 bits of mantissa, on a GPU that has TF32
    max_batch: int = Field(512, ge=1)
    lockstep: bool = True  # batches by who asks, not by timing: for models through transformers
    # The paged cache, and on a GPU captured graphs; None: where they can be had; false: neither.
    graphs: bool | None = None
    # For keys and values; None: half of what is free on a GPU, 4 on a CPU.
    cache_gb: float | None = Field(None, gt=0)


class EvaluateConfig(Section):
    every: int = Field(10, ge=1)
    games: int = Field(100, ge=0)
    temperature: Temperature = 0.0
    final: int = Field(0, ge=0)  # games of the closing evaluation, before and after; 0: none
    ladder: int = Field(0, ge=0)  # games between each pair of checkpoints, at the end
    states: int = Field(2000, ge=0)  # of a game: exact measures of larger ones wait for the end


class CheckpointConfig(Section):
    every: int = Field(10, ge=1)
    keep: int = Field(3, ge=1)


class GuardConfig(Section):
    """What counts as a collapse, and what to do about it."""

    enabled: bool = True
    entropy_floor: float = Field(0.0, ge=0)  # nats per token
    invalid_ceiling: float = Field(0.5, ge=0, le=1)
    void_ceiling: float = Field(0.5, gt=0, le=1)  # of the window's games; always stops; 1: never
    length_factor: float = Field(4.0, gt=1)  # against the median of the window before
    score_drop: float = Field(0.3, gt=0)  # of the evaluation, below the best
    window: int = Field(5, ge=1)
    grace: int = Field(10, ge=0)  # iterations before anything is watched
    action: Literal["continue", "stop"] = "continue"
    lr_factor: float = Field(0.5, gt=0, le=1)
    most: int = Field(3, ge=0)  # roll-backs before the run stops


class TrackingConfig(Section):
    tensorboard: bool = True
    wandb: Literal["auto", "always", "never"] = "auto"  # auto: when there is a key
    trackio: Literal["auto", "always", "never"] = "auto"  # auto: when TRACKIO_SPACE_ID is set
    project: str = "sparring"


def _weighed(options: dict[str, Any]) -> dict[str, Any]:
    try:
        weight = float(options.get("weight", 1.0))
    except (TypeError, ValueError):
        weight = 0.0
    if not 0 < weight < math.inf:
        raise ValueError("weight, how often a game is played, is a number above 0")
    return options


GameOptions = Annotated[dict[str, Any], AfterValidator(_weighed)]


class Config(Section):
    recipe: str = Field("", pattern=r"^[^/\x00]*$")  # and so its folder's name
    pipeline: str = "loop"  # what `sparring train` runs: the loop, or a plug-in's trainer
    seed: int = Field(0, ge=0, lt=2**63)
    iterations: int = Field(100, ge=1)
    policy: str = "nano"
    template: str | None = None  # chat template: a file, Jinja, `plain`; None: the model's own
    bases: dict[str, str] = Field(default_factory=dict)  # learned policy -> a base of its own
    # Learned policy -> weights it begins with, or what to imitate: scripted:2000, …
    begin: dict[str, str] = Field(default_factory=dict)
    imitation: ImitationConfig = Field(default_factory=ImitationConfig)
    games: dict[str, GameOptions] = Field(default_factory=dict)  # name -> weight and options
    curriculum: dict[str, CurriculumConfig] = Field(default_factory=dict)  # game -> its levels
    players: dict[str, str] = Field(default_factory=dict)  # seat -> policy; others play `main`
    servers: dict[str, ServerConfig] = Field(default_factory=dict)  # names for players on servers
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    collect: CollectConfig = Field(default_factory=CollectConfig)
    tasks: TasksConfig = Field(default_factory=TasksConfig)
    opponents: OpponentsConfig = Field(default_factory=OpponentsConfig)
    credit: CreditConfig = Field(default_factory=CreditConfig)
    teach: TeachConfig = Field(default_factory=TeachConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    learn: LearnConfig = Field(default_factory=LearnConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    ray: RayConfig = Field(default_factory=RayConfig)
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    guard: GuardConfig = Field(default_factory=GuardConfig)
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)
    canary: float = Field(0.1, gt=0)  # nats per token between sampled and learner's logprobs
    sandbox: Literal["bubblewrap", "unsafe"] = "bubblewrap"

    @property
    def jail(self) -> str:
        """The sandbox as games are opened with it: remote where Ray's tasks rule."""
        remote = self.ray.replicas and self.ray.judges
        return Remote(self.sandbox) if remote else self.sandbox

    @property
    def horizon(self) -> int | None:
        """Iterations that learning rate, entropy bonus and kl move over; None: they do not."""
        learn = self.learn
        rate = learn.schedule != "constant" and not learn.restart  # which begins it anew as well
        moves = rate or learn.entropy_end is not None or learn.kl_end is not None
        return (learn.horizon or self.iterations) if moves else None

    def section(self, kind: type[S]) -> S:
        """The section that a plug-in added to the config; its defaults where there is none."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return next((value for value in values if isinstance(value, kind)), kind())


@cache
def config_class() -> type[Config]:
    """The config with the sections of all plug-ins."""
    sections: dict[str, Any] = {
        key: (kind := load(where), Field(default_factory=kind))
        for plugin in plugins()
        for key, where in plugin.config.items()
    }
    return create_model("FullConfig", __base__=Config, __module__=__name__, **sections)


def __getattr__(name: str) -> Any:
    if name == "FullConfig":  # by this name a config is unpickled in another process
        return config_class()
    raise AttributeError(name)


def load_recipe(name: str, overrides: Iterable[str] = (), *, smoke: bool = False) -> Config:
    """The config of a recipe's name, a YAML file or a game's `file.py:Class`, with `key=value`
    overrides applied."""
    data = read_recipe(name)
    for translation in load_all("translations"):
        if instead := translation(data):
            raise ConfigError(f"{Path(name).name} cannot be used: {instead}")
    smoke_keys = data.pop("smoke", None) or {}
    if smoke:
        for key, value in {**SMOKE, **smoke_keys}.items():
            set_key(data, key, value)
    from_environment(data, data.pop("environment", None) or {})
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(f"{override!r} is not an override; write key=value")
        set_key(data, key, parse_yaml(value, repr(override)))
    from_plugin_variables(data)
    config = make_config(data)
    idle = config.collect.episodes == 0 and config.teach.kind != "recorded"
    if idle and config.pipeline == "loop":
        raise ConfigError("collect.episodes is 0, and without games there is nothing to learn from")
    return config


# What `--smoke` sets in every recipe; a recipe's own `smoke:` section adds to it.
SMOKE: dict[str, Any] = {
    "policy": "nano",
    "iterations": 3,
    "collect.episodes": 16,
    "evaluate.every": 2,
    "evaluate.games": 8,
    "evaluate.final": 8,
    "evaluate.ladder": 2,
    "checkpoint.every": 1,
    "engine.device": "cpu",
    "engine.dtype": "float32",
}


def make_config(data: Mapping[str, Any]) -> Config:
    try:
        config = config_class().model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(e) for e in error.errors())) from None
    config.template = read_template(config.template)
    for server in config.servers.values():
        check_server(server)
    _check_games(config)
    return config


def dump(config: Config) -> str:
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def _explain(error: Any) -> str:
    key = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{key}: {error['msg']}"
    if error["type"] == "value_error" and isinstance(error["input"], dict):  # of several keys
        return f"{key}: {error['ctx']['error']}"
    if error["type"] == "string_pattern_mismatch" and key == "engine.device":
        return f"{key}: {error['input']!r} is none of auto, cpu, cuda, cuda:0, cuda:1, …"
    if error["type"] != "extra_forbidden":
        return f"{key}: {error['msg']} (it is {error['input']!r})"
    section: Any = config_class()
    for part in error["loc"][:-1]:
        if get_origin(section) is not dict:  # of names, each of them a section
            section = section.model_fields[part].annotation
            if get_origin(section) is dict:
                continue
        inside = [kind for kind in get_args(section) if hasattr(kind, "model_fields")]
        section = inside[0] if inside else section
    if key in names("games"):
        return f"there is no key {key!r}; an option of the game is games.{key}.OPTION=VALUE"
    return f"there is no key {key!r}; {nearest(str(error['loc'][-1]), section.model_fields)}"


def _check_games(config: Config) -> None:
    """Fail on a wrong game or option before anything is written."""
    try:
        games = make_games(config.games)
        for name, curriculum in config.curriculum.items():
            if name not in games:
                raise ConfigError(f"curriculum: no game {name!r} is played; {nearest(name, games)}")
            for level in curriculum.levels:
                make_games({name: {**config.games[name], **level}})
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    check_imitated(config.begin)
    if config.teach.kind == "recorded":
        config.collect.episodes = 0  # what it learns from has been played
    if config.schedule.enabled:
        config.iterations = len(steps_of(config.schedule, games.values()))
    seats = {seat for game in games.values() for seat in game.seats}
    for key, named in (("players", config.players), ("learn.seats", config.learn.seats or ())):
        for seat in named:
            if seat not in seats:
                raise ConfigError(f"{key}: no game has a seat {seat!r}; {nearest(seat, seats)}")
    take_population(config.opponents)
    declared = {*config.servers, *config.learn.policies, *config.begin, *config.bases}
    check_players(config.players, config.opponents.players, declared)
