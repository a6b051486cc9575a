"""Finds a policy by what a person calls it: a base model, a run and one of its checkpoints, or an
adapter as peft saves it. Nothing heavy is imported before it is known that there is one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError, nearest
from sparring.core.scripted import PROGRAMS
from sparring.core.types import MAIN, Sampling
from sparring.run import checkpoint
from sparring.run.config import Config, LearnConfig
from sparring.run.games import game_class, option_types
from sparring.run.machine import unreachable
from sparring.run.rundir import RunDir, known_runs, read_object
from sparring.run.servers import server_of

if TYPE_CHECKING:
    from sparring.models.policies import Policies

VALID = (
    "A policy is `nano`, `smollm2`, a folder with a transformers model, a hub name, a folder with "
    "a LoRA adapter of peft, or a run: RUN (its best checkpoint, or its last), RUN@STEP, and "
    "RUN@STEP:NAME where it has several. A player may also be MODEL@URL, on a server"
)
BUILT_IN = ("nano", "smollm2")
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PEFT_PREFIX = "base_model.model."
# What an adapter may have that is computed otherwise than here, though its matrices would fit.
_ODD = (
    *("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern"),
    *("alora_invocation_tokens", "use_qalora", "use_bdlora", "layer_replication"),
)
_MOVES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # beginnings that change the base too
_WHICH = re.compile(r"(?:@(?P<step>\d+|best|last))?(?::(?P<who>[\w.@-]+))?")  # after a run's folder


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights of one policy: in a checkpoint of a run, or in an adapter's folder."""

    config: Config
    file: Path
    name: str

    def load_into(self, policies: Policies, name: str) -> None:
        """Give a policy that is there already these weights."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            state = load_file(self.file)
        except SafetensorError as error:
            raise ValueError(f"{self.file} cannot be read: {error}") from error
        if self.file.name == ADAPTER_WEIGHTS:
            # An adapter need not reach every module; where it does not, a new one adds nothing.
            state = {key.removeprefix(_PEFT_PREFIX): value for key, value in state.items()}
            state = {**policies.state(name), **state}
        policies.load(name, state)


def find_trained(policy: str) -> Trained | None:
    """The checkpoint a policy's name means, or None when it names no run and no adapter."""
    if (Path(policy) / ADAPTER_CONFIG).is_file():
        return _adapter(Path(policy))
    path, step, who = _parts(policy)
    if not (Path(path) / "config.yaml").is_file():
        if step:
            known = known_runs(Path(path))
            hint = f"; {nearest(path, known)}" if known else "."
            raise ConfigError(f"there is no run {path!r}{hint} {VALID}")
        return None
    run = RunDir.existing(Path(path))
    folder = _checkpoint(run, step)
    reason = checkpoint.damage(folder)
    if reason:
        raise ConfigError(f"{folder.name} of {run.path} is damaged: {reason}")
    files = {p.name.split(".policy.")[0]: p for p in folder.glob("*.policy.safetensors")}
    who = who or (MAIN if MAIN in files else next(iter(files)) if len(files) == 1 else "")
    files |= {
        p.name.removeprefix("league.").removesuffix(".safetensors"): p
        for p in folder.glob("league.*.safetensors")
    }
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


def _parts(policy: str) -> tuple[str, str | None, str | None]:
    """Folder, step and name of a policy. A folder's own name may have @ and : too: the longest one
    that is there is meant, or else the shortest."""
    ends = [found.start() for found in re.finditer("(?<=.)[@:]|$", policy)]
    splits = [(policy[:end], _WHICH.fullmatch(policy, end)) for end in ends]
    whole = [(path, match["step"], match["who"]) for path, match in splits if path and match]
    there = (parts for parts in reversed(whole) if (Path(parts[0]) / "config.yaml").is_file())
    return next(there, whole[0] if whole else (policy, None, None))


def weights_of(policy: str) -> str:
    """What tells the weights of a policy from those it may have later."""
    trained = find_trained(policy)
    if trained is None:
        return policy
    stat = trained.file.stat()
    return f"{trained.file} {stat.st_size} {stat.st_mtime_ns}"


def _base_beside(policy: str, folder: Path) -> str:
    """A base model in a folder, also where it and the run have moved together."""
    parts = Path(policy).parts
    for i in range(len(parts) - 1):
        moved = folder.resolve().parent.joinpath(*parts[i:])
        if not Path(policy).exists() and (moved / "config.json").is_file():
            return str(moved)
    return policy


def _adapter(folder: Path) -> Trained:
    """An adapter in peft's own form, as the policy `main` of the model it was made for."""
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConfigError(f"{folder} has an {ADAPTER_CONFIG} and no {ADAPTER_WEIGHTS}")
    adapter = read_object(folder / ADAPTER_CONFIG)
    odd = [key for key in _ODD if adapter.get(key)]
    begun = str(adapter.get("init_lora_weights", ""))
    odd += [f"init_lora_weights {begun}"] if begun.lower().startswith(_MOVES_BASE) else []
    if adapter.get("peft_type") != "LORA" or odd:
        what = ", ".join(odd) or f"peft_type {adapter.get('peft_type')}"
        raise ConfigError(f"{folder} is an adapter with {what}; plain LoRA is what can be loaded")
    try:
        learn = LearnConfig(lora_r=adapter["r"], lora_alpha=adapter["lora_alpha"])
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{folder / ADAPTER_CONFIG} has no usable r and lora_alpha") from error
    base = adapter.get("base_model_name_or_path") or ""
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


def run_config(policy: str) -> Config | None:
    """The config of the run a policy comes from, or None."""
    trained = find_trained(policy)
    return trained.config if trained else None


def need_policy(policy: str) -> None:
    """Refuse a name that nobody has, before anything else is asked for or loaded."""
    if server_of(policy, {}) is None and find_trained(policy) is None:
        need_model(policy)


def need_model(name: str, *, programs: bool = False) -> None:
    """Refuse what is neither built in nor a folder nor a hub name that can be asked for. Only what
    looks like a hub name is asked for there, once, with a short wait."""
    if name in BUILT_IN or (name and Path(name).is_dir()):
        return
    why = "it is no folder here, and a hub name is OWNER/NAME"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not Path(name).parent.is_dir():
        away = "" if _cached(name) else unreachable()
        if not away:
            return
        why = f"it is no folder here, and the hub cannot be reached ({away})"
    known = {*BUILT_IN, *known_runs(Path(name)), *(PROGRAMS if programs else ())}
    raise ConfigError(f"there is no policy {name!r}: {why}; {nearest(name, known)}")


def _cached(name: str) -> bool:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (cache / f"models--{name.replace('/', '--')}").is_dir()


def first_game(policy: str) -> str:
    config = run_config(policy)
    if config is None:
        if policy not in PROGRAMS and "@" not in policy:  # or it is on a server
            need_model(policy, programs=True)
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
    """The sampling of the run a policy comes from; of other policies, the default."""
    config = run_config(policy)
    return Sampling(**config.sampling.model_dump()) if config else Sampling()
