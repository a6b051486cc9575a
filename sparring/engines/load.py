"""Finds a policy by what a person calls it: a base model, a run and one of its checkpoints, or an
adapter as peft saves it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sparring.core.errors import ConfigError
from sparring.core.types import BASE, MAIN, Request, Sampling, Turn
from sparring.run import checkpoint
from sparring.run.config import Config, LearnConfig
from sparring.run.game_options import option_types
from sparring.run.games import game_class
from sparring.run.rundir import RunDir
from sparring.run.servers import label_of, server_of

if TYPE_CHECKING:
    from sparring.core.game import Speak
    from sparring.engines.engine import Engine, OwnEngine
    from sparring.engines.local.engine import TransformersEngine
    from sparring.models.policies import Policies

VALID = (
    "a policy is `nano`, `smollm2`, a folder with a transformers model, a hub name, a folder with "
    "a LoRA adapter of peft, or a run: RUN (its best checkpoint, or its last), RUN@STEP, and "
    "RUN@STEP:NAME where it has several. A player may also be MODEL@URL, on a server"
)
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PEFT_PREFIX = "base_model.model."
_RUN = re.compile(r"(?P<run>.+?)(?:@(?P<step>\d+|best|last))?(?::(?P<who>[\w.@-]+))?")


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights of one policy: in a checkpoint of a run, or in an adapter's folder."""

    config: Config
    file: Path
    name: str

    def load_into(self, policies: Policies, name: str) -> None:
        """Give a policy that is there already these weights."""
        from safetensors.torch import load_file

        state = load_file(self.file)
        if self.file.name == ADAPTER_WEIGHTS:
            # An adapter need not reach every module; where it does not, a new one adds nothing.
            state = {key.removeprefix(_PEFT_PREFIX): value for key, value in state.items()}
            state = {**policies.state(name), **state}
        policies.load(name, state)


def load_engine(
    policy: str, *, device: str = "auto", dtype: str = "auto", template: str | None = None
) -> tuple[TransformersEngine, str]:
    """An engine that speaks as this policy, and the name to ask it by. A run's policy is asked with
    the chat template it learned with, another one with `template`."""
    from sparring.engines.local.multi_base import embedded
    from sparring.models.device import choose_device, fast_allocations

    found = find_trained(policy)
    fast_allocations()
    base, seed = (found.config.policy, found.config.seed) if found else (policy, 0)
    learn = found.config.learn if found else LearnConfig()
    device, dtype = choose_device(device, dtype, learn.weights)
    template = found.config.template if found else template
    options: dict[str, Any] = {"device": device, "dtype": dtype, "template": template}
    if found and found.config.bases:  # those who played each other are to meet again
        from sparring.models.multi_base import policies_on_bases

        policies: Policies = policies_on_bases(found.config, **options)
    else:
        policies = policies_on(base, learn, seed=seed, **options)
    if found:
        policies.add(found.name)
        try:
            found.load_into(policies, found.name)
        except ValueError as error:
            raise ConfigError(f"{policy} does not fit {base}: {error}") from error
    engine = embedded(policies)
    engine.base = base_name(base, seed)
    return engine, found.name if found else BASE


def load_player(
    policy: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    batch: int | None = None,
    template: str | None = None,
) -> tuple[Engine, str]:
    """Whoever has this name, on a server or not, and the name to ask it by."""
    server = server_of(policy, {})
    if server is not None:
        from sparring.engines.openai import OpenAIEngine

        player = OpenAIEngine(server, label_of(policy, {}))
        player.line.reach()
        return player, policy
    engine, name = load_engine(policy, device=device, dtype=dtype, template=template)
    engine.max_batch = batch or engine.max_batch
    return engine, name


def load_opponent(engine: Engine, against: str) -> tuple[Speak, str]:
    """Another player beside the one an engine speaks as: whom to ask for either, and its name."""
    if hasattr(engine, "policies") and server_of(against, {}) is None:
        add_policy(cast("OwnEngine", engine), against, "opponent")
        return engine.act, "opponent"
    other, name = load_player(against)

    async def speak(request: Request) -> Turn:
        if request.policy != name:
            return await engine.act(request)
        with engine.outside():
            return await other.act(request)

    return speak, name


def add_policy(engine: OwnEngine, policy: str, name: str) -> None:
    """Load another policy of the same base model beside those an engine has."""
    found = find_trained(policy)
    learn = found.config.learn if found else None
    base = base_name(found.config.policy, found.config.seed) if found else base_name(policy, 0)
    several = getattr(engine.policies, "bases", {})
    if base in several:
        engine.policies.stands[name] = base  # type: ignore[attr-defined]
    _take_kind(engine, learn)
    whole = learn.weights == "full" if learn else not hasattr(engine.policies, "adapter")
    if base != engine.base and base not in several and not whole:
        raise ConfigError(
            f"{policy} stands on the base model {base}, and the engine has {engine.base}; "
            "policies that play each other share one base model"
        )
    state = None if found else _base_weights(engine, policy, base)
    engine.policies.add(name)
    try:
        if found:
            found.load_into(engine.policies, name)
        elif state is not None:
            engine.policies.load(name, state)
    except ValueError as error:
        engine.policies.remove(name)
        raise ConfigError(f"{policy} cannot be added to {engine.base}: {error}") from error


