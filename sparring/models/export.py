"""A policy as others load it: a transformers folder, a folder of peft with an adapter, or the model
that an adapter and its base become when they are folded into one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers.utils import logging

from sparring.core.errors import ConfigError
from sparring.core.types import BASE
from sparring.models.loading import load_model, smollm2_folder
from sparring.models.policies import LoraPolicies, Policies, wrap_model
from sparring.models.trained import ADAPTER_WEIGHTS, find_trained
from sparring.run.lock import writing_file

# The most that the mean logprob over a probe may differ, in nats. Float32 sums in another order;
# in 16 bits the folded weights are rounded once more than the base's were.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.02}
_PROBE = "A train has 12 cars of 8 seats. How many seats are there? 12 x 8 = 96. #### 96"


def export_policy(policies: Policies, name: str, base: str, folder: Path) -> None:
    """Write one policy; `base` is what its adapter stands on. The folder names a policy from then
    on, here and elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(policies, LoraPolicies) and name != BASE:
        lora, state = policies.adapter(name)
        lora.base_model_name_or_path = base
        lora.save_pretrained(str(folder))
        whole = {key: value.detach().cpu().contiguous() for key, value in state.items()}
        save_file(whole, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
        return
    had_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a bar per round would drown the run's own
    with policies.using(name) as model:
        model.save_pretrained(str(folder))
    if had_bar:
        logging.enable_progress_bar()
    policies.tokenizer.save_pretrained(str(folder))


def merge(policy: str, out: Path, *, base: str | None = None) -> dict[str, Any]:
    """Fold a policy into its base, or into another one of the same shape, and check that it still
    speaks the same."""
    with writing_file(out):
        if out.exists():
            raise ConfigError(f"{out} is there already; choose another folder")
        return _merge(policy, out, base)


def _merge(policy: str, out: Path, base: str | None) -> dict[str, Any]:
    trained = find_trained(policy)
    if trained is None:
        raise ConfigError(f"{policy} is neither a run nor a folder with an adapter of peft")
    name = base or trained.config.policy
    dtype = base_dtype(name)
    model, tokenizer = load_model(
        name, dtype="float32", seed=trained.config.seed, template=trained.config.template
    )
    policies = wrap_model(model, tokenizer, trained.config.learn)
    policies.add(trained.name)
    try:
        trained.load_into(policies, trained.name)
    except ValueError as error:
        raise ConfigError(f"{policy} does not fit {name}: {error}") from error
    probe = torch.tensor([tokenizer.encode(_PROBE, add_special_tokens=False)])
    with torch.no_grad(), policies.using(trained.name) as speaking:
        before = speaking(probe).logits.log_softmax(-1)
    if isinstance(policies, LoraPolicies):
        merged = policies.merged(trained.name)
    else:
        with policies.using(trained.name) as merged:
            pass
    # Folded in float32 and rounded once; then compared in the dtype it is loaded in.
    merged = merged.to(getattr(torch, dtype)).float()
    with torch.no_grad():
        gap = float((merged(probe).logits.log_softmax(-1) - before).abs().mean())
    if not gap <= TOLERANCE[dtype]:
        raise ConfigError(
            f"the merged model differs from {policy} by {gap:.2g} nats per logprob, more than "
            f"{TOLERANCE[dtype]:g} in {dtype}; nothing was written"
        )
    _save(merged.to(getattr(torch, dtype)), tokenizer, out)
    return {
        "policy": policy,
        "base": name,
        "out": str(out),
        "dtype": dtype,
        "difference": gap,
        "tolerance": TOLERANCE[dtype],
    }


def base_dtype(name: str) -> str:
    """The dtype a base model is kept in."""
    from transformers import AutoConfig

    if name == "nano":
        return "float32"
    try:
        config = AutoConfig.from_pretrained(smollm2_folder() if name == "smollm2" else name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no model {name!r} could be loaded: {str(error).splitlines()[0]}"
        ) from error
    dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    return dtype if dtype in TOLERANCE else "float32"


def _save(model: Any, tokenizer: Any, out: Path) -> None:
    unfinished = out.with_name(f".{out.name}.merging")
    shutil.rmtree(unfinished, ignore_errors=True)
    tokenizer.save_pretrained(unfinished)
    model.save_pretrained(unfinished)
    unfinished.rename(out)
