"""A policy as others load it: a transformers folder, or peft's folder of an adapter."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file
from transformers.utils import logging

from sparring.core.types import BASE
from sparring.models.policies import LoraPolicies, Policies
from sparring.models.trained import ADAPTER_WEIGHTS


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