def find_trained(policy: str) -> Trained | None:
    """The checkpoint a policy's name means, or None when it names no run and no adapter."""
    if (Path(policy) / ADAPTER_CONFIG).is_file():
        return _adapter(Path(policy))
    match = _RUN.fullmatch(policy)
    if match is None or not (Path(match["run"]) / "config.yaml").is_file():
        if match is not None and match["step"]:
            raise ConfigError(f"there is no run {match['run']!r}; {VALID}")
        return None
    run = RunDir.existing(Path(match["run"]))
    folder = _checkpoint(run, match["step"])
    reason = checkpoint.damage(folder)
    if reason:
        raise ConfigError(f"{folder.name} of {run.path} is damaged: {reason}")
    files = {p.name.split(".policy.")[0]: p for p in folder.glob("*.policy.safetensors")}
    who = match["who"] or (MAIN if MAIN in files else next(iter(files)) if len(files) == 1 else "")
    if who not in files:
        raise ConfigError(
            f"{run.path} has the policies {', '.join(sorted(files))}; say which, as in "
            f"{run.path}@{int(folder.name[5:])}:{min(files)}"
        )
    config = run.config()
    if config.bases:
        bases = {name: config.bases.get(name, config.policy) for name in files}
        config.bases = {name: _base_beside(base, run.path) for name, base in bases.items()}
    config.policy = config.bases.get(who) or _base_beside(config.policy, run.path)
    return Trained(config, files[who], who)


def weights_of(policy: str) -> str:
    """What tells the weights of a policy from those it may have later."""
    found = find_trained(policy)
    if found is None:
        return policy
    stat = found.file.stat()
    return f"{found.file} {stat.st_size} {stat.st_mtime_ns}"


def _base_beside(policy: str, folder: Path) -> str:
    """A base model that is a folder is found again where it and the run have moved together."""
    parts = Path(policy).parts
    for i in range(len(parts) - 1):
        moved = folder.resolve().parent.joinpath(*parts[i:])
        if not Path(policy).exists() and (moved / "config.json").is_file():
            return str(moved)
    return policy


def _adapter(folder: Path) -> Trained:
    """An adapter in peft's own form, as the policy `main` of the model it was made for."""
    import json

    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConfigError(f"{folder} has an {ADAPTER_CONFIG} and no {ADAPTER_WEIGHTS}")
    told = json.loads((folder / ADAPTER_CONFIG).read_text())
    odd = [key for key in ("use_dora", "use_rslora", "modules_to_save") if told.get(key)]
    if told.get("peft_type") != "LORA" or odd:
        what = ", ".join(odd) or f"peft_type {told.get('peft_type')}"
        raise ConfigError(f"{folder} is an adapter with {what}; plain LoRA is what can be loaded")
    learn = LearnConfig(lora_r=told["r"], lora_alpha=told["lora_alpha"])
    base = told.get("base_model_name_or_path") or ""
    return Trained(Config(policy=base, learn=learn), folder / ADAPTER_WEIGHTS, MAIN)


def _checkpoint(run: RunDir, step: str | None) -> Path:
    best = run.checkpoints / "best"
    if step in (None, "best") and (best / checkpoint.MANIFEST).exists():
        return best.resolve()
    steps = checkpoint.steps(run.checkpoints)
    if not steps or (step == "best" and not best.exists()):
        raise ConfigError(f"{run.path} has no {'best ' if step else ''}checkpoint yet")
    if step is None or step == "last":
        return run.checkpoints / checkpoint.step_name(steps[-1])
    if int(step) not in steps:
        kept = ", ".join(map(str, steps))
        raise ConfigError(f"{run.path} has no checkpoint {step}; it has: {kept}")
    return run.checkpoints / checkpoint.step_name(int(step))


def base_name(policy: str, seed: int) -> str:
    """What tells base models apart; only nano is another one for another seed."""
    return f"{policy} (seed {seed})" if policy == "nano" else policy


def _base_weights(engine: OwnEngine, policy: str, base: str) -> dict[str, Any] | None:
    """The weights of a base model other than the engine's; its own need not be loaded again."""
    if base == engine.base:
        return None
    return policies_on(policy, LearnConfig(weights="full")).state(BASE)


def _take_kind(engine: OwnEngine, learn: LearnConfig | None) -> None:
    """An engine that has only its base yet takes policies of whichever kind comes first."""
    from sparring.models.policies import wrap_model

    if learn is not None and engine.policies.names() == [BASE]:
        with engine.policies.using(BASE) as model:
            engine.policies = wrap_model(model, engine.policies.tokenizer, learn)


def policies_on(policy: str, learn: LearnConfig, **options: Any) -> Policies:
    """Policies on a base model, or what a policy may be."""
    from sparring.models.loading import ModelMissing
    from sparring.models.policies import load_policies

    try:
        return load_policies(policy, learn, **options)
    except ModelMissing as error:
        raise ConfigError(f"{error}\n{VALID}") from error


def run_config(policy: str) -> Config | None:
    """The config of the run a policy comes from, or None."""
    found = find_trained(policy)
    return found.config if found else None


def first_game(policy: str) -> str:
    config = run_config(policy)
    if config is None:
        raise ConfigError(f"{policy} is no run: say which game with --game")
    return str(next(iter(config.games)))


def game_options(game: str, policy: str, style: str | None) -> dict[str, Any]:
    """The options a policy was trained with; nano reads only the terse style, where a game has
    styles."""
    config = run_config(policy)
    options = dict((config.games.get(game) or {}) if config else {})
    options.pop("weight", None)
    if style or (not options and policy == "nano" and "style" in option_types(game_class(game))):
        options["style"] = style or "terse"
    return options


def trained_sampling(policy: str) -> Sampling:
    """The sampling of the run a policy comes from; of whoever comes from none, the default."""
    config = run_config(policy)
    return Sampling(**config.sampling.model_dump()) if config else Sampling()
