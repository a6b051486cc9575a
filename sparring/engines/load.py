"""Policies by name, loaded into an engine: alone, beside another, or on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.types import BASE, Request, Turn
from sparring.engines.engine import OwnEngine
from sparring.models.trained import base_name, find_trained, need_model
from sparring.run.config import LearnConfig
from sparring.run.servers import label_of, server_of

if TYPE_CHECKING:
    from sparring.core.table import Speak
    from sparring.engines.engine import Engine
    from sparring.engines.local.engine import TransformersEngine
    from sparring.models.policies import Policies


def load_engine(
    policy: str, *, device: str = "auto", dtype: str = "auto", template: str | None = None
) -> tuple[TransformersEngine, str]:
    """An engine that speaks as this policy, and the name to ask it by. A run's policy is asked with
    the chat template it learned with, another one with `template`."""
    trained = find_trained(policy)
    if trained is None:
        need_model(policy)
    from sparring.engines.local.multi_base import embedded
    from sparring.models.device import choose_device, fast_allocations

    fast_allocations()
    base, seed = (trained.config.policy, trained.config.seed) if trained else (policy, 0)
    learn = trained.config.learn if trained else LearnConfig()
    device, dtype = choose_device(device, dtype, learn.weights)
    template = trained.config.template if trained else template
    options: dict[str, Any] = {"device": device, "dtype": dtype, "template": template}
    if trained and trained.config.bases:  # those who played each other are to meet again
        from sparring.models.multi_base import policies_on_bases

        policies: Policies = policies_on_bases(trained.config, **options)
    else:
        from sparring.models.policies import load_policies

        policies = load_policies(base, learn, seed=seed, **options)
    if trained:
        policies.add(trained.name)
        try:
            trained.load_into(policies, trained.name)
        except ValueError as error:
            raise ConfigError(f"{policy} does not fit {base}: {error}") from error
    engine = embedded(policies)
    engine.base = base_name(base, seed)
    return engine, trained.name if trained else BASE


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
    if isinstance(engine, OwnEngine) and server_of(against, {}) is None:
        add_policy(engine, against, "opponent")
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
    trained = find_trained(policy)
    learn = trained.config.learn if trained else None
    base, seed = (trained.config.policy, trained.config.seed) if trained else (policy, 0)
    base = base_name(base, seed)
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
    state = None if trained else _base_weights(engine, policy, base)
    engine.policies.add(name)
    try:
        if trained:
            trained.load_into(engine.policies, name)
        elif state is not None:
            engine.policies.load(name, state)
    except ValueError as error:
        engine.policies.remove(name)
        raise ConfigError(f"{policy} cannot be added to {engine.base}: {error}") from error


def _base_weights(engine: OwnEngine, policy: str, base: str) -> dict[str, Any] | None:
    """The weights of a base model other than the engine's; its own need not be loaded again."""
    if base == engine.base:
        return None
    from sparring.models.policies import load_policies

    return load_policies(policy, LearnConfig(weights="full")).state(BASE)


def _take_kind(engine: OwnEngine, learn: LearnConfig | None) -> None:
    """An engine that has only its base yet takes policies of whichever kind comes first."""
    from sparring.models.policies import wrap_model

    if learn is not None and engine.policies.names() == [BASE]:
        with engine.policies.using(BASE) as model:
            engine.policies = wrap_model(model, engine.policies.tokenizer, learn)
