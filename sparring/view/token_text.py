"""The text of single token ids, by the tokenizer of the model that a run is based on. Nothing is
fetched: a tokenizer that is not on this machine is done without."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

log = logging.getLogger(__name__)
_WAIT_S = 0.1
_lock = threading.Lock()
_loading: dict[str, Future[Any]] = {}
# Everything of models is loaded in this one thread: importing transformers from two at once fails.
loader = ThreadPoolExecutor(1, "loader")


def base_of(config: Mapping[str, Any], policy: str) -> str:
    bases = config.get("bases")
    own = bases.get(policy.partition("@")[0]) if isinstance(bases, dict) else None
    return str(own or config.get("policy") or "")


def pieces(config: Mapping[str, Any], policy: str, ids: Sequence[int]) -> list[str] | None:
    """Each id's text, special tokens included; None where the tokenizer cannot be had."""
    tokenizer = _tokenizer(base_of(config, policy))
    if tokenizer is None:
        return None
    return [str(tokenizer.decode([token], skip_special_tokens=False)) for token in ids]


def decode(config: Mapping[str, Any], policy: str, ids: Sequence[int]) -> str | None:
    tokenizer = _tokenizer(base_of(config, policy))
    return None if tokenizer is None else str(tokenizer.decode(ids, skip_special_tokens=False))


def warm() -> None:
    """Import what tokenizers need before a request waits for it."""
    _tokenizer("nano")


def _tokenizer(base: str) -> Any:
    """Loaded in the background; a request that comes before it is there asks again."""
    with _lock:
        if base not in _loading:
            _loading[base] = loader.submit(_load, base)
    try:
        return _loading[base].result(_WAIT_S)
    except TimeoutError:
        return None


def pending() -> bool:
    """Whether a tokenizer is still being loaded."""
    return not all(loading.done() for loading in _loading.values())


def _load(base: str) -> Any:
    try:
        from sparring.models.loading import nano_tokenizer, smollm2_folder

        if base == "nano":
            return nano_tokenizer()
        from transformers import AutoTokenizer

        where = str(smollm2_folder()) if base == "smollm2" else base
        return AutoTokenizer.from_pretrained(where, local_files_only=True)
    except Exception as error:
        log.info("the tokenizer of %s is not on this machine (%s): ids are printed", base, error)
        return None
