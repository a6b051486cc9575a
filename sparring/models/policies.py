"""Policies: one base model and any number of named sets of weights on it.

`LoraPolicies` keeps an adapter per name, `FullPolicies` a whole model per name (for small ones).
Both answer to the same five verbs: using, add, remove, state, load. The name `base` is the
untouched model in either.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from torch import Tensor, nn

from sparring.core.types import BASE, derive
from sparring.core.types import REFERENCE as REFERENCE
from sparring.models.loading import load_model
from sparring.models.lora import AdaptedLinear, group_layers
from sparring.models.quantized import QuantizedLinear, quantize_base
from sparring.run.config import LearnConfig

Weights = Callable[[str, dict[str, Tensor]], dict[str, Tensor]]  # of a policy by name


class Policies(ABC):
    """What every kind of policies shares: a tokenizer and a version per name."""

    # Where weights are spread over processes: parts to whole tensors, and back.
    gather: Weights = staticmethod(lambda name, parts: parts)
    scatter: Weights = staticmethod(lambda name, whole: whole)

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.config = model.config.get_text_config()  # of a model that sees, the part that speaks
        self.device = model.device
        self._versions: dict[str, int] = {BASE: 0}
        self._loads = 0  # how often weights were put in from elsewhere

    @property
    def context(self) -> int | None:
        """The most tokens that a sequence may have, where the model says so."""
        return getattr(self.config, "max_position_embeddings", None)

    def names(self) -> list[str]:
        return list(self._versions)

    def home(self, name: str) -> Policies:
        """The policies on one base model among which this one is."""
        self.check(name)
        return self

    def version(self, name: str) -> int:
        return self._versions[name]

    def set_version(self, name: str, version: int) -> None:
        self._versions[name] = version

    def revision(self, name: str) -> tuple[int, int]:
        """Another one whenever weights may have moved: what was computed before is not theirs."""
        return self.version(name), self._loads

    def check(self, name: str) -> None:
        if name not in self._versions:
            raise ValueError(f"there is no policy {name!r}; there are: {', '.join(self._versions)}")

    def check_new(self, name: str, source: str) -> None:
        self.check(source)
        if name in self._versions:
            raise ValueError(f"there is a policy {name!r} already; remove it first")
        self._loads += 1  # a policy of this name may have been here before

    def check_removable(self, name: str) -> None:
        self.check(name)
        if name == BASE:
            raise ValueError(f"the policy {BASE!r} is what all others stand on; it stays")

    @abstractmethod
    def using(self, name: str) -> AbstractContextManager[Any]:
        """The causal language model that speaks as `name`, for the time of the block."""

    @contextmanager
    def fitting(self, name: str) -> Iterator[Any]:
        """As `using`, with dropout at work. Reinforcement must not: its logprobs are compared
        with sampled ones."""
        with self.using(name) as model:
            model.train()
            try:
                yield model
            finally:
                model.eval()

    @abstractmethod
    def add(self, name: str, source: str = BASE) -> None:
        """A new policy that begins as a copy of `source`."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Forget a policy."""

    @abstractmethod
    def parameters(self, name: str) -> dict[str, nn.Parameter]:
        """The weights that learning `name` moves, by name."""

    def state(self, name: str) -> dict[str, Tensor]:
        return self.gather(name, {key: p.detach() for key, p in self.parameters(name).items()})

    def load(self, name: str, state: dict[str, Tensor]) -> None:
        mine, state = self.parameters(name), self.scatter(name, state)
        if set(mine) != set(state):
            odd = sorted(set(mine) ^ set(state))[:3]
            raise ValueError(f"these weights belong to another model: {', '.join(odd)} differ")
        for key, parameter in mine.items():
            if parameter.shape != state[key].shape:
                raise ValueError(
                    f"these weights belong to another model: {key} is "
                    f"{tuple(state[key].shape)} there and {tuple(parameter.shape)} here"
                )
        self.home(name)._loads += 1
        with torch.no_grad():
            for key, parameter in mine.items():
                parameter.copy_(state[key])

    def twin(self) -> Policies:
        """Policies of their own on the same base: what is learned here does not move there. The
        base's weights are frozen and shared."""
        return copy.deepcopy(self, {id(weight): weight for weight in self.frozen_parameters()})

    @abstractmethod
    def frozen_parameters(self) -> list[nn.Parameter]:
        """The frozen weights: those of the base."""

    def snapshot(self, known: Mapping[str, int]) -> Snapshot:
        """All who may speak, with a copy of the weights of those whose version is not known."""
        spoken = [n for n in self.names() if n != BASE and not n.startswith(f"{REFERENCE}_")]
        versions = {name: self.version(name) for name in spoken}
        return Snapshot(
            versions,
            {
                name: {key: tensor.clone() for key, tensor in self.state(name).items()}
                for name, version in versions.items()
                if known.get(name) != version
            },
        )

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Be what others were when they were copied."""
        for name in [n for n in self.names() if n != BASE and n not in snapshot.versions]:
            self.remove(name)
        for name, state in snapshot.weights.items():
            if name not in self.names():
                self.add(name)
            self.load(name, state)
        for name, version in snapshot.versions.items():
            self.set_version(name, version)


@dataclass(frozen=True)
class Snapshot:
    """Policies at one moment: the versions of all, the weights of those that had changed."""

    versions: dict[str, int]
    weights: dict[str, dict[str, Tensor]]


class FullPolicies(Policies):
    """A model for each policy. Where the base can be loaded again, the first policy takes its
    tensors: a run that never asks the base anything does not hold it beside what it learns."""

    def __init__(
        self, model: Any, tokenizer: Any, load_base: Callable[[], Any] | None = None
    ) -> None:
        super().__init__(model, tokenizer)
        self._models: dict[str, Any] = {BASE: model.eval()}
        self._load_base = load_base

    def _model(self, name: str) -> Any:
        self.check(name)
        if name not in self._models and self._load_base is not None:
            self._models[name] = self._load_base().eval()
        return self._models[name]

    @contextmanager
    def using(self, name: str) -> Iterator[Any]:
        yield self._model(name)

    def add(self, name: str, source: str = BASE) -> None:
        self.check_new(name, source)
        model = self._model(source)
        first = self._load_base is not None and self.names() == [BASE]
        self._models[name] = self._models.pop(BASE) if first else copy.deepcopy(model)
        self._versions[name] = self._versions[source]

    def remove(self, name: str) -> None:
        self.check_removable(name)
        del self._models[name], self._versions[name]

    def parameters(self, name: str) -> dict[str, nn.Parameter]:
        return dict(self._model(name).named_parameters())

    def frozen_parameters(self) -> list[nn.Parameter]:
        return list(self._models[BASE].parameters()) if BASE in self._models else []


class LoraPolicies(Policies):
    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        r: int = 16,
        alpha: int = 32,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, tokenizer)
        self._lora = LoraConfig(
            r=r,
            lora_alpha=alpha,
            lora_dropout=dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        self._lora._register_custom_module({nn.Linear: AdaptedLinear})
        self._base = model.eval()
        self._peft: Any = None
        self._seed = seed

    @contextmanager
    def using(self, name: str) -> Iterator[Any]:
        self.check(name)
        if self._peft is None:
            yield self._base
        elif name == BASE:
            # peft's own disable_adapter looks its active adapter up, which may have been removed.
            tuner = self._peft.base_model
            tuner.disable_adapter_layers()
            try:
                yield self._base
            finally:
                tuner.enable_adapter_layers()
        else:
            self._peft.set_adapter(slot_name(name))
            yield self._base

    def add(self, name: str, source: str = BASE) -> None:
        self.check_new(name, source)
        slot = slot_name(name)
        # Half of a new adapter is random: by the run's seed and the name, not by what came before.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self._seed, name))
            if self._peft is None:
                self._peft = get_peft_model(self._base, self._lora, adapter_name=slot)
                group_layers(self._base)
            else:
                self._peft.add_adapter(slot, self._lora)
        self._peft.eval()
        self._versions[name] = self._versions[source]
        if source != BASE:
            self.load(name, self.state(source))

    def remove(self, name: str) -> None:
        self.check_removable(name)
        self._peft.delete_adapter(slot_name(name))
        del self._versions[name]

    def parameters(self, name: str) -> dict[str, nn.Parameter]:
        self.check(name)
        slot = slot_name(name)
        parameters = {}
        for key, parameter in self._base.named_parameters():
            *path, owner, last = key.split(".")  # ….q_proj.lora_A.main.weight
            if owner == slot:
                # peft freezes all adapters but the active one; what is asked for here is learned.
                parameter.requires_grad_(True)
                parameters[".".join([*path, last])] = parameter
        return parameters

    def frozen_parameters(self) -> list[nn.Parameter]:
        adapters = {
            id(weight)
            for name in self.names()
            if name != BASE
            for weight in self.parameters(name).values()
        }
        return [weight for weight in self._base.parameters() if id(weight) not in adapters]

    def adapter(self, name: str) -> tuple[LoraConfig, dict[str, Tensor]]:
        """The adapter as peft saves it, for people who take it elsewhere."""
        # peft would look on the hub whether embeddings were added; none are ever adapted here.
        return self._lora, get_peft_model_state_dict(
            self._peft, adapter_name=slot_name(name), save_embedding_layers=False
        )

    def merged(self, name: str) -> Any:
        """The base model with the adapter folded in. It takes the base's place: nothing else can
        be asked of these policies afterwards."""
        self.check(name)
        for layer in self._base.modules():
            if isinstance(layer, AdaptedLinear) and isinstance(layer.base_layer, QuantizedLinear):
                layer.base_layer = layer.base_layer.whole()
        return self._peft.merge_and_unload(adapter_names=[slot_name(name)])


def slot_name(name: str) -> str:
    """peft keeps adapters in module dicts, whose keys may hold no dot, nor be a name of the dict's
    own (`train`, `type`); one that is a name of the model's (`norm`) would take its weights along.
    """
    return f"policy_{name.replace('.', '_')}"


def load_policies(name: str, config: LearnConfig, *, seed: int = 0, **options: Any) -> Policies:
    """The policies of a base model, kept whole or as adapters, as the config says. `options` are
    those of `load_model`."""
    model, tokenizer = load_model(name, seed=seed, **options)
    if config.weights == "full" and not config.shard:
        return FullPolicies(model, tokenizer, lambda: load_model(name, seed=seed, **options)[0])
    return wrap_model(model, tokenizer, config, seed=seed)


def wrap_model(model: Any, tokenizer: Any, config: LearnConfig, *, seed: int = 0) -> Policies:
    """Policies on a base model that is loaded already."""
    if config.weights == "full":
        return FullPolicies(model, tokenizer)
    if config.quantize is not None:
        quantize_base(model, config.quantize)
    return LoraPolicies(
        model,
        tokenizer,
        r=config.lora_r,
        alpha=config.lora_alpha,
        dropout=config.lora_dropout,
        seed=seed,
    )
