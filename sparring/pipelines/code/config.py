"""The config section of MBPP during training."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sparring.run.sections import Section


class MbppConfig(Section):
    """MBPP before training, every so often, and after; logged as `mbpp_eval/…`."""

    enabled: bool = False
    data: str = "shipped"  # as tasks.source; MBPP_DATASET_PATH overrides it
    problems: int | None = Field(None, ge=1)  # the first so many; MBPP_EVAL_NUM_QUESTIONS overrides
    every: int = Field(20, ge=1)  # iterations
    chat: bool = False  # zero-shot in the chat's form; otherwise three shots, as published
    temperature: float = Field(0.2, ge=0)
    max_tokens: int = Field(512, ge=1)
    timeout_s: float = Field(10.0, gt=0)
    # pass@k; as many samples as the largest
    k: list[Annotated[int, Field(ge=1)]] = Field([1], min_length=1)
