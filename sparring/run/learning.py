"""How a policy learns, as a section of the config: what the one learner is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sparring.run.section import Section

Beta = Annotated[float, Field(ge=0, lt=1)]


class LearnConfig(Section):
    seats: list[str] | None = None  # whose turns train; None: every seat that is not frozen
    objective: Literal["policy", "likelihood", "preference"] = "policy"  # likelihood: SFT; DPO
    weights: Literal["full", "lora"] = "lora"
    lora_r: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_dropout: float = Field(0.0, ge=0, lt=1)  # at work under likelihood and preference only
    lr: float = Field(1e-5, gt=0)
    schedule: Literal["constant", "linear"] = "constant"
    lr_floor: float = Field(0.05, ge=0, le=1)  # share of lr that a linear schedule ends at
    # Iterations that `schedule` and `entropy_end` move over; None: all of the run.
    horizon: int | None = Field(None, ge=1)
    # Iterations; optimizer steps where there is no reward, or each iteration begins anew.
    warmup: int = Field(0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.99)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    # Each iteration begins with the first weights, and its own schedule of lr, not with the last.
    restart: bool = False
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    batch: int | None = Field(None, ge=1)  # lessons per optimizer step, instead of minibatches
    micro_batch: int | None = Field(None, ge=1)  # at most so many lessons on the device at once
    tokens_per_batch: int = Field(16384, ge=1)
    packing: bool = False  # sequences one after another in a row; a shared prompt is read once
    gradient_checkpointing: bool = False  # layers are computed again in the backward pass
    compile: bool = False  # layers by torch.compile: worth its half minute on a GPU
    spread: bool = False  # the base model over all processes that learn, with FSDP2
    head_chunk: int = Field(1024, ge=1)
    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.2, ge=0)
    ratio_cap: float | None = Field(None, gt=1)  # the most a token's importance ratio counts for
    aggregation: Literal["grpo", "bnpo", "dr_grpo", "dapo"] = "dapo"
    entropy: float = Field(0.0, ge=0)  # bonus per nat; moves in a line to entropy_end, if given
    entropy_end: float | None = Field(None, ge=0)
    beta: float = Field(0.1, gt=0)  # of preference: how dearly leaving the reference is paid
    kl: float = Field(0.0, ge=0)
    kl_correction: bool = True  # k3 times the ratio; without, its gradient is KL(ref ‖ π)'s
    kl_stop: float | None = Field(None, gt=0)  # nats moved since sampling that end the epochs
    value_weight: float = Field(0.5, ge=0)  # of the critic's loss, where credit is gae
    value_clip: float = Field(0.2, gt=0)
    critic_lr: float = Field(1e-3, gt=0)
    reference: Literal["base", "moving"] = "base"  # moving: magnetic mirror descent
    reference_rate: float = Field(0.05, gt=0, le=1)
