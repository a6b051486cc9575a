"""Weights that exist already, for the policies of a new run to begin with."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError, nearest
from sparring.core.types import BASE
from sparring.models.trained import ADAPTER_WEIGHTS, Trained, base_name, find_trained
from sparring.run import checkpoint
from sparring.run.config import Config, LearnConfig
from sparring.run.players import imitated

if TYPE_CHECKING:
    from sparring.models.policies import Policies

# Weights of the same shape compute something else where these differ.
_MAKE = (
    *("model_type", "num_attention_heads", "num_key_value_heads", "hidden_act"),
    *("rms_norm_eps", "rope_parameters", "tie_word_embeddings", "sliding_window", "layer_types"),
    *("final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar"),
    *("logits_scaling", "embedding_multiplier", "residual_multiplier", "attention_multiplier"),
)


def begin_with(
    config: Config, policies: Policies, learned: Collection[str], folder: Path | None = None
) -> None:
    """Add the policies that `begin` names, with the weights it gives them, or say why not. A run
    that has checkpoints in its folder began with the first of them, and needs nothing else."""
    check_names("begin", config.begin, learned)
    for name, policy in config.begin.items():
        kept = checkpoint.steps(folder / "checkpoints") if folder else []
        if 0 in kept:
            policy = f"{folder}@0:{name}"
        elif kept and not config.learn.restart:
            continue  # the first is lost, and a later one says all that is needed
        elif imitated(policy):
            continue  # fitted by the loop, once the run has a folder
        policies.add(name)
        try:
            _load(policy, name, config, policies)
        except ValueError as error:
            raise ConfigError(f"begin.{name}: {error}") from error


def check_names(key: str, named: Iterable[str], learned: Collection[str]) -> None:
    """Weights and bases are given to those who learn, and are in the checkpoints with them."""
    for name in named:
        if name not in learned:
            raise ConfigError(
                f"{key}: no policy {name!r} learns in this run; {nearest(name, learned)} Whoever "
                "sits without learning is named in `players`, as RUN@STEP:NAME"
            )


def _load(policy: str, name: str, config: Config, policies: Policies) -> None:
    trained = find_trained(policy)
    if trained is not None:
        _check_kind(policy, trained, config.learn)
        _check_base(policy, trained, config, policies)
        trained.load_into(policies, name)
    elif config.learn.weights == "full":
        policies.load(name, _same_make(policy, policy, 0, policies).state(BASE))
    else:
        raise ValueError(
            f"{policy} is neither a run nor a folder with an adapter of peft; a model to stand on "
            "is `policy`"
        )


def _check_kind(policy: str, trained: Trained, learn: LearnConfig) -> None:
    theirs = trained.config.learn
    if theirs.weights != learn.weights:
        kinds = {"full": "whole weights", "lora": "an adapter"}
        fold = " (`sparring merge` folds it into a model)" if theirs.weights == "lora" else ""
        raise ValueError(
            f"{policy} is {kinds[theirs.weights]}{fold}, and learn.weights is {learn.weights}"
        )
    if learn.weights == "lora" and (theirs.lora_r, theirs.lora_alpha) != (
        learn.lora_r,
        learn.lora_alpha,
    ):
        raise ValueError(
            f"{policy} is an adapter of rank {theirs.lora_r} and alpha {theirs.lora_alpha}; say "
            f"learn.lora_r={theirs.lora_r} learn.lora_alpha={theirs.lora_alpha} to go on from it"
        )


def _check_base(policy: str, trained: Trained, config: Config, policies: Policies) -> None:
    """An adapter needs the base it was made for; whole weights a model of the same make."""
    theirs, seed = trained.config.policy, trained.config.seed
    if trained.file.name == ADAPTER_WEIGHTS:
        seed = config.seed  # peft's form has a place for the base's name alone
    there, here = (
        base_name(_resolved(theirs), seed),
        base_name(_resolved(config.policy), config.seed),
    )
    if there == here or not theirs:
        return
    if trained.config.learn.weights == "lora":
        raise ValueError(f"{policy} stands on the base model {there}, and this run on {here}")
    _same_make(policy, theirs, seed, policies)


def _same_make(policy: str, base: str, seed: int, policies: Policies) -> Policies:
    """A model loaded, if it would compute with its weights what these policies compute."""
    from sparring.models.policies import load_policies

    other = load_policies(base, LearnConfig(weights="full"), seed=seed)

    def make(of: Any) -> dict[str, Any]:
        return {key: getattr(of.config, key, None) for key in _MAKE}

    odd = [key for key, value in make(other).items() if make(policies)[key] != value]
    if other.tokenizer.get_vocab() != policies.tokenizer.get_vocab():
        odd.append("vocabulary")
    if odd:
        raise ValueError(f"{policy} is a model of another make: {', '.join(odd)} differ")
    return other


def _resolved(policy: str) -> str:
    return str(Path(policy).resolve()) if Path(policy).is_dir() else policy
